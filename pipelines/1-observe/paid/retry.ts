import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { BodyOf } from "../../record/bodies.ts";
import type { Memory } from "../../record/memory.ts";
import { DAY_MS, rfc3339 } from "../../record/time.ts";
import { passes } from "../plan/steps.ts";
import type { Evaluation } from "../reading/checks.ts";
import { NotRecorded } from "../recorder.ts";
import { followupRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { type ChainView, type Payment, retriedAs, showOnce } from "./payment.ts";

/** Least pause between two measurements of one endpoint, ms of the record's time. */
const EVERY_MS = 7 * DAY_MS;
const MAX_REMEMBERED = 100_000;

/** Decides which endpoints are asked for a retry: each at most once a week, whatever came of it. */
export class Retries {
  /** Endpoint -> when this process last showed its proof again, unix ms: the lake may not have loaded that yet. */
  readonly #shown = new BoundedMap<string, number>(MAX_REMEMBERED);

  constructor(private readonly memory: Pick<Memory, "retriedSince">) {}

  /** Is the endpoint due? If so, its turn is taken, and the next one is in a week. */
  async take(cap: string, now: Date): Promise<boolean> {
    const since = now.getTime() - EVERY_MS;
    const last = this.#shown.get(cap);
    if (last !== undefined && last > since) return false;
    if (await this.memory.retriedSince(cap, rfc3339(new Date(since)))) return false;
    this.#shown.set(cap, now.getTime());
    return true;
  }
}

/**
 * For a call that settled and passed: shows its proof once more, as a buyer would whose connection broke before the
 * answer came. It costs nothing: nothing is signed, and the token moves money under one nonce only once. The result is
 * a fact of its own beside the grade: it is no sample and no probe, and no card is made from it.
 *
 * Only wallets that sellers know show a proof twice, since a blind wallet would give itself away. It is shown only
 * while the authorization is valid, since a seller may refuse an old one by its date alone.
 * @throws NotRecorded; any other error is our own and leaves no fact
 */
export async function measureRetry(
  tools: Tools,
  payment: Payment,
  { chain, evaluation }: { chain: ChainView; evaluation: Evaluation },
  clock: Clock,
): Promise<void> {
  const { intent, cap } = payment;
  if (!chain.seen || intent.blind || !passes(evaluation) || tools.signal?.aborted) return;
  try {
    if (!(await tools.retries.take(cap, clock.now()))) return;
    if ((await tools.rail.head({ network: intent.quote.network })).time >= intent.valid_before) return;
    const { came, watched } = await showOnce(tools, payment, clock);
    tools.metrics.count("touchstone_observe_retries_total", { watched: `${watched}` });
    if (!watched) return;
    const retried = retriedAs(came, evaluation.response_sha256);
    const body: BodyOf<"paid.followup"> = { of: payment.eventId, kind: "retried", retried };
    await tools.recorder.append([followupRow(cap, body, clock.now())]);
  } catch (error) {
    if (error instanceof NotRecorded) throw error;
    tools.logger.warn({ err: error, intent: payment.eventId }, "a proof could not be shown once more");
  }
}
