import type { LoopStall } from "../loop-watch.ts";
import type { Holder } from "../shares.ts";

/**
 * Fetches urls that strangers (sellers and clients of this service) chose. Every request of this process to such a
 * url uses an Egress. Whatever a stranger does, `fetch` does not throw: it resolves with a result for every way in
 * which an exchange can end.
 */
export interface Egress {
  fetch(request: EgressRequest): Promise<EgressResult>;
  /**
   * Checks scheme, port and host of a url without resolving its name. If the url would not be fetched, `says` is the
   * explanation.
   */
  validate(url: string): { ok: true } | { ok: false; reason: RefusalReason; says: string };
  close(): Promise<void>;
}

/** Wraps `egress` so that each fetch has these fields, which replace those of the request. */
export const withRequestFields = (
  egress: Egress,
  fields: Pick<EgressRequest, "pool" | "stock" | "deadlineMs" | "holder">,
): Egress => ({
  fetch: (request) => egress.fetch({ ...request, ...fields }),
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
   * Time from the call of `fetch` to the last byte of the answer, ms; the wait for a place in the pool counts too. With
   * the profile `paid` it may be up to 120 s, and callers set at least 30 s. With other profiles it can only shorten
   * the profile's deadline. Default: the profile's deadline.
   */
  deadlineMs?: number;
  /** Largest number of redirects to follow. The value can only lower the profile's number. */
  hops?: number;
  signal?: AbortSignal;
  /**
   * Name of the pool (which bounds concurrent fetches) in which this fetch takes a place; default: the profile's name.
   */
  pool?: string;
  /** Payer, client and domain whose shares of the pool's places this fetch uses (shares.ts); default: nobody's. */
  holder?: Holder;
  /**
   * Absent: the request names us in User-Agent. Present: the request has the headers of Node's built-in fetch, and
   * the value is a key that chooses its source address among `Sources.stock`; equal keys choose equal addresses.
   */
  stock?: string;
  /** True if the result of an answered exchange shall have a `trace`; default: false. */
  trace?: boolean;
}

/** A certificate that a server sent, or the root with which it was verified. */
export interface Certificate {
  /** sha256 of the DER bytes, hex. */
  sha256: string;
  /** Common name of the subject and of the issuer, or else their organisation; "" if there is neither. */
  subject: string;
  issuer: string;
  /** Validity, RFC 3339. */
  valid_from: string;
  valid_to: string;
}

/** One request of a fetch: its url, the IP address of the connection, and how the connection was secured. */
export interface TracedHop {
  url: string;
  status: number;
  /** Target of a redirect as written in the answer, or null. */
  location: string | null;
  address: string;
  /** null over http. The chain begins with the server's own certificate and ends with the trusted root. */
  tls: { protocol: string; chain: Certificate[] } | null;
}

/**
 * Kind of a fetch, which decides its limits. handshake: 1 MiB, headers 10 s, total 20 s, no redirect. paid: 1 MiB,
 * total `deadlineMs`, no redirect. evidence: 5 MiB (a PDF 10 MiB), times of handshake, 3 redirects. challenge: 4 KiB,
 * total 10 s, no redirect. notice: 64 KiB, total 15 s, no redirect. control: as handshake.
 */
export type Profile = "handshake" | "paid" | "evidence" | "challenge" | "notice" | "control";

export type RefusalReason = "bad_url" | "scheme" | "userinfo" | "port" | "host" | "address" | "own_address";

export type EgressResult = {
  /**
   * Present when our own event loop was stalled during the exchange, so that the times are not the stranger's alone. A
   * deadline that passed after a long wait for a place in the pool is reported in this form too, since that delay is
   * ours as well.
   */
  loop?: LoopStall;
} & (
  | {
      outcome: "answered";
      status: number;
      /** Lower-case names; repeated headers joined by ", " except set-cookie, which is dropped. */
      headers: Record<string, string>;
      body: Uint8Array;
      /** Time from the first byte of the first request to the answer's status line, ms. */
      headersMs: number;
      /** Time from the first byte of the first request to the last byte of the answer, ms. */
      totalMs: number;
      /** Address from which the answer came. */
      remoteAddress: string;
      /** Url of the last request, after all redirects. */
      url: string;
      /** Every request in order, the answered one last. Present if the request set `trace`. */
      trace?: TracedHop[];
    }
  | {
      /**
       * refused: we did not send the request (or one after a redirect), because of `reason`, or if that is absent
       * because of a fault on our side. transport: no answer (DNS, connect, TLS, reset before headers). timeout: a
       * deadline passed (`status` is present if headers had arrived). cut: headers arrived, and the body was cut off.
       * too_large: the body or the headers were longer than their cap.
       */
      outcome: "refused" | "transport" | "timeout" | "cut" | "too_large";
      reason?: RefusalReason;
      /** Explanation of the outcome, for people. */
      says: string;
      status?: number;
      headers?: Record<string, string>;
      /** The part of the body that arrived before the end, at most the cap. */
      body?: Uint8Array;
      headersMs?: number;
      totalMs: number;
      /**
       * False when no byte of the request was sent: then no payment can have been made. True when bytes were handed to
       * a socket, whether they arrived or not.
       */
      sent: boolean;
    }
);

const KIB = 1024;
const MIB = 1024 * KIB;

/** Bounds of one fetch: times in ms, sizes in bytes. */
export interface Limits {
  /** Largest body after decoding. */
  bodyBytes: number;
  /** Largest body after decoding when the content type is application/pdf. */
  pdfBytes: number;
  /** Largest size of status line and headers together; trailers may have as much again. */
  headerBytes: number;
  /** Longest time from the first byte of a request to the status line of its answer. */
  headersMs: number;
  /**
   * Longest time from the first byte of the first request to the last byte of the answer, over all hops; the time that
   * the fetch waited for a place in its pool counts too.
   */
  totalMs: number;
  /** Largest number of redirects that are followed. */
  hops: number;
  /** At least `windowBytes` of a body must arrive in each window of `windowMs`, against slow-loris senders. */
  windowMs: number;
  windowBytes: number;
  /**
   * Longest times of the steps before the first byte of a request: resolving the name (`resolveMs`), the TCP connection
   * (`connectMs`), and the TLS handshake (`tlsMs`).
   */
  resolveMs: number;
  connectMs: number;
  tlsMs: number;
}

const baseLimits: Limits = {
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

/** Longest deadline of a paid call, ms. There is no shortest one here: callers derive the deadline from the 402. */
const PAID_MAX_MS = 120_000;
/** Deadline of a paid call whose request has no `deadlineMs`, ms. */
const PAID_DEFAULT_MS = 30_000;

/**
 * Limits of each profile, as in the table of docs/design/egress.md. A paid answer may be slower than others, since a
 * seller works and settles the payment before it answers.
 */
export const LIMITS: Readonly<Record<Profile, Limits>> = {
  handshake: baseLimits,
  control: baseLimits,
  paid: { ...baseLimits, headersMs: PAID_MAX_MS, totalMs: PAID_DEFAULT_MS, windowMs: 15_000, windowBytes: 64 },
  evidence: { ...baseLimits, bodyBytes: 5 * MIB, pdfBytes: 10 * MIB, hops: 3 },
  challenge: { ...baseLimits, bodyBytes: 4 * KIB, pdfBytes: 4 * KIB, totalMs: 10_000 },
  notice: { ...baseLimits, bodyBytes: 64 * KIB, pdfBytes: 64 * KIB, headersMs: 15_000, totalMs: 15_000 },
};

/** Limits of a profile that replace those of {@link LIMITS}. */
export type LimitChanges = Partial<Record<Profile, Partial<Limits>>>;

/**
 * Returns the limits of one request. `deadlineMs` sets the deadline of a paid call, up to 120 s. Of other calls it
 * can only lower the deadline, and `hops` can only lower the number of redirects.
 */
export function limitsFor({ profile, deadlineMs, hops }: EgressRequest, changes: LimitChanges): Limits {
  const profileLimits = { ...LIMITS[profile], ...changes[profile] };
  const limits = hops === undefined ? profileLimits : { ...profileLimits, hops: Math.min(hops, profileLimits.hops) };
  if (deadlineMs === undefined) return limits;
  const ceiling = profile === "paid" ? PAID_MAX_MS : limits.totalMs;
  // Node's timers of signals take whole milliseconds only; what is left of a time that was measured has a fraction.
  return { ...limits, totalMs: Math.max(0, Math.floor(Math.min(deadlineMs, ceiling))) };
}
