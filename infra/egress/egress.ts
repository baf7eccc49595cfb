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
export const saying = (egress: Egress, all: Pick<EgressRequest, "pool" | "stock">): Egress => ({
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
  /** Paid leg: deadline to the last byte in ms (already clamped by the caller to 30..120 s). Others: the profile's. */
  deadlineMs?: number;
  /** Redirects that are followed at most, where that is fewer than the profile's. */
  hops?: number;
  signal?: AbortSignal;
  /** Whose places it takes (gate.ts); default: the profile's name. */
  pool?: string;
  /**
   * Absent: the request says whose it is. A key: it looks like one of Node's own fetch, and leaves from the source
   * address that the key picks of those for such requests; the same key always picks the same.
   */
  stock?: string;
}

/** handshake: 1 MiB, headers 10 s, total 20 s, no redirect. paid: 1 MiB, deadlineMs, no redirect. evidence: 5 MiB, 3 hops. challenge: 4 KiB, 10 s, no redirect. notice: 64 KiB, 15 s, no redirect. control: as handshake. */
export type Profile = "handshake" | "paid" | "evidence" | "challenge" | "notice" | "control";

export type RefusalReason = "bad_url" | "scheme" | "userinfo" | "port" | "host" | "address" | "own_address";

export type EgressResult =
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
    };
