import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import { isFinallyExpired, networksOf, type Settlement } from "../../../infra/rails/rails.ts";
import type { Memory, OpenIntent } from "../../record/memory.ts";
import { hostOf } from "../../record/url.ts";
import { SHOWN_AT_ONCE } from "../queue.ts";
import type { Draft } from "../recorder.ts";
import { createFollowupRow, createLostRow, createSettlementRow, factTime } from "../rows.ts";
import type { Tools } from "../tools.ts";
import type { PaidCallResult } from "./paid.ts";
import { findSettlement, type Payment, resendProof, settlementOf } from "./payment.ts";
import { ChainHeads, Refunds } from "./refunds.ts";

/** A payment that may still settle or become final. */
interface OpenPayment {
  intentRecord: Pick<OpenIntent, "eventId" | "cap" | "intent">;
  /** The Transfer (the payment on the chain), once it was seen and recorded; it may not be final yet. */
  settlement: Settlement | null;
  /**
   * The payment as this process signed it, with the request and the known answer that are needed to send its proof
   * again; null if this process cannot or need not send it again.
   */
  payment: Payment | null;
}

/**
 * Time after a call's deadline in which another observer may still be making the call, ms. It matters only when several
 * observers share the work.
 */
const OTHER_OBSERVERS_GRACE_MS = 300_000;
/**
 * Time after `valid_before` in which the Transfer is still searched for, seconds of chain time, since a node may show
 * the Transfers of an older block late.
 */
const EXPIRY_MARGIN_S = 60;
/** Largest number of open payments that are kept in memory. */
const MAX_WAITING = 10_000;
/** Largest number of payments that are searched on the chain in one run; the others wait for the next run. */
const MAX_PER_RUN = 500;

export interface ReconcileReport {
  /** Payments whose Transfer this run recorded for the first time. */
  settled: number;
  /** Payments without an answer that were paid back. */
  refunded: number;
  /** Payments that are still open after this run. */
  waiting: number;
  /** Why a chain could not be read, or null. Payments on that chain wait for the next run. */
  down: string | null;
}

/**
 * Follows payments after their calls have ended: records late settlements, finality, and refunds. A seller may settle
 * at any time before `validBefore`, so without a reconciler it could take the money unnoticed after the call. Payments
 * of this process are kept in memory; those of earlier processes are read from the record.
 */
export class Reconciler {
  /** Open payments by event id of the intent, in the order in which they are searched. */
  readonly #open = new BoundedMap<string, OpenPayment>(MAX_WAITING);
  /** Event ids of the intents whose payments are final, or can no longer settle. */
  readonly #closed = new BoundedMap<string, true>(MAX_WAITING * 10);
  #running: Promise<ReconcileReport> | null = null;
  /** The payments whose proofs are being sent again, each until its last answer is recorded. */
  readonly #showings = new Set<Promise<void>>();
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
    const resendablePayment = delivered || excused ? null : payment;
    if (!chain.settlement?.final)
      this.#open.set(payment.eventId, {
        intentRecord: payment,
        settlement: chain.settlement,
        payment: resendablePayment,
      });
    else this.#closed.set(payment.eventId, true);
    if (chain.settlement && resendablePayment) this.#refunds.add(payment, chain.settlement);
  }

  /**
   * Records a result with fault `ours` for every intent (the record that is written before a payment) without a result,
   * since no process observed the end of its call. It is called at the start and, if observers share the work, in every
   * run. The chain is read first, so that a settlement is recorded in the same append; if the chain is down, a later
   * run records it. Repeating it is safe, since the record ids are equal.
   */
  async recover(clock: Clock): Promise<{ lost: number }> {
    let lost = 0;
    for (const intentRecord of await this.memory.openIntents()) {
      if (
        this.tools.inFlight.has(intentRecord.eventId) ||
        !this.#isOurs(intentRecord) ||
        this.#mayBeRunningElsewhere(intentRecord, clock)
      )
        continue;
      const { settlement: transfer } = await findSettlement(this.tools.rail, intentRecord.intent);
      const says = "our process ended before the connection did; nobody watched its end";
      const at = factTime(intentRecord, clock);
      const rows: Draft[] = [createLostRow(intentRecord, at, says)];
      if (transfer) rows.push(createSettlementRow(intentRecord, transfer, at));
      await this.tools.recorder.append(rows);
      if (transfer?.final) this.#closed.set(intentRecord.eventId, true);
      else this.#open.set(intentRecord.eventId, { intentRecord, settlement: transfer, payment: null });
      lost++;
    }
    if (lost > 0) this.tools.logger.warn({ lost }, "paid calls of an earlier process were booked as our own fault");
    return { lost };
  }

  /**
   * Searches the chain once for every open payment, and begins to send the proof of each late settlement again. It does
   * not wait for the answers: a seller that stalls them must not delay the search for other payments, whose proofs
   * count only if they are sent again within ten minutes. Call it about every minute. A call during a run returns the
   * report of that run.
   */
  run(clock: Clock): Promise<ReconcileReport> {
    this.#running ??= this.#reconcileOnce(clock).finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  /** Resolves when every proof that is being sent again has been answered, and the answer recorded. Never rejects. */
  async waitForShowings(): Promise<void> {
    while (this.#showings.size > 0) await Promise.all(this.#showings);
  }

  async #reconcileOnce(clock: Clock): Promise<ReconcileReport> {
    const { rail } = this.tools;
    const heads = new ChainHeads(rail);
    await Promise.all(networksOf(rail).map((network) => heads.getHead(network)));
    if (heads.isEveryChainDown) return { settled: 0, refunded: 0, waiting: this.#open.size, down: heads.firstError };
    // When observers share the work, the observer that took over the hosts of a dead observer records the dead
    // observer's open intents.
    if (this.tools.firstIntents) await this.recover(clock);
    for (const { seen, ...intentRecord } of await this.memory.awaitingSettlement()) {
      if (!this.#isOurs(intentRecord)) continue;
      const isKnown =
        this.#closed.has(intentRecord.eventId) ||
        this.#open.has(intentRecord.eventId) ||
        this.tools.inFlight.has(intentRecord.eventId);
      if (!isKnown)
        this.#open.set(intentRecord.eventId, { intentRecord, settlement: seen && settlementOf(seen), payment: null });
    }
    let settled = 0;
    for (const openPayment of this.#open.values())
      if (!this.#isOurs(openPayment.intentRecord)) this.#open.delete(openPayment.intentRecord.eventId);
    for (const openPayment of [...this.#open.values()].slice(0, MAX_PER_RUN)) {
      const { network } = openPayment.intentRecord.intent.quote;
      const isUp = (await heads.getHead(network)) !== null;
      const view = isUp
        ? await findSettlement(rail, openPayment.intentRecord.intent)
        : { settlement: null, chainError: heads.firstError };
      const { settlement: transfer, asOf } = view;
      if (!asOf) {
        heads.markDown(network, view.chainError ?? "");
        // The chain did not answer. The payment moves to the end of the queue, so that payments on other chains are
        // looked up.
        this.#open.set(openPayment.intentRecord.eventId, openPayment);
      } else if (transfer) settled += await this.#recordTransfer(openPayment, transfer, clock);
      else if (isFinallyExpired(asOf, openPayment.intentRecord.intent.valid_before, EXPIRY_MARGIN_S))
        this.#close(openPayment);
      // The payment moves to the end of the queue, so that the next run begins with payments that this run did not
      // reach.
      else this.#open.set(openPayment.intentRecord.eventId, openPayment);
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

  #close(openPayment: OpenPayment): void {
    this.#open.delete(openPayment.intentRecord.eventId);
    this.#closed.set(openPayment.intentRecord.eventId, true);
  }

  /**
   * Records a Transfer that is new or has become final. The block of a recorded Transfer may have been replaced before
   * it was final, so that the final Transfer is in another block or transaction. Then the final Transfer gets a
   * settlement record of its own, which readers prefer to the earlier one.
   * @returns 1 when the Transfer was seen for the first time, else 0
   */
  async #recordTransfer(openPayment: OpenPayment, transfer: Settlement, clock: Clock): Promise<0 | 1> {
    const isFirstSeen = openPayment.settlement === null;
    if (isFirstSeen && openPayment.payment && this.#showings.size >= SHOWN_AT_ONCE) {
      // The Transfer is left for the next run, which finds it again: if it were recorded now, its proof would be sent
      // too late.
      this.#open.set(openPayment.intentRecord.eventId, openPayment);
      return 0;
    }
    const now = factTime(openPayment.intentRecord, clock);
    const { eventId, cap } = openPayment.intentRecord;
    if (isFirstSeen || (transfer.final && hasMoved(openPayment.settlement!, transfer)))
      await this.tools.recorder.append([createSettlementRow(openPayment.intentRecord, transfer, now)]);
    else if (transfer.final)
      await this.tools.recorder.append([createFollowupRow(cap, { of: eventId, kind: "finality" }, now)]);
    const { payment } = openPayment;
    openPayment.settlement ??= transfer;
    openPayment.payment = null;
    if (transfer.final) this.#close(openPayment);
    else this.#open.set(openPayment.intentRecord.eventId, openPayment);
    if (isFirstSeen && payment) {
      const showing = this.#showAgain(payment, transfer, clock);
      this.#showings.add(showing);
      void showing.finally(() => this.#showings.delete(showing));
      // A clock that jumps advances its time at each wait, so proofs that are sent at once would advance each other's
      // time.
      if (clock.jumps) await showing;
    }
    return isFirstSeen ? 1 : 0;
  }

  /** Sends the proof of a payment again that settled after its call had ended without an answer. Never rejects. */
  async #showAgain(payment: Payment, transfer: Settlement, clock: Clock): Promise<void> {
    try {
      const { delivered } = await resendProof(this.tools, payment, clock);
      if (!delivered) this.#refunds.add(payment, transfer);
    } catch (error) {
      if (this.tools.signal?.aborted) return;
      this.tools.logger.error({ err: error, intent: payment.eventId }, "the proof of a late settlement was not shown");
    }
  }
}

/** Is a Transfer in another block or transaction than the one on record? */
const hasMoved = (recorded: Settlement, { tx, blockNumber, blockTime }: Settlement): boolean =>
  recorded.tx !== tx || recorded.blockNumber !== blockNumber || recorded.blockTime !== blockTime;
