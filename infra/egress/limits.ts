import type { EgressRequest, Profile } from "./egress.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

/** What one exchange may cost us. Times in ms, from the first byte of the request out; sizes in bytes. */
export interface Limits {
  /** Decoded body. */
  bodyBytes: number;
  /** Decoded body when the answer says it is a PDF. */
  pdfBytes: number;
  /** Status line and headers, and again trailers. */
  headerBytes: number;
  headersMs: number;
  /** To the last byte, over all hops. */
  totalMs: number;
  /** Redirects that are followed. */
  hops: number;
  /** Slow loris: a body brings at least so many bytes in each window of so many ms. */
  windowMs: number;
  windowBytes: number;
  /** Each of these bounds one step of the connection's set-up, before the first byte. */
  resolveMs: number;
  connectMs: number;
  tlsMs: number;
}

const base: Limits = {
  bodyBytes: MIB,
  pdfBytes: MIB,
  headerBytes: 16 * KIB,
  headersMs: 10_000,
  totalMs: 20_000,
  hops: 0,
  windowMs: 5_000,
  windowBytes: 512,
  resolveMs: 3_000,
  connectMs: 3_000,
  tlsMs: 3_000,
};

/** Longest deadline a paid leg may ask for; its lower bound is the caller's, who knows the 402. */
export const PAID_MAX_MS = 120_000;
const PAID_DEFAULT_MS = 30_000;

/** The table of egress.md. A paid answer may pause, since a seller that works and settles is no loris. */
export const LIMITS: Readonly<Record<Profile, Limits>> = {
  handshake: base,
  control: base,
  paid: { ...base, headersMs: PAID_MAX_MS, totalMs: PAID_DEFAULT_MS, windowMs: 15_000, windowBytes: 64 },
  evidence: { ...base, bodyBytes: 5 * MIB, pdfBytes: 10 * MIB, hops: 3 },
  challenge: { ...base, bodyBytes: 4 * KIB, pdfBytes: 4 * KIB, totalMs: 10_000 },
  notice: { ...base, bodyBytes: 64 * KIB, pdfBytes: 64 * KIB, headersMs: 15_000, totalMs: 15_000 },
};

export type LimitChanges = Partial<Record<Profile, Partial<Limits>>>;

/** Limits of one request: the paid leg takes the caller's deadline up to 120 s, the others only a shorter one; hops only fewer. */
export function limitsFor({ profile, deadlineMs, hops }: EgressRequest, changes: LimitChanges): Limits {
  const all = { ...LIMITS[profile], ...changes[profile] };
  const limits = hops === undefined ? all : { ...all, hops: Math.min(hops, all.hops) };
  if (deadlineMs === undefined) return limits;
  const ceiling = profile === "paid" ? PAID_MAX_MS : limits.totalMs;
  return { ...limits, totalMs: Math.max(0, Math.min(deadlineMs, ceiling)) };
}
