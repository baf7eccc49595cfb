import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import { isFinallyExpired, networksOf, type Settlement } from "../../../infra/rails/rails.ts";
import type { Memory, OpenIntent } from "../../record/memory.ts";
import { hostOf } from "../../record/url.ts";
import type { Draft } from "../recorder.ts";
import { factTime, followupRow, lostRow, settlementRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import type { PaidEnd } from "./paid.ts";
import { lookUp, type Payment, settlementOf, showAgain } from "./payment.ts";
import { ChainHeads, Refunds } from "./refunds.ts";

/** A payment that may still settle or become final. */
interface Waiting {
  of: Pick<OpenIntent, "eventId" | "cap" | "intent">;
  /** The Transfer, once seen and written; it may not be final yet. */
  seen: Settlement | null;
  /** Set while this process can show the proof again: it holds the request and the known answer. */
  payment: Payment | null;
}

/**
 * Where observers share the work, another observer may still be making a call until this long after its deadline, ms.
 */
const UNDER_WAY_MS = 300_000;
/** Chain seconds after `valid_before` in which we may still see a Transfer of an older block for the first time. */
const MARGIN_S = 60;
const MAX_WAITING = 10_000;
/** Most payments that are looked up in one look; the others wait for the next. */
const PER_LOOK = 500;

export interface ReconcileReport {
  settled: number;
  /** Payments that brought nothing and were paid back. */
  refunded: number;
  /** Still open after this look. */
  waiting: number;
  /** Why a chain could not be asked, or null. Its payments wait for the next look. */
  down: string | null;
}

/**
 * Follows payments after their calls have ended: settlements that come late, become final, or are paid back. A seller
 * may settle at any time before `validBefore`; a seller could take the money unseen if nobody looked after the call.
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
   * At the start: books every intent without a result as one that nobody watched, fault `ours`. The chain is asked
   * first, so that a settlement is recorded with it; when it is down, a later look records it. Safe to repeat: the ids
   * are equal.
   */
  async recover(clock: Clock): Promise<{ lost: number }> {
    let lost = 0;
    for (const of of await this.memory.openIntents()) {
      if (this.tools.inFlight.has(of.eventId) || !this.#isOurs(of) || this.#underWay(of, clock)) continue;
      const { seen } = await lookUp(this.tools.rail, of.intent);
      const says = "our process ended before the connection did; nobody watched its end";
      const at = factTime(of, clock);
      const rows: Draft[] = [lostRow(of, at, says)];
      if (seen) rows.push(settlementRow(of, seen, at));
      await this.tools.recorder.append(rows);
      if (seen?.final) this.#closed.set(of.eventId, true);
      else this.#waiting.set(of.eventId, { of, seen, payment: null });
      lost++;
    }
    if (lost > 0) this.tools.logger.warn({ lost }, "paid calls of an earlier process were booked as our own fault");
    return { lost };
  }

  /**
   * Looks once at every payment that waits. Call it every minute or so; a call while one runs gets that one's report.
   */
  run(clock: Clock): Promise<ReconcileReport> {
    this.#running ??= this.#look(clock).finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #look(clock: Clock): Promise<ReconcileReport> {
    const { rail } = this.tools;
    const heads = new ChainHeads(rail);
    await Promise.all(networksOf(rail).map((network) => heads.of(network)));
    if (heads.allDown) return { settled: 0, refunded: 0, waiting: this.#waiting.size, down: heads.down };
    // Where observers share the work: an observer that died left intents open, and the one that has its hosts now books
    // them.
    if (this.tools.firsts) await this.recover(clock);
    for (const { seen, ...of } of await this.memory.awaitingSettlement()) {
      if (!this.#isOurs(of)) continue;
      const known =
        this.#closed.has(of.eventId) || this.#waiting.has(of.eventId) || this.tools.inFlight.has(of.eventId);
      if (!known) this.#waiting.set(of.eventId, { of, seen: seen && settlementOf(seen), payment: null });
    }
    let settled = 0;
    for (const one of this.#waiting.values()) if (!this.#isOurs(one.of)) this.#waiting.delete(one.of.eventId);
    for (const one of [...this.#waiting.values()].slice(0, PER_LOOK)) {
      const { network } = one.of.intent.quote;
      const isUp = (await heads.of(network)) !== null;
      const view = isUp ? await lookUp(rail, one.of.intent) : { seen: null, down: heads.down };
      const { seen, asOf } = view;
      if (!asOf) {
        heads.fails(network, view.down ?? "");
        // Its chain did not answer: it goes to the end of the line, so that payments on other chains are looked at.
        this.#waiting.set(one.of.eventId, one);
      } else if (seen) settled += await this.#book(one, seen, clock);
      else if (isFinallyExpired(asOf, one.of.intent.valid_before, MARGIN_S)) this.#close(one);
      // To the end of the line: the next look begins with the payments that this one did not reach.
      else this.#waiting.set(one.of.eventId, one);
    }
    const refunded = await this.#refunds.look(clock, heads);
    return { settled, refunded, waiting: this.#waiting.size, down: heads.down };
  }

  /** Is the host this observer's? Payments to other hosts are followed by their observers. */
  #isOurs({ intent }: Waiting["of"]): boolean {
    return this.tools.hosts.owns(hostOf(intent.url));
  }

  #underWay({ intent }: Waiting["of"], clock: Clock): boolean {
    return !!this.tools.firsts && clock.now().getTime() < Date.parse(intent.deadline) + UNDER_WAY_MS;
  }

  #close(one: Waiting): void {
    this.#waiting.delete(one.of.eventId);
    this.#closed.set(one.of.eventId, true);
  }

  /** Records what is new about one payment. @returns 1 when its Transfer was seen for the first time, else 0 */
  async #book(one: Waiting, seen: Settlement, clock: Clock): Promise<0 | 1> {
    const first = one.seen === null;
    const now = factTime(one.of, clock);
    if (first) await this.tools.recorder.append([settlementRow(one.of, seen, now)]);
    else if (seen.final) {
      await this.tools.recorder.append([followupRow(one.of.cap, { of: one.of.eventId, kind: "finality" }, now)]);
    }
    const { payment } = one;
    one.seen = seen;
    one.payment = null;
    if (seen.final) this.#close(one);
    else this.#waiting.set(one.of.eventId, one);
    // It settled after the call had ended without an answer: the proof is shown again now.
    if (first && payment) {
      const shown = await showAgain(this.tools, payment, clock);
      if (!shown.delivered) this.#refunds.add(one.of, seen);
    }
    return first ? 1 : 0;
  }
}
