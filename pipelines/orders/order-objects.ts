import { sha256hex } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import { putDurably, type Store } from "../../infra/store/store.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import type { Order } from "./order.ts";
import { StepNotSeen } from "./order-log.ts";

/** What was sent to a seller as the body of a request, or what came back (of work of our own: its answer, as of leg 0). */
export type ObjectKind = "request" | "answer";

/** Which object of which order. */
export interface ObjectName {
  /** UTC day of the order's claim. */
  day: string;
  order: string;
  leg: number;
  kind: ObjectKind;
}

/** sha256 (hex) and length in bytes, as the step has them that names an object. */
export interface Named {
  sha256: string;
  size: number;
}

/** Folder of all objects of orders, a folder a day below it: a listing goes from the oldest day to the newest. */
export const OBJECTS = "held/";

const KEY = /^held\/(\d{4}-\d\d-\d\d)\/(ord_[0-9A-HJKMNP-TV-Z]{26})-(\d{1,2})\.(request|answer)$/;

/** Flat below its day, since a folder an order would stay on the disk when its objects are gone. */
export const objectKey = ({ day, order, leg, kind }: ObjectName): string => `${OBJECTS}${day}/${order}-${leg}.${kind}`;

/** @returns null for a key that no object of an order has */
export function objectNameOf(key: string): ObjectName | null {
  const [, day, order, leg, kind] = KEY.exec(key) ?? [];
  return day === undefined ? null : { day, order: order!, leg: Number(leg), kind: kind as ObjectKind };
}

const nameOf = ({ id, createdAt }: Order, leg: number, kind: ObjectKind): ObjectName => ({
  ...{ day: createdAt.slice(0, 10), order: id, leg, kind },
});

/** Pauses (real ms) before an answer is written again: its seller may have been paid for it already. */
const AGAIN_MS = [200, 1_000, 3_000] as const;

/**
 * Bytes of bought calls: bodies of requests and answers. Each is durable before the step that names it by sha256 and
 * size, so a step never names bytes that were not there. The log keeps steps for ever, and these objects go
 * ({@link ObjectSweep}). The store is that of the selling replicas alone: whoever has an order's id may read its answer.
 */
export class OrderObjects {
  constructor(
    private readonly store: Pick<Store, "create" | "swap" | "get" | "delete">,
    private readonly metrics: Pick<Metrics, "count">,
    private readonly againMs: readonly number[] = AGAIN_MS,
  ) {}

  /**
   * Writes an object, durably. Nothing of no bytes is written. A leg that was given up before its step was durable may
   * have left one of its name: that is replaced.
   * @throws StepNotSeen when it is not known to be there: the step that names it must not be written
   */
  async put(order: Order, leg: number, kind: ObjectKind, bytes: Uint8Array): Promise<void> {
    if (bytes.length === 0) return;
    await putDurably(this.store as Store, objectKey(nameOf(order, leg, kind)), bytes).catch((cause: unknown) => {
      this.metrics.count("touchstone_orders_objects_failed_total", { kind });
      throw new StepNotSeen(`the ${kind} of ${order.id} could not be kept: ${(cause as Error).message}`, { cause });
    });
    this.metrics.count("touchstone_orders_objects_written_bytes_total", { kind }, bytes.length);
  }

  /**
   * {@link put}, tried again with the pauses of this store (default: four times in five seconds). @returns whether it is
   * there
   */
  async putAnswer(order: Order, leg: number, bytes: Uint8Array): Promise<boolean> {
    for (const pause of [0, ...this.againMs]) {
      if (pause > 0) await systemClock.sleep(pause);
      const isThere = await this.put(order, leg, "answer", bytes).then(
        () => true,
        () => false,
      );
      if (isThere) return true;
    }
    return false;
  }

  /**
   * An object's bytes as its step names them; null when they are not kept any more, or are not what was written.
   * @throws StepNotSeen when the store cannot be asked
   */
  async get(order: Order, leg: number, kind: ObjectKind, { sha256, size }: Named): Promise<Buffer | null> {
    if (size === 0) return Buffer.alloc(0);
    const key = objectKey(nameOf(order, leg, kind));
    const found = await this.store.get(key, { maxBytes: size }).catch((cause: unknown) => {
      if ((cause as Error).name === "ObjectTooLarge") return null;
      throw new StepNotSeen(`the ${kind} of ${order.id} cannot be read now`, { cause });
    });
    if (!found) return null;
    const bytes = Buffer.from(found.bytes);
    if (bytes.length === size && sha256hex(bytes) === sha256) return bytes;
    this.metrics.count("touchstone_orders_objects_damaged_total", { kind });
    return null;
  }

  /** Removes an object, whether it is there or not. @throws what the store throws */
  async remove(order: Order, leg: number, kind: ObjectKind): Promise<void> {
    await this.store.delete(objectKey(nameOf(order, leg, kind)));
  }
}

/**
 * The answer that an order's buyer is charged for: of its newest leg, or of work of our own.
 * @returns null when it is not kept any more
 * @throws StepNotSeen when the store cannot be asked
 */
export async function answerOf(objects: OrderObjects, order: Order): Promise<Buffer | null> {
  const named = answerNamed(order);
  return named ? objects.get(order, order.own ? 0 : order.legs.at(-1)!.leg, "answer", named) : Buffer.alloc(0);
}

/** sha256 and size of that answer; null when no bytes came. */
export function answerNamed(order: Order): Named | null {
  const result = order.own ? order.own.result : (order.legs.at(-1)?.result ?? null);
  return result === null || result.sha256 === null ? null : { sha256: result.sha256, size: result.size };
}
