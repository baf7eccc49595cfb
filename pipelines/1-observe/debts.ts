import type { Clock } from "../../infra/clock.ts";
import type { Settlement } from "../../infra/rails/rails.ts";
import type { Memory, OpenIntent } from "../record/memory.ts";
import { BoundedMap } from "./bounded.ts";
import type { Tools } from "./call.ts";
import { eachAtOnce } from "./lane.ts";
import { factTime, followupRow } from "./rows.ts";
import { settlementOf } from "./settle.ts";

/** One payment that settled and brought nothing. */
interface Debt {
  of: Pick<OpenIntent, "eventId" | "cap" | "intent">;
  seen: Settlement;
  /** First block that was not looked at yet. */
  since: number;
}

const MAX_DEBTS = 10_000;
/** Pairs of payee and wallet that are looked at in one sweep, and at once; the others come first in the next. */
const PAIRS_PER_SWEEP = 200;
const AT_ONCE = 8;
/** Blocks looked at again: what was not final then may be now, or stand in another block. */
const OVERLAP_BLOCKS = 300;
/** A refund later than the longest window counts for no card any more (chain seconds). */
const REFUND_WITHIN_S = 90 * 86_400;

/**
 * Money that went for nothing, and Transfers back (grading-method.md section 1: "not refunded"). What is owed is a fold
 * over the record, so a refund is seen by whichever process looks next; this one's own calls are known here before the
 * record is loaded. A Transfer back counts for one debt, whoever booked it.
 */
export class Debts {
  readonly #owed = new BoundedMap<string, Debt>(MAX_DEBTS);
  /** Event id of a debt -> Transfer by which this process booked it as paid back. */
  readonly #paidBack = new BoundedMap<string, string>(MAX_DEBTS);

  constructor(
    private readonly tools: Pick<Tools, "rail" | "recorder" | "logger">,
    private readonly memory: Pick<Memory, "debts">,
  ) {}

  /** A payment of this process that settled, and nothing came, also when the proof was shown again. */
  owe(of: Debt["of"], seen: Settlement): void {
    if (this.#owed.has(of.eventId) || this.#paidBack.has(of.eventId)) return;
    this.#owed.set(of.eventId, { of, seen, since: seen.blockNumber });
  }

  /**
   * One look at what is owed; returns how many refunds were new. A chain that does not answer is asked again by the
   * next look.
   * @throws NotRecorded when the log does not take a refund; it is found again
   */
  async look(clock: Clock, head: { number: number; time: number }): Promise<number> {
    const { owed, refunds } = await this.memory.debts();
    for (const { seen, ...of } of owed) this.owe(of, settlementOf(seen));
    const booked = new Map([...refunds.map(({ intent, tx }) => [intent, tx] as const), ...this.#paidBack.entries()]);
    let found = 0;
    await eachAtOnce(this.#pairs(head.time), AT_ONCE, async (debts) => {
      const { seen } = debts[0]!;
      const since = Math.min(...debts.map((debt) => debt.since));
      let back: Settlement[];
      try {
        back = await this.tools.rail.transfers({ from: seen.to, to: seen.from, sinceBlock: since });
      } catch (error) {
        this.tools.logger.warn({ err: error }, "refunds could not be looked for");
        return;
      }
      for (const [debt, refund] of matched(debts, unclaimed(back, booked))) {
        const what = { tx: refund.tx, amount_atomic: refund.amountAtomic.toString() };
        const body = { of: debt.of.eventId, kind: "refund" as const, refund: what };
        await this.tools.recorder.append([followupRow(debt.of.cap, body, factTime(debt.of, clock))]);
        this.#paidBack.set(debt.of.eventId, refund.tx);
        this.#owed.delete(debt.of.eventId);
        found++;
      }
      for (const debt of debts) debt.since = Math.max(debt.since, head.number - OVERLAP_BLOCKS);
    });
    return found;
  }

  /** The debts of this look by payee and wallet, oldest first; they go to the end of the line. */
  #pairs(now: number): Debt[][] {
    const pairs = new Map<string, Debt[]>();
    for (const debt of this.#owed.values()) {
      const { eventId } = debt.of;
      if (debt.seen.blockTime + REFUND_WITHIN_S < now) {
        this.#owed.delete(eventId);
        continue;
      }
      const pair = `${debt.seen.to} ${debt.seen.from}`;
      if (!pairs.has(pair) && pairs.size >= PAIRS_PER_SWEEP) continue;
      pairs.set(pair, [...(pairs.get(pair) ?? []), debt]);
      this.#owed.set(eventId, debt);
    }
    return [...pairs.values()].map((debts) => debts.sort((a, b) => a.seen.blockNumber - b.seen.blockNumber));
  }
}

/** Final Transfers that no refund in the record stands on. One transaction may hold several. */
function unclaimed(back: readonly Settlement[], booked: ReadonlyMap<string, string>): Settlement[] {
  const claims = new Map<string, number>();
  for (const tx of booked.values()) claims.set(tx, (claims.get(tx) ?? 0) + 1);
  return back.filter(({ tx, final }) => {
    const left = claims.get(tx) ?? 0;
    if (left > 0) claims.set(tx, left - 1);
    return left === 0 && final;
  });
}

/** Which Transfer pays which debt back: one of the very amount before one of more, the oldest debt first. */
function matched(debts: readonly Debt[], back: readonly Settlement[]): [Debt, Settlement][] {
  const pairs = new Map<Debt, Settlement>();
  const free = new Set(back);
  for (const fits of [(one: bigint, owed: bigint) => one === owed, (one: bigint, owed: bigint) => one >= owed]) {
    for (const debt of debts.filter((one) => !pairs.has(one))) {
      const { blockNumber, amountAtomic } = debt.seen;
      const refund = [...free].find((one) => one.blockNumber >= blockNumber && fits(one.amountAtomic, amountAtomic));
      if (!refund) continue;
      pairs.set(debt, refund);
      free.delete(refund);
    }
  }
  return [...pairs];
}
