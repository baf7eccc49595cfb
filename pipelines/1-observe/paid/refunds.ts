import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import { forEachConcurrent } from "../../../infra/concurrency.ts";
import { type AsOf, completeUpTo, type Rail, type Settlement } from "../../../infra/rails/rails.ts";
import { params } from "../../3-grade/params.ts";
import { MAX_UNDELIVERED, type Memory, type OpenIntent } from "../../record/memory.ts";
import { hostOf } from "../../record/url.ts";
import { factTime, followupRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { settlementOf } from "./payment.ts";

/** A payment that settled and for which no answer came. */
interface Undelivered {
  of: Pick<OpenIntent, "eventId" | "cap" | "intent">;
  seen: Settlement;
  /** First block that was not searched for a refund yet. */
  since: number;
  /** How many looks searched for its refund. */
  looks: number;
  /** Number of the look that searches next. */
  due: number;
}

/** The Transfer that a refund was recorded for, and its payee and wallet. */
interface Claim {
  tx: string;
  pair: string;
}

/**
 * The newest blocks in one look. Each chain is asked once; one that does not answer is left alone until the next look.
 */
export class ChainHeads {
  /** Why the first chain that failed could not be asked; null while all answer. */
  down: string | null = null;
  readonly #heads = new Map<string, { number: number; time: number } | null>();

  constructor(private readonly rail: Pick<Rail, "head">) {}

  /** Does none of the chains that were asked answer? */
  get allDown(): boolean {
    return [...this.#heads.values()].every((head) => head === null);
  }

  async of(network: string): Promise<{ number: number; time: number } | null> {
    if (!this.#heads.has(network)) {
      try {
        this.#heads.set(network, await this.rail.head({ network }));
      } catch (error) {
        this.fails(network, (error as Error).message ?? String(error));
      }
    }
    return this.#heads.get(network) ?? null;
  }

  fails(network: string, says: string): void {
    this.#heads.set(network, null);
    this.down ??= says;
  }
}

const pairOf = (payee: string, wallet: string): string => `${payee} ${wallet}`.toLowerCase();

/** Pairs of payee and wallet that one look searches for; the others come first in the next. */
const PAIRS_PER_LOOK = 200;
/** Pairs that are searched for at once. */
const AT_ONCE = 8;
/**
 * After every eighth look without a refund the pause grows by one look: a minute at first, twenty minutes after a day.
 */
const LOOKS_A_STEP = 8;
/** A refund later than the longest window of a grade changes no card any more (chain seconds). */
const REFUND_WITHIN_S = params.window.days_max * 86_400;

/**
 * Looks for refunds: Transfers from payee to wallet after a payment that brought no answer (verification-method.md
 * section 1, "not refunded"). The undelivered payments are read from the record, so any process finds a refund; those
 * of this process are added before the lake has loaded them. A Transfer back counts as the refund of one payment only.
 */
export class Refunds {
  readonly #undelivered = new BoundedMap<string, Undelivered>(MAX_UNDELIVERED);
  /** Event id of an undelivered payment -> the Transfer that this process recorded as its refund. */
  readonly #paidBack = new BoundedMap<string, Claim>(MAX_UNDELIVERED);
  #look = 0;

  constructor(
    private readonly tools: Pick<Tools, "rail" | "recorder" | "logger" | "hosts">,
    private readonly memory: Pick<Memory, "debts">,
  ) {}

  /** Adds a payment of this process that settled and got no answer, not even when its proof was shown again. */
  add(of: Undelivered["of"], seen: Settlement): void {
    if (this.#undelivered.has(of.eventId) || this.#paidBack.has(of.eventId)) return;
    this.#undelivered.set(of.eventId, { of, seen, since: seen.blockNumber, looks: 0, due: 0 });
  }

  /**
   * Searches once for refunds of undelivered payments. A chain that does not answer is asked again by the next look.
   * @returns refunds that were new
   * @throws NotRecorded when the log does not take a refund; the next look finds it again
   */
  async look(clock: Clock, heads: ChainHeads): Promise<number> {
    const { owed, refunds } = await this.memory.debts();
    for (const { seen, ...of } of owed) this.add(of, settlementOf(seen));
    const recorded = refunds.map(
      ({ intent, tx, payee, wallet }) => [intent, { tx, pair: pairOf(payee, wallet) }] as const,
    );
    const booked = new Map<string, Claim>([...recorded, ...this.#paidBack]);
    let found = 0;
    this.#look++;
    const pairs = await this.#pairs(heads);
    await forEachConcurrent(pairs, AT_ONCE, async (payments) => {
      const { seen } = payments[0]!;
      const { network, asset } = seen;
      const pair = pairOf(seen.to, seen.from);
      const claims = [...booked.values()].flatMap((one) => (one.pair === pair ? [one.tx] : []));
      const since = Math.min(...payments.map((payment) => payment.since));
      let read: AsOf<Settlement[]>;
      try {
        read = await this.tools.rail.transfers({ from: seen.to, to: seen.from, sinceBlock: since, network, asset });
      } catch (error) {
        this.tools.logger.warn({ err: error }, "refunds could not be looked for");
        return;
      }
      for (const [payment, refund] of matched(payments, unclaimed(read.value, claims))) {
        const what = { tx: refund.tx, amount_atomic: refund.amountAtomic.toString() };
        const body = { of: payment.of.eventId, kind: "refund" as const, refund: what };
        await this.tools.recorder.append([followupRow(payment.of.cap, body, factTime(payment.of, clock))]);
        this.#paidBack.set(payment.of.eventId, { tx: refund.tx, pair });
        this.#undelivered.delete(payment.of.eventId);
        found++;
      }
      for (const payment of payments) {
        payment.since = Math.max(payment.since, completeUpTo(read) + 1);
        payment.due = this.#look + 1 + Math.floor(++payment.looks / LOOKS_A_STEP);
      }
    });
    return found;
  }

  /**
   * The payments to search for in this look by payee and wallet, oldest first; each pair goes to the end of the line.
   */
  async #pairs(heads: ChainHeads): Promise<Undelivered[][]> {
    const pairs = new Map<string, Undelivered[]>();
    for (const payment of [...this.#undelivered.values()]) {
      const { eventId } = payment.of;
      const { network, asset } = payment.seen;
      const head = await heads.of(network);
      if (!head) continue;
      if (payment.seen.blockTime + REFUND_WITHIN_S < head.time) {
        this.#undelivered.delete(eventId);
        continue;
      }
      if (payment.due > this.#look || !this.tools.hosts.owns(hostOf(payment.of.intent.url))) continue;
      const pair = `${network} ${asset} ${pairOf(payment.seen.to, payment.seen.from)}`;
      if (!pairs.has(pair) && pairs.size >= PAIRS_PER_LOOK) continue;
      pairs.set(pair, [...(pairs.get(pair) ?? []), payment]);
      this.#undelivered.set(eventId, payment);
    }
    return [...pairs.values()].map((payments) => payments.sort((a, b) => a.seen.blockNumber - b.seen.blockNumber));
  }
}

/** Final Transfers that no refund was recorded for. One transaction may hold several between the same two addresses. */
function unclaimed(back: readonly Settlement[], claimed: readonly string[]): Settlement[] {
  const claims = new Map<string, number>();
  for (const tx of claimed) claims.set(tx, (claims.get(tx) ?? 0) + 1);
  return back.filter(({ tx, final }) => {
    const left = claims.get(tx) ?? 0;
    if (left > 0) claims.set(tx, left - 1);
    return left === 0 && final;
  });
}

/** Assigns Transfers to payments: first those of exactly the amount, then larger ones; the oldest payment first. */
function matched(payments: readonly Undelivered[], back: readonly Settlement[]): [Undelivered, Settlement][] {
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
