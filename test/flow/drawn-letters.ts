import { BLOCKS_BEFORE_DAILY, drawCalls } from "../../pipelines/1-observe/plan/plan.ts";
import {
  BLOCKS_PER_DAY,
  callsInBlock,
  isPassing,
  nextRetestState,
  type RetestState,
  timeOfMinute,
} from "../../pipelines/1-observe/plan/steps.ts";
import { bandToPublish } from "../../pipelines/3-grade/hold.ts";
import { gradeRows } from "../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../pipelines/3-grade/related.ts";
import type { Sample } from "../../pipelines/3-grade/sample.ts";
import { whyText } from "../../pipelines/3-grade/why.ts";
import type { PlanLine } from "../../pipelines/record/plan.ts";
import { addDays, blockOf, dayOf, dayStart } from "../../pipelines/record/time.ts";
import type { Band, Flag } from "../../pipelines/record/vocabulary.ts";
import type { Model } from "./models.ts";

/** The simulated past leaves the last quarter of an hour alone (commands/simulated-past.ts). */
const LEEWAY_MS = 900_000;

/** What a seller of the market ends with under one sequence of random numbers. */
export interface Fate {
  band: Band;
  tier: string;
  why: string;
  flags: readonly Flag[];
  /** What every day would have published, in order: a card that stands may be a week old. */
  days: { band: Band; why: string; lower: number | null }[];
}

/** One seller's calls and what came of them, on the days until `end`: the plan's own rules, over drawn bytes. */
function* observed(
  model: Model,
  days: number,
  end: Date,
  draw: () => number,
): Generator<{ day: string; rows: Sample[] }> {
  const behaviour = model.open();
  let state: RetestState = { failing: false, passes: 0, lastPaidBlock: null };
  let paidBlocks = 0;
  let serial = 0;
  const until = new Date(end.getTime() - LEEWAY_MS);
  for (let n = days - 1; n >= 0; n--) {
    const day = addDays(dayOf(end), -n);
    const first = blockOf(dayStart(day));
    const base = paidBlocks < BLOCKS_BEFORE_DAILY ? BLOCKS_PER_DAY : 1;
    const bytes = Uint8Array.from({ length: 10 }, () => draw() & 0xff);
    const calls = drawCalls(bytes, first, base, true);
    const line: PlanLine = { cap: "cap_x", host: "x", calls, base_per_day: base, covered: true };
    const rows: Sample[] = [];
    for (let block = first; block < first + BLOCKS_PER_DAY; block++) {
      for (const call of callsInBlock(line, block, state)) {
        const t = timeOfMinute(call.block, call.minute);
        if (t >= until) continue;
        const made = call.kind === "probe" ? behaviour.probe() : behaviour.pay(call.blind);
        rows.push({ ...made, w: call.w, t, obs_id: `rec_${String(++serial).padStart(6, "0")}` });
        if (made.kind !== 1) continue;
        paidBlocks++;
        const { delivered, delivery, outcome } = made;
        state = nextRetestState(state, block, isPassing({ delivered: delivered === true, delivery, outcome }));
      }
    }
    yield { day, rows };
  }
}

/** Live through a seller's days and grade each of them with the pure grader, the hold included. */
export function fateOf(model: Model, end: Date, draw: () => number): Fate {
  const rows: Sample[] = [];
  const letters: { day: string; band: Band }[] = [];
  const days: Fate["days"] = [];
  let last: Fate | null = null;
  for (const { day, rows: more } of observed(model, model.days, end, draw)) {
    rows.push(...more);
    const now = day === dayOf(end) ? end : new Date(dayStart(addDays(day, 1)).getTime() - 1);
    const endpoint = { cap: "cap_x", pay_to: null, domain: null, disputed: false, rows, withdrawn: new Set<string>() };
    const headline = gradeRows(endpoint, new RelatedParties([]), now).cards.find((card) => card.headline)!;
    const { card, raw_band: rawBand, why: parts } = headline;
    const { band, heldUntil } = bandToPublish(letters, day, rawBand);
    letters.push({ day, band: rawBand });
    const why = whyText({ band, rawBand, parts, heldUntil });
    days.push({ band, why, lower: card.components?.correctness.lower ?? null });
    last = { band, tier: card.tier, why, flags: card.flags, days };
  }
  return last!;
}
