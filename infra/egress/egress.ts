import type { LoopSeen } from "../loop-watch.ts";
import type { Holder } from "../shares.ts";

/**
 * Fetching what strangers name: the only way out of this process to an address that somebody else gave.
 * Never throws for what a stranger does: every end of an exchange is a value.
 */
export interface Egress {
  fetch(request: EgressRequest): Promise<EgressResult>;
  /** Would this url be fetched at all (scheme, port, host form)? No name is resolved. Reason in words when not. */
  validate(url: string): { ok: true } | { ok: false; reason: RefusalReason; says: string };
  close(): Promise<void>;
}

/** The same way out, with this said of every fetch. */
export const saying = (
  egress: Egress,
  all: Pick<EgressRequest, "pool" | "stock" | "deadlineMs" | "holder">,
): Egress => ({
  fetch: (request) => egress.fetch({ ...request, ...all }),
  validate: (url) => egress.validate(url),
  close: () => egress.close(),
});

export interface EgressRequest {
  url: string;
  method: string;
  headers?: Record<string, string>;
  body?: Uint8Array;
  profile: Profile;
  /**
   * ms to the last byte, waiting for a place included. Paid leg: already clamped by the caller to 30..120 s. Others: at
   * most the profile's, which is the default.
   */
  deadlineMs?: number;
  /** Redirects that are followed at most, where that is fewer than the profile's. */
  hops?: number;
  signal?: AbortSignal;
  /** Whose places it takes; default: the profile's name. */
  pool?: string;
  /** Whose share of them it takes (shares.ts); default: nobody's. */
  holder?: Holder;
  /**
   * Absent: the request says whose it is. A key: it looks like one of Node's own fetch, and leaves from the source
   * address that the key picks of those for such requests; the same key always picks the same.
   */
  stock?: string;
}

/**
 * handshake: 1 MiB, headers 10 s, total 20 s, no redirect. paid: 1 MiB, deadlineMs, no redirect. evidence: 5 MiB, 3
 * hops. challenge: 4 KiB, 10 s, no redirect. notice: 64 KiB, 15 s, no redirect. control: as handshake.
 */
export type Profile = "handshake" | "paid" | "evidence" | "challenge" | "notice" | "control";

export type RefusalReason = "bad_url" | "scheme" | "userinfo" | "port" | "host" | "address" | "own_address";

export type EgressResult = {
  /**
   * What the event loop did that watched the exchange; absent: it never stood still, and the times are the stranger's. A
   * deadline that passed after a long wait for a place is told as a loop that stood still: both are ours.
   */
  loop?: LoopSeen;
} & (
  | {
      outcome: "answered";
      status: number;
      /** Lower-case names; repeated headers joined by ", " except set-cookie, which is dropped. */
      headers: Record<string, string>;
      body: Uint8Array;
      /** ms from the first byte out to the status line, and to the last byte. */
      headersMs: number;
      totalMs: number;
      remoteAddress: string;
      url: string;
    }
  | {
      /**
       * refused: we did not connect (reason says why). transport: no answer (DNS, connect, TLS, reset before headers).
       * timeout: the deadline passed (status is there if headers came). cut: headers came, the body broke off.
       * too_large: past the cap of decoded bytes or of headers.
       */
      outcome: "refused" | "transport" | "timeout" | "cut" | "too_large";
      reason?: RefusalReason;
      says: string;
      status?: number;
      headers?: Record<string, string>;
      /** What came before the end, at most the cap. */
      body?: Uint8Array;
      headersMs?: number;
      totalMs: number;
      /** Did a byte of the request leave? When not, nothing can have been paid. */
      sent: boolean;
    }
);

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
const PAID_MAX_MS = 120_000;
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

/**
 * Limits of one request: the paid leg takes the caller's deadline up to 120 s, the others only a shorter one; hops only
 * fewer.
 */
export function limitsFor({ profile, deadlineMs, hops }: EgressRequest, changes: LimitChanges): Limits {
  const all = { ...LIMITS[profile], ...changes[profile] };
  const limits = hops === undefined ? all : { ...all, hops: Math.min(hops, all.hops) };
  if (deadlineMs === undefined) return limits;
  const ceiling = profile === "paid" ? PAID_MAX_MS : limits.totalMs;
  return { ...limits, totalMs: Math.max(0, Math.min(deadlineMs, ceiling)) };
}
