import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { Failure } from "../../infra/errors.ts";
import { signMessage } from "../6-notify/notice.ts";
import type { MonitorState } from "./state.ts";

/** Number of notices that are read from the state at once. */
const NOTICES_PER_READ = 100;
/** Longest pause after failures, ms. */
const MAX_PAUSE_MS = 3_600_000;

/**
 * Returns the key of the signatures `v1`, base64.
 * @param secret in the form of Standard Webhooks: `whsec_` and base64
 */
const hmacKeyOf = (secret: string | null): string | null => secret?.replace(/^whsec_/, "") ?? null;

/**
 * Posts notices to one receiver, in their order, and repeats each until the receiver answers with a 2xx status
 * (Standard Webhooks). The id of a notice does not change between attempts, so that the receiver can drop one that
 * arrives twice.
 */
export class Webhook {
  #failures = 0;
  #retryAt = 0;

  /** @throws Failure `usage` for an address to which no request is allowed */
  constructor(
    readonly url: string,
    private readonly parts: { egress: Pick<Egress, "fetch" | "validate">; clock: Clock; secret: string | null },
  ) {
    const verdict = parts.egress.validate(url);
    if (!verdict.ok) throw new Failure("usage", `--webhook: ${verdict.says}`);
  }

  /**
   * Posts the waiting notices. Stops at the first that is not accepted. Until a pause after that is over, further calls
   * do nothing. The pause doubles with each failure in a row, up to an hour.
   * @param pauseMs pause after the first failure
   * @throws Failure `untold` when the receiver did not accept a notice
   */
  async post(state: MonitorState, pauseMs: number): Promise<void> {
    const { clock } = this.parts;
    if (clock.monotonic() < this.#retryAt) return;
    for (;;) {
      const waitingNotices = state.listNotices(NOTICES_PER_READ).filter(({ posted }) => !posted);
      if (waitingNotices.length === 0) break;
      for (const { n, body } of waitingNotices) {
        const refusal = await this.#send(`mon_${state.id.toLowerCase()}_${n}`, body);
        if (refusal !== null) {
          const retryPauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2 ** this.#failures++);
          this.#retryAt = clock.monotonic() + retryPauseMs;
          throw new Failure("untold", `the webhook did not take a notice, which waits: ${refusal}`, {
            retriable: true,
          });
        }
        this.#failures = 0;
        state.markDelivered(n, "posted");
      }
    }
  }

  /** @returns null when the receiver accepted the notice, else why it did not */
  async #send(id: string, text: string): Promise<string | null> {
    const { egress, clock, secret } = this.parts;
    const { headers, body } = signMessage(id, text, clock.now(), [], hmacKeyOf(secret));
    const result = await egress.fetch({ url: this.url, method: "POST", headers, body, profile: "notice" });
    if (result.outcome !== "answered") return result.says;
    return result.status >= 200 && result.status < 300 ? null : `it answered ${result.status}`;
  }
}
