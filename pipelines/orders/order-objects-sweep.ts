import { type Clock, systemClock } from "../../infra/clock.ts";
import { repeatWork } from "../../infra/concurrency.ts";
import type { ObjectInfo, Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { addDays, dayOf } from "../record/time.ts";
import { isClosed, isEnded, type Order } from "./order.ts";
import type { OrderLog } from "./order-log.ts";
import { OBJECTS, type ObjectKind, objectNameOf } from "./order-objects.ts";

/** Objects that one turn looks at, and of those how many it removes: a turn is a second or two of one process. */
const TURN = { looks: 1_000, removes: 250 };
/**
 * Neighbours that are evicted together: at most so many objects, and such a part of the bound. What is kept for the next
 * pass is the key that one ends at, so replicas that count at the same time evict the same objects.
 */
const PAGE = { objects: 100, parts: 64 };
/** Days that an object of an unknown order is kept: nobody can have claimed it, or it was forgotten long ago. */
const UNKNOWN_DAYS = 1;

/**
 * Who may still ask for an object of an order: whoever brings it to its end, or writes its call into the record ("order");
 * the buyer who was charged ("buyer"); nobody (null). Nobody asks for those of a leg that another one came after.
 */
export function neededBy(order: Order, leg: number, kind: ObjectKind): "order" | "buyer" | null {
  const last = order.legs.at(-1)?.leg ?? 0;
  if (leg < last) return null;
  if (mayGoOn(order) || mayBeRecorded(order)) return "order";
  return order.state === "settled" && leg === last && kind === "answer" ? "buyer" : null;
}

/** Is it under way, or may what passed still be charged? */
const mayGoOn = (order: Order): boolean =>
  !isEnded(order) || !order.final || (order.state === "written_off" && !isClosed(order));

/** May its call still enter the record ({@link callToRecord}), now or once the chain has said who has the seller's money? */
function mayBeRecorded(order: Order): boolean {
  const leg = order.legs.at(-1);
  if (!leg?.result || !leg.checked || order.recorded || leg.fate === "unpaid" || leg.checked.fault === "ours")
    return false;
  return !leg.checked.pass || order.state === "settled";
}

export interface SweepDeps {
  orders: Pick<OrderLog, "catchUp" | "table">;
  store: Pick<Store, "list" | "delete">;
  /** The clock of the orders: the day of a key is its order's. */
  clock: Pick<Clock, "now">;
  /** UTC days that the answer of a charged order is kept. */
  keepDays: number;
  /** Most bytes of all objects together; past it the oldest charged answers go before their time. */
  maxBytes: number;
  logger: Pick<Logger, "warn">;
  metrics: Pick<Metrics, "count" | "gauge">;
}

/** An object that stays, for an order or for its buyer, or why it goes. */
type Verdict = "order" | "buyer" | "uncharged" | "recorded" | "expired" | "unknown";

/**
 * Removes what orders hold once nobody may ask for it any more: of an order that ended without a charge all of it, of a
 * charged one the answer after its days. Goes through the store from the oldest day on, a bounded piece a turn, and begins
 * again at the end. Any number of replicas may sweep at once: what is removed follows from the log and from the listing,
 * and a removal that comes twice does nothing.
 */
export class ObjectSweep {
  /** Key that the last turn ended at. */
  #after = "";
  /** Of this pass so far: all bytes that stay, and those that only a buyer may ask for, by pages in the order of keys. */
  #bytes = 0;
  #pages: { upTo: string; objects: number; bytes: number }[] = [];
  /** Charged answers up to this key go although their days are not over. */
  #evictUpTo = "";
  #isFull = false;

  constructor(private readonly deps: SweepDeps) {}

  /** Why no order may be begun now, in words for a buyer, or null: open orders alone need more than there may be. */
  full = (): string | null =>
    this.#isFull
      ? "Too many answers of others are being kept at the moment: nothing is sold until there is room."
      : null;

  /** One piece. @returns whether it came to the end of the listing @throws what log and store throw: nothing is lost */
  async turn(): Promise<boolean> {
    const { orders, store, clock } = this.deps;
    const found = await store.list(OBJECTS, { startAfter: this.#after, limit: TURN.looks });
    // After the listing: of every object that is seen the claim stands in the log, and is read now.
    await orders.catchUp();
    const today = dayOf(clock.now());
    let removed = 0;
    for (const object of found) {
      if (removed === TURN.removes) return false;
      const verdict = this.#judge(object.key, today);
      if (verdict === "order" || verdict === "buyer") this.#count(object, verdict);
      else {
        await store.delete(object.key);
        this.deps.metrics.count("touchstone_orders_objects_removed_total", { why: verdict });
        removed++;
      }
      this.#after = object.key;
    }
    if (found.length === TURN.looks) return false;
    this.#endPass();
    return true;
  }

  #judge(key: string, today: string): Verdict {
    const name = objectNameOf(key);
    const order = name && this.deps.orders.table.get(name.order);
    if (!order) return (name?.day ?? today) < addDays(today, -UNKNOWN_DAYS) ? "unknown" : "order";
    const needed = neededBy(order, name.leg, name.kind);
    if (needed === null) return order.state === "settled" ? "recorded" : "uncharged";
    const isOver = name.day < addDays(today, -this.deps.keepDays) || key <= this.#evictUpTo;
    return needed === "buyer" && isOver ? "expired" : needed;
  }

  #count({ key, size }: ObjectInfo, verdict: "order" | "buyer"): void {
    this.#bytes += size;
    if (verdict === "order") return;
    const page = this.#pages.at(-1);
    if (page && page.objects < PAGE.objects && page.bytes + size <= this.deps.maxBytes / PAGE.parts)
      Object.assign(page, { upTo: key, objects: page.objects + 1, bytes: page.bytes + size });
    else this.#pages.push({ upTo: key, objects: 1, bytes: size });
  }

  /** What has to go before its time in the next pass. */
  #endPass(): void {
    const { maxBytes, logger, metrics } = this.deps;
    let over = this.#bytes - maxBytes;
    this.#evictUpTo = "";
    for (const { upTo, bytes } of this.#pages) {
      if (over <= 0) break;
      over -= bytes;
      this.#evictUpTo = upTo;
    }
    this.#isFull = over > 0;
    if (this.#isFull)
      logger.warn({ bytes: this.#bytes }, "nothing is sold: open orders hold more bytes than there may be");
    metrics.gauge("touchstone_orders_objects_bytes", this.#bytes);
    metrics.gauge("touchstone_sales_closed", this.#isFull ? 1 : 0, { why: "objects" });
    this.#after = "";
    this.#bytes = 0;
    this.#pages = [];
  }
}

/** Pause between two turns, real ms: a million objects are gone through in a day. */
const TURN_MS = 60_000;

/** Sweeps again and again, in real time, until stopped. A turn that fails is made again. */
export const startSweep = (sweep: ObjectSweep, logger: Pick<Logger, "warn">): { stop(): Promise<void> } =>
  repeatWork(
    async () => {
      await sweep.turn().catch((error: unknown) => {
        logger.warn({ err: error }, "the objects of orders could not be swept; it is tried again");
      });
    },
    TURN_MS,
    systemClock,
  );
