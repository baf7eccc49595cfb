import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import { isFinallyExpired, networksOf, type Settlement } from "../../../infra/rails/rails.ts";
import type { Memory, OpenIntent } from "../../record/memory.ts";
import { hostOf } from "../../record/url.ts";
import type { Draft } from "../recorder.ts";
import { createFollowupRow, createLostRow, createSettlementRow, factTime } from "../rows.ts";
import type { Tools } from "../tools.ts";
import type { PaidCallResult } from "./paid.ts";
import { findSettlement, type Payment, resendProof, settlementOf } from "./payment.ts";
import { ChainHeads, Refunds } from "./refunds.ts";

/** A payment that may still settle or become final. */
interface OpenPayment {
  intentRecord: Pick<OpenIntent, "eventId" | "cap" | "intent">;
  /** The Transfer, once it was seen and recorded; it may not be final yet. */
  settlement: Settlement | null;
  /** Set if this process can send the proof again, which needs the request and the known answer. */
  payment: Payment | null;
}

/**
 * When observers share the work: time after a call's deadline in which another observer may still be making the call,
 * ms.
 */
const OTHER_OBSERVERS_GRACE_MS = 300_000;
/**
 * Time after `valid_before` in which the Transfer is still searched, chain seconds, since a node may return an older
 * block late.
 */
const EXPIRY_MARGIN_S = 60;
const MAX_WAITING = 10_000;
/** Most payments that are searched on the chain in one run; the others wait for the next run. */
const MAX_PER_RUN = 500;

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
 * Follows payments after their calls have ended: records late settlements, finality, and refunds. A seller may settle
 * at any time before `validBefore`, so without this it could take the money unnoticed after the call. Payments of this
 * process are kept in memory; those of earlier processes are read from the record.
 */
export class Reconciler {
  readonly #open = new BoundedMap<string, OpenPayment>(MAX_WAITING);
  readonly #closed = new BoundedMap<string, true>(MAX_WAITING * 10);
  #running: Promise<ReconcileReport> | null = null;
  readonly #refunds: Refunds;

  constructor(
    private readonly tools: Tools,
    private readonly memory: Pick<Memory, "openIntents" | "awaitingSettlement" | "readDebts">,
  ) {
    this.#refunds = new Refunds(tools, memory);
  }

  /** Takes over the payment of a paid call that has ended. */
  takeOver(openPayment: NonNullable<PaidCallResult["openPayment"]>): void {
    const { payment, chain, delivered, excused } = openPayment;
    const resendable = delivered || excused ? null : payment;
    if (!chain.settlement?.final)
      this.#open.set(payment.eventId, { intentRecord: payment, settlement: chain.settlement, payment: resendable });
    else this.#closed.set(payment.eventId, true);
    if (chain.settlement && resendable) this.#refunds.add(payment, chain.settlement);
  }

  /**
   * Records a result with fault `ours` for every intent without a result, since no process observed the end of its
   * call. It runs at the start. The chain is read first, so that a settlement is recorded in the same append; if the
   * chain is down, a later run records it. Repeating it is safe, since the record ids are equal.
   */
  async recover(clock: Clock): Promise<{ lost: number }> {
    let lost = 0;
    for (const of of await this.memory.openIntents()) {
      if (this.tools.inFlight.has(of.eventId) || !this.#isOurs(of) || this.#mayBeRunningElsewhere(of, clock)) continue;
      const { settlement: seen } = await findSettlement(this.tools.rail, of.intent);
      const says = "our process ended before the connection did; nobody watched its end";
      const at = factTime(of, clock);
      const rows: Draft[] = [createLostRow(of, at, says)];
      if (seen) rows.push(createSettlementRow(of, seen, at));
      await this.tools.recorder.append(rows);
      if (seen?.final) this.#closed.set(of.eventId, true);
      else this.#open.set(of.eventId, { intentRecord: of, settlement: seen, payment: null });
      lost++;
    }
    if (lost > 0) this.tools.logger.warn({ lost }, "paid calls of an earlier process were booked as our own fault");
    return { lost };
  }

  /**
   * Searches the chain once for every open payment. Call it about every minute. A call during a run returns the report
   * of that run.
   */
  run(clock: Clock): Promise<ReconcileReport> {
    this.#running ??= this.#reconcileOnce(clock).finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #reconcileOnce(clock: Clock): Promise<ReconcileReport> {
    const { rail } = this.tools;
    const heads = new ChainHeads(rail);
    await Promise.all(networksOf(rail).map((network) => heads.getHead(network)));
    if (heads.isEveryChainDown) return { settled: 0, refunded: 0, waiting: this.#open.size, down: heads.firstError };
    // When observers share the work, the observer that took over the hosts of a dead observer records the dead
    // observer's open intents.
    if (this.tools.firstIntents) await this.recover(clock);
    for (const { seen, ...of } of await this.memory.awaitingSettlement()) {
      if (!this.#isOurs(of)) continue;
      const known = this.#closed.has(of.eventId) || this.#open.has(of.eventId) || this.tools.inFlight.has(of.eventId);
      if (!known)
        this.#open.set(of.eventId, { intentRecord: of, settlement: seen && settlementOf(seen), payment: null });
    }
    let settled = 0;
    for (const one of this.#open.values())
      if (!this.#isOurs(one.intentRecord)) this.#open.delete(one.intentRecord.eventId);
    for (const one of [...this.#open.values()].slice(0, MAX_PER_RUN)) {
      const { network } = one.intentRecord.intent.quote;
      const isUp = (await heads.getHead(network)) !== null;
      const view = isUp
        ? await findSettlement(rail, one.intentRecord.intent)
        : { settlement: null, chainError: heads.firstError };
      const { settlement: seen, asOf } = view;
      if (!asOf) {
        heads.markDown(network, view.chainError ?? "");
        // The chain did not answer. The payment moves to the end of the queue, so that payments on other chains are
        // looked up.
        this.#open.set(one.intentRecord.eventId, one);
      } else if (seen) settled += await this.#recordTransfer(one, seen, clock);
      else if (isFinallyExpired(asOf, one.intentRecord.intent.valid_before, EXPIRY_MARGIN_S)) this.#close(one);
      // The payment moves to the end of the queue, so that the next run begins with payments that this run did not
      // reach.
      else this.#open.set(one.intentRecord.eventId, one);
    }
    const refunded = await this.#refunds.search(clock, heads);
    return { settled, refunded, waiting: this.#open.size, down: heads.firstError };
  }

  /** Is the payment's host assigned to this observer? Other observers follow payments to their own hosts. */
  #isOurs({ intent }: OpenPayment["intentRecord"]): boolean {
    return this.tools.hosts.owns(hostOf(intent.url));
  }

  #mayBeRunningElsewhere({ intent }: OpenPayment["intentRecord"], clock: Clock): boolean {
    return !!this.tools.firstIntents && clock.now().getTime() < Date.parse(intent.deadline) + OTHER_OBSERVERS_GRACE_MS;
  }

  #close(one: OpenPayment): void {
    this.#open.delete(one.intentRecord.eventId);
    this.#closed.set(one.intentRecord.eventId, true);
  }

  /**
   * Records a Transfer that is new or has become final.
   * @returns 1 when the Transfer was seen for the first time, else 0
   */
  async #recordTransfer(one: OpenPayment, seen: Settlement, clock: Clock): Promise<0 | 1> {
    const first = one.settlement === null;
    const now = factTime(one.intentRecord, clock);
    if (first) await this.tools.recorder.append([createSettlementRow(one.intentRecord, seen, now)]);
    else if (seen.final) {
      await this.tools.recorder.append([
        createFollowupRow(one.intentRecord.cap, { of: one.intentRecord.eventId, kind: "finality" }, now),
      ]);
    }
    const { payment } = one;
    one.settlement = seen;
    one.payment = null;
    if (seen.final) this.#close(one);
    else this.#open.set(one.intentRecord.eventId, one);
    // The payment settled after the call had ended without an answer, so the proof is sent again now.
    if (first && payment) {
      const shown = await resendProof(this.tools, payment, clock);
      if (!shown.delivered) this.#refunds.add(one.intentRecord, seen);
    }
    return first ? 1 : 0;
  }
}
