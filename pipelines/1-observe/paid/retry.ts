import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { BodyOf } from "../../record/bodies.ts";
import type { Memory } from "../../record/memory.ts";
import { DAY_MS, rfc3339 } from "../../record/time.ts";
import { isPassing } from "../plan/steps.ts";
import type { Evaluation } from "../reading/checks.ts";
import { NotConfirmed } from "../recorder.ts";
import { createFollowupRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { type ChainView, classifyRetry, type Payment, sendProofOnce } from "./payment.ts";

/** Least time between two retries of one endpoint, ms of the observer's clock. */
const RETRY_INTERVAL_MS = 7 * DAY_MS;
const MAX_REMEMBERED = 100_000;

/** Decides which endpoints get a repeated request (a retry): each endpoint at most once a week, whatever the result. */
export class Retries {
  /**
   * Unix ms at which this process last sent a payment proof again to each endpoint. The lake (the database of the
   * log's rows) may not have loaded that record yet.
   */
  readonly #lastSentAt = new BoundedMap<string, number>(MAX_REMEMBERED);

  constructor(private readonly memory: Pick<Memory, "wasRetriedSince">) {}

  /** Returns true if the endpoint is due for a retry, and then marks it as done for a week. */
  async takeDue(cap: string, now: Date): Promise<boolean> {
    const since = now.getTime() - RETRY_INTERVAL_MS;
    const lastSentAt = this.#lastSentAt.get(cap);
    if (lastSentAt !== undefined && lastSentAt > since) return false;
    if (await this.memory.wasRetriedSince(cap, rfc3339(new Date(since)))) return false;
    this.#lastSentAt.set(cap, now.getTime());
    return true;
  }
}

/**
 * Sends once more, with its payment proof, the request of a call that settled and passed, as a buyer does whose
 * connection broke before the answer arrived. It costs nothing, since nothing is signed and a nonce moves money only
 * once. The result is published beside the grade and does not change it.
 *
 * It is done only with wallets that sellers know, since it would reveal a blind wallet (one that the seller does not
 * know as ours), and only while the authorization is valid, since a seller may refuse an expired authorization.
 * @throws NotConfirmed. Any other error is logged as our own, and nothing is recorded
 */
export async function measureRetry(
  tools: Tools,
  payment: Payment,
  { chain, evaluation }: { chain: ChainView; evaluation: Evaluation },
  clock: Clock,
): Promise<void> {
  const { intent, cap } = payment;
  if (!chain.settlement || intent.blind || !isPassing(evaluation) || tools.signal?.aborted) return;
  try {
    if (!(await tools.retries.takeDue(cap, clock.now()))) return;
    if ((await tools.rail.head({ network: intent.quote.network })).time >= intent.valid_before) return;
    const { evaluation: repeated, watched } = await sendProofOnce(tools, payment, clock);
    tools.metrics.count("touchstone_observe_retries_total", { watched: `${watched}` });
    if (!watched) return;
    const retried = classifyRetry(repeated, evaluation.response_sha256);
    const body: BodyOf<"paid.followup"> = { of: payment.eventId, kind: "retried", retried };
    await tools.recorder.append([createFollowupRow(cap, body, clock.now())]);
  } catch (error) {
    if (error instanceof NotConfirmed) throw error;
    tools.logger.warn({ err: error, intent: payment.eventId }, "a proof could not be shown once more");
  }
}
