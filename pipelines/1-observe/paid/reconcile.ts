import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import { isOver, networksOf, type Settlement } from "../../../infra/rails/rails.ts";
import type { Memory, OpenIntent } from "../../record/memory.ts";
import { hostOf } from "../../record/url.ts";
import type { Draft } from "../recorder.ts";
import { factTime, followupRow, lostRow, settlementRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import type { PaidEnd } from "./paid.ts";
import { lookUp, type Payment, settlementOf, showAgain } from "./payment.ts";
import { Heads, Refunds } from "./refunds.ts";

/** A payment that may still settle, become final or be paid back. */
interface Waiting {
  of: Pick<OpenIntent, "eventId" | "cap" | "intent">;
  /** The Transfer, once seen and written; it may not be final yet. */
  seen: Settlement | null;
  /** Set while this process can still show the proof: it has the request and the known answer. */
  payment: Payment | null;
}

/** Where observers share the work, an intent may be another's call under way until so long after its deadline, ms. */
const UNDER_WAY_MS = 300_000;
/** Chain seconds after `valid_before` in which a Transfer in an older block may still become visible to us. */
const MARGIN_S = 60;
const MAX_WAITING = 10_000;
/** Intents looked up at one look; the others wait for the next. */
const PER_LOOK = 500;

export interface ReconcileReport {
  settled: number;
  /** Payments that brought nothing and were paid back. */
  refunded: number;
  /** Still open after this look. */
  waiting: number;
  /** Why a chain could not be asked; its payments wait for the next look and nothing is lost. */
  down: string | null;
}

/**
 * What a paid call leaves behind: settlements that come late, become final, or are paid back. A seller may settle at
 * any time before `validBefore`; without this a theft could hide by settling after we looked. What this process knows
 * is kept here, and the record answers for what an earlier one knew.
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

  /** Takes over a paid call that has ended. */
  take(open: NonNullable<PaidEnd["open"]>): void {
    const { payment, chain, delivered, excused } = open;
    const payable = delivered || excused ? null : payment;
    if (!chain.seen?.final) this.#waiting.set(payment.eventId, { of: payment, seen: chain.seen, payment: payable });
    else this.#closed.set(payment.eventId, true);
    if (chain.seen && payable) this.#refunds.add(payment, chain.seen);
  }

  /**
   * At start: every intent without a result becomes one that nobody watched, `ours`. The chain is asked first, so that
   * the loss is booked; when it is down, a later look books it. Safe to repeat: the ids are the same.
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

  /** One look at everything that waits. Call it every minute or so; a second call while one runs gets its report. */
  run(clock: Clock): Promise<ReconcileReport> {
    this.#running ??= this.#look(clock).finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #look(clock: Clock): Promise<ReconcileReport> {
    const { rail } = this.tools;
    const heads = new Heads(rail);
    await Promise.all(networksOf(rail).map((network) => heads.of(network)));
    if (heads.allDown) return { settled: 0, refunded: 0, waiting: this.#waiting.size, down: heads.down };
    // An observer that died left its calls open: the one that has its hosts now books them.
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
        // Another chain may answer: payments of this one go to the end of the line.
        this.#waiting.set(one.of.eventId, one);
      } else if (seen) settled += await this.#book(one, seen, clock);
      else if (isOver(asOf, one.of.intent.valid_before, MARGIN_S)) this.#close(one);
      // To the end of the line: those past this look's share come first in the next.
      else this.#waiting.set(one.of.eventId, one);
    }
    const refunded = await this.#refunds.look(clock, heads);
    return { settled, refunded, waiting: this.#waiting.size, down: heads.down };
  }

  /** Is the host this observer's? Another one's payments are reconciled by it: the record tells it of them. */
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

  /** Writes what is new about one payment; 1 when its Transfer was seen for the first time. */
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
    // It settled after the call had ended and nothing had come: the proof is shown now, as it would have been then.
    if (first && payment) {
      const shown = await showAgain(this.tools, payment, clock);
      if (!shown.delivered) this.#refunds.add(one.of, seen);
    }
    return first ? 1 : 0;
  }
}
