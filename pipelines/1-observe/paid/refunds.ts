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

/** A payment that settled and for which no answer was received. */
interface Undelivered {
  intentRecord: Pick<OpenIntent, "eventId" | "cap" | "intent">;
  /** The Transfer (the payment on the chain). */
  settlement: Settlement;
  /** First block that was not yet searched for a refund. */
  nextBlock: number;
  /** Number of searches for a refund of this payment so far. */
  searches: number;
  /** Number of the search (see `#searchNumber`) in which the payment is searched again. */
  dueSearch: number;
}

/** A Transfer that is already recorded as a refund. `pair`: the payee that sent it and our wallet that got it. */
interface RefundClaim {
  tx: string;
  pair: string;
}

/**
 * The newest block of each chain during one run. Each chain is read once. A chain that does not answer is skipped until
 * the next run.
 */
export class ChainHeads {
  /** Why the first chain that failed could not be read; null while all chains answer. */
  firstError: string | null = null;
  /** Newest block by network; null if the chain did not answer. */
  readonly #heads = new Map<string, { number: number; time: number } | null>();

  constructor(private readonly rail: Pick<Rail, "head">) {}

  /** True if no chain that was read so far answered, and also if none was read yet. False if one answered. */
  get isEveryChainDown(): boolean {
    return [...this.#heads.values()].every((head) => head === null);
  }

  /** Returns the newest block of a chain, with its time in unix seconds; null if the chain does not answer. */
  async getHead(network: string): Promise<{ number: number; time: number } | null> {
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
    this.firstError ??= says;
  }
}

const pairKey = (payee: string, wallet: string): string => `${payee} ${wallet}`.toLowerCase();

/** Largest number of pairs of payee and wallet in one search. The other pairs are first in the next search. */
const PAIRS_PER_SEARCH = 200;
/** Largest number of pairs that are searched at once. */
const MAX_PAIRS_AT_ONCE = 8;
/**
 * Number of searches without a refund after which the pause before a payment's next search grows by one run of the
 * reconciler (about a minute). The pause is a minute at first, and twenty minutes after a day.
 */
const SEARCHES_PER_PAUSE_STEP = 8;
/**
 * Refunds are searched for this long after the payment, seconds of chain time. A later refund is outside the window
 * of grading.
 */
const MAX_REFUND_AGE_S = params.window.days_max * 86_400;

/**
 * Searches for refunds: Transfers from the payee to our wallet after a payment that got no answer
 * (verification-method.md section 1, "not refunded"). The payments are read from the record, so that any process
 * finds a refund; payments of this process are added before the lake (the database of the log's rows) has loaded
 * them. A Transfer counts as the refund of only one payment.
 */
export class Refunds {
  /** Payments that are not refunded yet, by event id of the intent, in the order in which they are searched. */
  readonly #undelivered = new BoundedMap<string, Undelivered>(MAX_UNDELIVERED);
  /** The Transfer that this process recorded as a refund, by event id of the refunded payment. */
  readonly #refunded = new BoundedMap<string, RefundClaim>(MAX_UNDELIVERED);
  /** Number of searches that this process has begun. */
  #searchNumber = 0;

  constructor(
    private readonly tools: Pick<Tools, "rail" | "recorder" | "logger" | "hosts">,
    private readonly memory: Pick<Memory, "readDebts">,
  ) {}

  /**
   * Adds a payment of this process that settled and for which no answer was received, not even after its proof was sent
   * again.
   */
  add(intentRecord: Undelivered["intentRecord"], settlement: Settlement): void {
    if (this.#undelivered.has(intentRecord.eventId) || this.#refunded.has(intentRecord.eventId)) return;
    this.#undelivered.set(intentRecord.eventId, {
      intentRecord,
      settlement,
      nextBlock: settlement.blockNumber,
      searches: 0,
      dueSearch: 0,
    });
  }

  /**
   * Searches once for refunds of payments without an answer. A chain that does not answer is read again in the next
   * search.
   * @returns number of new refunds
   * @throws NotConfirmed when the log does not confirm a refund's record; the next search finds the refund again
   */
  async search(clock: Clock, heads: ChainHeads): Promise<number> {
    const { owed, refunds } = await this.memory.readDebts();
    for (const { seen, ...intentRecord } of owed) this.add(intentRecord, settlementOf(seen));
    const recordedClaims = refunds.map(
      ({ intent, tx, payee, wallet }) => [intent, { tx, pair: pairKey(payee, wallet) }] as const,
    );
    const recordedRefunds = new Map<string, RefundClaim>([...recordedClaims, ...this.#refunded]);
    let foundCount = 0;
    this.#searchNumber++;
    const pairs = await this.#selectDuePairs(heads);
    await forEachConcurrent(pairs, MAX_PAIRS_AT_ONCE, async (payments) => {
      const { settlement } = payments[0]!;
      const { network, asset } = settlement;
      const pair = pairKey(settlement.to, settlement.from);
      const claimedTxs = [...recordedRefunds.values()].flatMap((one) => (one.pair === pair ? [one.tx] : []));
      const sinceBlock = Math.min(...payments.map((payment) => payment.nextBlock));
      let transfers: AsOf<Settlement[]>;
      try {
        transfers = await this.tools.rail.transfers({
          from: settlement.to,
          to: settlement.from,
          sinceBlock,
          network,
          asset,
        });
      } catch (error) {
        this.tools.logger.warn({ err: error }, "refunds could not be looked for");
        return;
      }
      for (const [payment, refund] of matchRefunds(payments, findUnclaimed(transfers.value, claimedTxs))) {
        const refundMembers = { tx: refund.tx, amount_atomic: refund.amountAtomic.toString() };
        const body = { of: payment.intentRecord.eventId, kind: "refund" as const, refund: refundMembers };
        await this.tools.recorder.append([
          createFollowupRow(payment.intentRecord.cap, body, factTime(payment.intentRecord, clock)),
        ]);
        this.#refunded.set(payment.intentRecord.eventId, { tx: refund.tx, pair });
        this.#undelivered.delete(payment.intentRecord.eventId);
        foundCount++;
      }
      for (const payment of payments) {
        payment.nextBlock = Math.max(payment.nextBlock, completeUpTo(transfers) + 1);
        payment.dueSearch = this.#searchNumber + 1 + Math.floor(++payment.searches / SEARCHES_PER_PAUSE_STEP);
      }
    });
    return foundCount;
  }

  /**
   * Selects the payments to search for now, grouped by payee and wallet, oldest first. Selected pairs move to the end
   * of the queue.
   */
  async #selectDuePairs(heads: ChainHeads): Promise<Undelivered[][]> {
    const pairs = new Map<string, Undelivered[]>();
    for (const payment of [...this.#undelivered.values()]) {
      const { eventId } = payment.intentRecord;
      const { network, asset } = payment.settlement;
      const head = await heads.getHead(network);
      if (!head) continue;
      if (payment.settlement.blockTime + MAX_REFUND_AGE_S < head.time) {
        this.#undelivered.delete(eventId);
        continue;
      }
      if (payment.dueSearch > this.#searchNumber || !this.tools.hosts.owns(hostOf(payment.intentRecord.intent.url)))
        continue;
      const pair = `${network} ${asset} ${pairKey(payment.settlement.to, payment.settlement.from)}`;
      if (!pairs.has(pair) && pairs.size >= PAIRS_PER_SEARCH) continue;
      pairs.set(pair, [...(pairs.get(pair) ?? []), payment]);
      this.#undelivered.set(eventId, payment);
    }
    return [...pairs.values()].map((payments) =>
      payments.sort((a, b) => a.settlement.blockNumber - b.settlement.blockNumber),
    );
  }
}

/**
 * Returns the final Transfers that are not yet recorded as refunds. One transaction may have several Transfers between
 * two addresses.
 */
function findUnclaimed(transfers: readonly Settlement[], claimedTxs: readonly string[]): Settlement[] {
  const timesClaimed = new Map<string, number>();
  for (const tx of claimedTxs) timesClaimed.set(tx, (timesClaimed.get(tx) ?? 0) + 1);
  return transfers.filter(({ tx, final }) => {
    const remaining = timesClaimed.get(tx) ?? 0;
    if (remaining > 0) timesClaimed.set(tx, remaining - 1);
    return remaining === 0 && final;
  });
}

/**
 * Assigns Transfers to payments: first Transfers of exactly the paid amount, then larger ones; the oldest payment
 * first.
 */
function matchRefunds(payments: readonly Undelivered[], transfers: readonly Settlement[]): [Undelivered, Settlement][] {
  const pairs = new Map<Undelivered, Settlement>();
  const unmatchedTransfers = new Set(transfers);
  for (const isRepaid of [(one: bigint, owed: bigint) => one === owed, (one: bigint, owed: bigint) => one >= owed]) {
    for (const payment of payments.filter((one) => !pairs.has(one))) {
      const { blockNumber, amountAtomic } = payment.settlement;
      const refund = [...unmatchedTransfers].find(
        (one) => one.blockNumber >= blockNumber && isRepaid(one.amountAtomic, amountAtomic),
      );
      if (!refund) continue;
      pairs.set(payment, refund);
      unmatchedTransfers.delete(refund);
    }
  }
  return [...pairs];
}
