import { type Clock, systemClock } from "../../infra/clock.ts";
import { repeatWork } from "../../infra/concurrency.ts";
import type { ObjectInfo, Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { addDays, dayOf } from "../record/time.ts";
import { isClosed, isEnded, type Order } from "./order.ts";
import type { OrderLog } from "./order-log.ts";
import { OBJECTS_FOLDER, type ObjectKind, parseObjectKey } from "./order-objects.ts";

/**
 * Largest number of objects that one turn of the sweep examines, and most that it removes, so that a turn takes a
 * second or two.
 */
const TURN_LIMITS = { looks: 1_000, removes: 250 };
/**
 * If objects take too much room, answers that only a buyer needs are removed early, in pages of neighbouring keys: a
 * page has at most `objects` objects and 1/`parts` of the bytes that all objects together may take. The next pass
 * removes whole pages, the oldest first, so replicas that sweep at the same time remove the same objects.
 */
const PAGE_LIMITS = { objects: 100, parts: 64 };
/**
 * Number of UTC days for which an object of an unknown order is kept. The order's first step never reached the log,
 * or the order was dropped from memory long after its end.
 */
const UNKNOWN_RETENTION_DAYS = 1;

/**
 * Returns who may still need an object of an order (a call that a buyer buys through us): the replica that finishes
 * the order or publishes its call ("order"), the buyer who was charged ("buyer"), or nobody (null). Nobody needs the
 * objects of a leg (payment to one seller) after which another seller was paid.
 */
export function neededBy(order: Order, leg: number, kind: ObjectKind): "order" | "buyer" | null {
  const lastLeg = order.legs.at(-1)?.leg ?? 0;
  if (leg < lastLeg) return null;
  if (mayStillMove(order) || mayBeRecorded(order)) return "order";
  return order.state === "settled" && leg === lastLeg && kind === "answer" ? "buyer" : null;
}

/** Is the order in progress, or may its buyer still be charged? */
const mayStillMove = (order: Order): boolean =>
  !isEnded(order) || !order.final || (order.state === "written_off" && !isClosed(order));

/**
 * May the order's call still enter the public record ({@link callToRecord}), now or once the chain shows whether the
 * seller took our payment?
 */
function mayBeRecorded(order: Order): boolean {
  const leg = order.legs.at(-1);
  if (!leg?.result || !leg.checked || order.recorded || leg.fate === "unpaid" || leg.checked.fault === "ours")
    return false;
  return !leg.checked.pass || order.state === "settled";
}

export interface SweepDeps {
  orders: Pick<OrderLog, "catchUp" | "table">;
  store: Pick<Store, "list" | "delete">;
  /** The clock by which orders get their times, since an object's key has the day of its order. */
  clock: Pick<Clock, "now">;
  /** Number of UTC days for which the answer of a charged order is kept. */
  keepDays: number;
  /**
   * Largest number of bytes of all objects together. Above this the oldest answers of charged orders are removed before
   * `keepDays` are over.
   */
  maxBytes: number;
  logger: Pick<Logger, "warn">;
  metrics: Pick<Metrics, "count" | "gauge">;
}

/** Why an object stays (its "order" or its "buyer" needs it), or why it is removed (the other four). */
type Verdict = "order" | "buyer" | "uncharged" | "recorded" | "expired" | "unknown";

/**
 * Removes objects of orders that nobody needs any more ({@link neededBy}), and the answer of a charged order after
 * `keepDays`. Each turn goes through a bounded number of keys, from the oldest day to
 * the newest; a pass is the turns from the first key to the last. Any number of replicas may sweep at once: what is
 * removed follows from the log and the listing of the store alone, and removing an object twice does no harm.
 */
export class ObjectSweep {
  /** Key of the last object that was examined in this pass; "" at the pass's beginning. */
  #lastKey = "";
  /** Bytes of all objects that stay, counted in this pass so far. */
  #keptBytes = 0;
  /**
   * The objects that only a buyer needs, as counted in this pass so far: pages of neighbouring keys, in the order of
   * keys.
   */
  #pages: { upTo: string; objects: number; bytes: number }[] = [];
  /** Answers of charged orders with keys up to this one are removed before `keepDays` are over; "" for none. */
  #evictUpTo = "";
  /** Did the objects that open orders need exceed `maxBytes` alone, at the end of the last pass? */
  #isFull = false;

  constructor(private readonly deps: SweepDeps) {}

  /**
   * Returns why no order may begin now, in words for a buyer, or null. Orders are refused while the objects that open
   * orders need exceed `maxBytes` alone.
   */
  refusalWhenFull = (): string | null =>
    this.#isFull
      ? "Too many answers of others are being kept at the moment: nothing is sold until there is room."
      : null;

  /**
   * Runs one turn.
   * @returns true if it reached the last key
   * @throws what log and store throw; the turn may then be run again
   */
  async sweepSome(): Promise<boolean> {
    const { orders, store, clock } = this.deps;
    const listedObjects = await store.list(OBJECTS_FOLDER, { startAfter: this.#lastKey, limit: TURN_LIMITS.looks });
    // The log is read after the listing, so that it has the first step of the order of every listed object.
    await orders.catchUp();
    const today = dayOf(clock.now());
    let removed = 0;
    for (const object of listedObjects) {
      if (removed === TURN_LIMITS.removes) return false;
      const verdict = this.#judge(object.key, today);
      if (verdict === "order" || verdict === "buyer") this.#count(object, verdict);
      else {
        await store.delete(object.key);
        this.deps.metrics.count("touchstone_orders_objects_removed_total", { why: verdict });
        removed++;
      }
      this.#lastKey = object.key;
    }
    if (listedObjects.length === TURN_LIMITS.looks) return false;
    this.#endPass();
    return true;
  }

  #judge(key: string, today: string): Verdict {
    const name = parseObjectKey(key);
    const order = name && this.deps.orders.table.get(name.order);
    if (!order) return (name?.day ?? today) < addDays(today, -UNKNOWN_RETENTION_DAYS) ? "unknown" : "order";
    const need = neededBy(order, name.leg, name.kind);
    if (need === null) return order.state === "settled" ? "recorded" : "uncharged";
    const isExpired = name.day < addDays(today, -this.deps.keepDays) || key <= this.#evictUpTo;
    return need === "buyer" && isExpired ? "expired" : need;
  }

  #count({ key, size }: ObjectInfo, verdict: "order" | "buyer"): void {
    this.#keptBytes += size;
    if (verdict === "order") return;
    const page = this.#pages.at(-1);
    if (page && page.objects < PAGE_LIMITS.objects && page.bytes + size <= this.deps.maxBytes / PAGE_LIMITS.parts)
      Object.assign(page, { upTo: key, objects: page.objects + 1, bytes: page.bytes + size });
    else this.#pages.push({ upTo: key, objects: 1, bytes: size });
  }

  /** Ends a pass: decides which objects the next pass removes early, and whether orders are refused. */
  #endPass(): void {
    const { maxBytes, logger, metrics } = this.deps;
    let excessBytes = this.#keptBytes - maxBytes;
    this.#evictUpTo = "";
    for (const { upTo, bytes } of this.#pages) {
      if (excessBytes <= 0) break;
      excessBytes -= bytes;
      this.#evictUpTo = upTo;
    }
    this.#isFull = excessBytes > 0;
    if (this.#isFull)
      logger.warn({ bytes: this.#keptBytes }, "nothing is sold: open orders hold more bytes than there may be");
    metrics.gauge("touchstone_orders_objects_bytes", this.#keptBytes);
    metrics.gauge("touchstone_sales_closed", this.#isFull ? 1 : 0, { why: "objects" });
    this.#lastKey = "";
    this.#keptBytes = 0;
    this.#pages = [];
  }
}

/** Pause between two turns, real ms. At 1,000 objects a turn, a pass over a million objects takes less than a day. */
const TURN_INTERVAL_MS = 60_000;

/** Runs a turn of the sweep every {@link TURN_INTERVAL_MS} until stopped. A turn that fails is logged and run again. */
export const startSweep = (sweep: ObjectSweep, logger: Pick<Logger, "warn">): { stop(): Promise<void> } =>
  repeatWork(
    async () => {
      await sweep.sweepSome().catch((error: unknown) => {
        logger.warn({ err: error }, "the objects of orders could not be swept; it is tried again");
      });
    },
    TURN_INTERVAL_MS,
    systemClock,
  );
