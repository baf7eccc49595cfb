import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import { isFinallyExpired, networksOf, type Settlement } from "../../../infra/rails/rails.ts";
import type { Memory, OpenIntent } from "../../record/memory.ts";
import { hostOf } from "../../record/url.ts";
import type { Draft } from "../recorder.ts";
import { createFollowupRow, createLostRow, createSettlementRow, factTime } from "../rows.ts";
import type { Tools } from "../tools.ts";
import type { PaidEnd } from "./paid.ts";
import { lookUp, type Payment, settlementOf, showAgain } from "./payment.ts";
import { ChainHeads, Refunds } from "./refunds.ts";

/** A payment that may still settle or become final. */
interface Waiting {
  of: Pick<OpenIntent, "eventId" | "cap" | "intent">;
  /** The Transfer, once it was seen and recorded; it may not be final yet. */
  seen: Settlement | null;
  /** Set while this process can send the proof again, for which it needs the request and the known answer. */
  payment: Payment | null;
}

/**
 * Where observers share the work: for this long after a call's deadline another observer may still be making the call,
 * ms.
 */
const OTHERS_GRACE_MS = 300_000;
/**
 * Chain seconds after `valid_before` until which we still wait for the Transfer, since we may see an older block late.
 */
const EXPIRY_MARGIN_S = 60;
const MAX_WAITING = 10_000;
/** Most payments that are looked up in one run; the others wait for the next run. */
const MAX_PER_LOOK = 500;

export interface ReconcileReport {
  settled: number;
  /** Payments without an answer that were paid back. */
  refunded: number;
  /** Payments that are still open after this run. */
  waiting: number;
  /** Why a chain could not be read, or null. Its payments wait for the next run. */
  down: string | null;
}

/**
 * Follows payments after their calls have ended: settlements that come late, become final, or are paid back. A seller
 * may settle at any time before `validBefore`, so without this it could take the money unnoticed after the call.
 * Payments of this process are kept in memory; those of earlier processes are read from the record.
 */
export class Reconciler {
  readonly #waiting = new BoundedMap<string, Waiting>(MAX_WAITING);
  readonly #closed = new BoundedMap<string, true>(MAX_WAITING * 10);
  #running: Promise<ReconcileReport> | null = null;
  readonly #refunds: Refunds;

  constructor(
    private readonly tools: Tools,
    private readonly memory: Pick<Memory, "openIntents" | "awaitingSettlement" | "debts">,
  ) {
    this.#refunds = new Refunds(tools, memory);
  }

  /** Takes over the payment of a paid call that has ended. */
  take(open: NonNullable<PaidEnd["open"]>): void {
    const { payment, chain, delivered, excused } = open;
    const payable = delivered || excused ? null : payment;
    if (!chain.seen?.final) this.#waiting.set(payment.eventId, { of: payment, seen: chain.seen, payment: payable });
    else this.#closed.set(payment.eventId, true);
    if (chain.seen && payable) this.#refunds.add(payment, chain.seen);
  }

  /**
   * At the start: records a result with fault `ours` for every intent without a result, since nobody watched the end of
   * its call. The chain is read first, so that a settlement is recorded in the same append; if the chain is down, a
   * later run records it. Repeating it is safe, since the record ids are equal.
   */
  async recover(clock: Clock): Promise<{ lost: number }> {
    let lost = 0;
    for (const of of await this.memory.openIntents()) {
      if (this.tools.inFlight.has(of.eventId) || !this.#isOurs(of) || this.#isUnderWay(of, clock)) continue;
      const { seen } = await lookUp(this.tools.rail, of.intent);
      const says = "our process ended before the connection did; nobody watched its end";
      const at = factTime(of, clock);
      const rows: Draft[] = [createLostRow(of, at, says)];
      if (seen) rows.push(createSettlementRow(of, seen, at));
      await this.tools.recorder.append(rows);
      if (seen?.final) this.#closed.set(of.eventId, true);
      else this.#waiting.set(of.eventId, { of, seen, payment: null });
      lost++;
    }
    if (lost > 0) this.tools.logger.warn({ lost }, "paid calls of an earlier process were booked as our own fault");
    return { lost };
  }

  /**
   * Looks up every waiting payment once. Call it about every minute. A call during a run gets the report of that run.
   */
  run(clock: Clock): Promise<ReconcileReport> {
    this.#running ??= this.#lookOnce(clock).finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #lookOnce(clock: Clock): Promise<ReconcileReport> {
    const { rail } = this.tools;
    const heads = new ChainHeads(rail);
    await Promise.all(networksOf(rail).map((network) => heads.head(network)));
    if (heads.allDown) return { settled: 0, refunded: 0, waiting: this.#waiting.size, down: heads.down };
    // Where observers share the work: the observer that now has the hosts of one that died records its open intents.
    if (this.tools.firsts) await this.recover(clock);
    for (const { seen, ...of } of await this.memory.awaitingSettlement()) {
      if (!this.#isOurs(of)) continue;
      const known =
        this.#closed.has(of.eventId) || this.#waiting.has(of.eventId) || this.tools.inFlight.has(of.eventId);
      if (!known) this.#waiting.set(of.eventId, { of, seen: seen && settlementOf(seen), payment: null });
    }
    let settled = 0;
    for (const one of this.#waiting.values()) if (!this.#isOurs(one.of)) this.#waiting.delete(one.of.eventId);
    for (const one of [...this.#waiting.values()].slice(0, MAX_PER_LOOK)) {
      const { network } = one.of.intent.quote;
      const isUp = (await heads.head(network)) !== null;
      const view = isUp ? await lookUp(rail, one.of.intent) : { seen: null, down: heads.down };
      const { seen, asOf } = view;
      if (!asOf) {
        heads.markDown(network, view.down ?? "");
        // The chain did not answer. The payment moves to the end of the queue, so that payments on other chains are
        // looked up.
        this.#waiting.set(one.of.eventId, one);
      } else if (seen) settled += await this.#recordNews(one, seen, clock);
      else if (isFinallyExpired(asOf, one.of.intent.valid_before, EXPIRY_MARGIN_S)) this.#close(one);
      // The payment moves to the end of the queue, so that the next run begins with payments that this run did not
      // reach.
      else this.#waiting.set(one.of.eventId, one);
    }
    const refunded = await this.#refunds.look(clock, heads);
    return { settled, refunded, waiting: this.#waiting.size, down: heads.down };
  }

  /** Is the payment's host assigned to this observer? Other observers follow payments to their own hosts. */
  #isOurs({ intent }: Waiting["of"]): boolean {
    return this.tools.hosts.owns(hostOf(intent.url));
  }

  #isUnderWay({ intent }: Waiting["of"], clock: Clock): boolean {
    return !!this.tools.firsts && clock.now().getTime() < Date.parse(intent.deadline) + OTHERS_GRACE_MS;
  }

  #close(one: Waiting): void {
    this.#waiting.delete(one.of.eventId);
    this.#closed.set(one.of.eventId, true);
  }

  /** Records a new Transfer or its finality. @returns 1 when the Transfer was seen for the first time, else 0 */
  async #recordNews(one: Waiting, seen: Settlement, clock: Clock): Promise<0 | 1> {
    const first = one.seen === null;
    const now = factTime(one.of, clock);
    if (first) await this.tools.recorder.append([createSettlementRow(one.of, seen, now)]);
    else if (seen.final) {
      await this.tools.recorder.append([createFollowupRow(one.of.cap, { of: one.of.eventId, kind: "finality" }, now)]);
    }
    const { payment } = one;
    one.seen = seen;
    one.payment = null;
    if (seen.final) this.#close(one);
    else this.#waiting.set(one.of.eventId, one);
    // The payment settled after the call had ended without an answer, so the proof is sent again now.
    if (first && payment) {
      const shown = await showAgain(this.tools, payment, clock);
      if (!shown.delivered) this.#refunds.add(one.of, seen);
    }
    return first ? 1 : 0;
  }
}
