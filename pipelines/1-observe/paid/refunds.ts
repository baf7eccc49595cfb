import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import { forEachConcurrent } from "../../../infra/concurrency.ts";
import { type AsOf, completeUpTo, type Rail, type Settlement } from "../../../infra/rails/rails.ts";
import { params } from "../../3-grade/params.ts";
import { MAX_UNDELIVERED, type Memory, type OpenIntent } from "../../record/memory.ts";
import { hostOf } from "../../record/url.ts";
import { createFollowupRow, factTime } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { settlementOf } from "./payment.ts";

/** A payment that settled and got no answer. */
interface Undelivered {
  of: Pick<OpenIntent, "eventId" | "cap" | "intent">;
  seen: Settlement;
  /** First block that was not yet searched for a refund. */
  since: number;
  /** Number of searches for its refund so far. */
  looks: number;
  /** Number of the search (see `#look`) in which the payment is due again. */
  due: number;
}

/** A Transfer that is already recorded as a refund. `pair`: its payee and wallet. */
interface RefundClaim {
  tx: string;
  pair: string;
}

/**
 * The newest block of each chain during one run. Each chain is asked once; a chain that does not answer is skipped
 * until the next run.
 */
export class ChainHeads {
  /** Why the first chain that failed could not be read; null while all chains answer. */
  down: string | null = null;
  readonly #heads = new Map<string, { number: number; time: number } | null>();

  constructor(private readonly rail: Pick<Rail, "head">) {}

  /** Did every chain that was asked fail to answer? */
  get allDown(): boolean {
    return [...this.#heads.values()].every((head) => head === null);
  }

  async head(network: string): Promise<{ number: number; time: number } | null> {
    if (!this.#heads.has(network)) {
      try {
        this.#heads.set(network, await this.rail.head({ network }));
      } catch (error) {
        this.markDown(network, (error as Error).message ?? String(error));
      }
    }
    return this.#heads.get(network) ?? null;
  }

  markDown(network: string, says: string): void {
    this.#heads.set(network, null);
    this.down ??= says;
  }
}

const pairKey = (payee: string, wallet: string): string => `${payee} ${wallet}`.toLowerCase();

/** Most pairs of payee and wallet in one search; the other pairs come first in the next search. */
const PAIRS_PER_LOOK = 200;
/** Most pairs that are searched at once. */
const MAX_PAIRS_AT_ONCE = 8;
/**
 * After every eighth search without a refund the pause grows by one search: a minute at first, twenty minutes after a
 * day.
 */
const LOOKS_PER_STEP = 8;
/**
 * Refunds are searched for this long after the payment, chain seconds: a later one is outside the window of grading.
 */
const REFUND_WITHIN_S = params.window.days_max * 86_400;

/**
 * Looks for refunds: Transfers from the payee to our wallet after a payment that got no answer (verification-method.md
 * section 1, "not refunded"). The payments are read from the record, so that any process finds a refund; payments of
 * this process are added before the lake has loaded them. A Transfer counts as the refund of only one payment.
 */
export class Refunds {
  readonly #undelivered = new BoundedMap<string, Undelivered>(MAX_UNDELIVERED);
  /** Event id of an undelivered payment -> the Transfer that this process recorded as its refund. */
  readonly #refunded = new BoundedMap<string, RefundClaim>(MAX_UNDELIVERED);
  #look = 0;

  constructor(
    private readonly tools: Pick<Tools, "rail" | "recorder" | "logger" | "hosts">,
    private readonly memory: Pick<Memory, "debts">,
  ) {}

  /** Adds a payment of this process that settled and got no answer, also not to repeated requests with its proof. */
  add(of: Undelivered["of"], seen: Settlement): void {
    if (this.#undelivered.has(of.eventId) || this.#refunded.has(of.eventId)) return;
    this.#undelivered.set(of.eventId, { of, seen, since: seen.blockNumber, looks: 0, due: 0 });
  }

  /**
   * Searches once for refunds of payments without an answer. A chain that does not answer is read again in the next
   * search.
   * @returns number of new refunds
   * @throws NotRecorded when the log refuses a refund's record; the next search finds the refund again
   */
  async look(clock: Clock, heads: ChainHeads): Promise<number> {
    const { owed, refunds } = await this.memory.debts();
    for (const { seen, ...of } of owed) this.add(of, settlementOf(seen));
    const recorded = refunds.map(
      ({ intent, tx, payee, wallet }) => [intent, { tx, pair: pairKey(payee, wallet) }] as const,
    );
    const booked = new Map<string, RefundClaim>([...recorded, ...this.#refunded]);
    let found = 0;
    this.#look++;
    const pairs = await this.#pairs(heads);
    await forEachConcurrent(pairs, MAX_PAIRS_AT_ONCE, async (payments) => {
      const { seen } = payments[0]!;
      const { network, asset } = seen;
      const pair = pairKey(seen.to, seen.from);
      const claims = [...booked.values()].flatMap((one) => (one.pair === pair ? [one.tx] : []));
      const since = Math.min(...payments.map((payment) => payment.since));
      let read: AsOf<Settlement[]>;
      try {
        read = await this.tools.rail.transfers({ from: seen.to, to: seen.from, sinceBlock: since, network, asset });
      } catch (error) {
        this.tools.logger.warn({ err: error }, "refunds could not be looked for");
        return;
      }
      for (const [payment, refund] of matchRefunds(payments, findUnclaimed(read.value, claims))) {
        const refundMembers = { tx: refund.tx, amount_atomic: refund.amountAtomic.toString() };
        const body = { of: payment.of.eventId, kind: "refund" as const, refund: refundMembers };
        await this.tools.recorder.append([createFollowupRow(payment.of.cap, body, factTime(payment.of, clock))]);
        this.#refunded.set(payment.of.eventId, { tx: refund.tx, pair });
        this.#undelivered.delete(payment.of.eventId);
        found++;
      }
      for (const payment of payments) {
        payment.since = Math.max(payment.since, completeUpTo(read) + 1);
        payment.due = this.#look + 1 + Math.floor(++payment.looks / LOOKS_PER_STEP);
      }
    });
    return found;
  }

  /**
   * Selects the payments to search for now, grouped by payee and wallet, oldest first. Selected pairs move to the end
   * of the queue.
   */
  async #pairs(heads: ChainHeads): Promise<Undelivered[][]> {
    const pairs = new Map<string, Undelivered[]>();
    for (const payment of [...this.#undelivered.values()]) {
      const { eventId } = payment.of;
      const { network, asset } = payment.seen;
      const head = await heads.head(network);
      if (!head) continue;
      if (payment.seen.blockTime + REFUND_WITHIN_S < head.time) {
        this.#undelivered.delete(eventId);
        continue;
      }
      if (payment.due > this.#look || !this.tools.hosts.owns(hostOf(payment.of.intent.url))) continue;
      const pair = `${network} ${asset} ${pairKey(payment.seen.to, payment.seen.from)}`;
      if (!pairs.has(pair) && pairs.size >= PAIRS_PER_LOOK) continue;
      pairs.set(pair, [...(pairs.get(pair) ?? []), payment]);
      this.#undelivered.set(eventId, payment);
    }
    return [...pairs.values()].map((payments) => payments.sort((a, b) => a.seen.blockNumber - b.seen.blockNumber));
  }
}

/**
 * Final Transfers that are not yet recorded as refunds. One transaction may have several Transfers between two
 * addresses.
 */
function findUnclaimed(back: readonly Settlement[], claimed: readonly string[]): Settlement[] {
  const claims = new Map<string, number>();
  for (const tx of claimed) claims.set(tx, (claims.get(tx) ?? 0) + 1);
  return back.filter(({ tx, final }) => {
    const left = claims.get(tx) ?? 0;
    if (left > 0) claims.set(tx, left - 1);
    return left === 0 && final;
  });
}

/**
 * Assigns Transfers to payments: first Transfers of exactly the paid amount, then larger ones; the oldest payment
 * first.
 */
function matchRefunds(payments: readonly Undelivered[], back: readonly Settlement[]): [Undelivered, Settlement][] {
  const pairs = new Map<Undelivered, Settlement>();
  const free = new Set(back);
  for (const fits of [(one: bigint, owed: bigint) => one === owed, (one: bigint, owed: bigint) => one >= owed]) {
    for (const payment of payments.filter((one) => !pairs.has(one))) {
      const { blockNumber, amountAtomic } = payment.seen;
      const refund = [...free].find((one) => one.blockNumber >= blockNumber && fits(one.amountAtomic, amountAtomic));
      if (!refund) continue;
      pairs.set(payment, refund);
      free.delete(refund);
    }
  }
  return [...pairs];
}
