import { sha256hex } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import { putDurably, type Store } from "../../infra/store/store.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import type { Order } from "./order.ts";
import { StepNotSeen } from "./order-log.ts";

/**
 * The body of a request to a seller, or the seller's answer. The answer of one of our own operations is stored as
 * that of leg 0.
 */
export type ObjectKind = "request" | "answer";

/**
 * The parts of an object's key. `leg`: number of the order's payment to a seller (an order may try several sellers).
 */
export interface ObjectName {
  /** UTC day of the order's claim. */
  day: string;
  order: string;
  leg: number;
  kind: ObjectKind;
}

/** sha256 (hex) and length in bytes of an object, as recorded in the step that refers to it. */
export interface ObjectDigest {
  sha256: string;
  size: number;
}

/**
 * Folder of all objects of orders. It has one folder for each day, so a listing in the order of keys goes from the
 * oldest day to the newest.
 */
export const OBJECTS_FOLDER = "held/";

const KEY_PATTERN = /^held\/(\d{4}-\d\d-\d\d)\/(ord_[0-9A-HJKMNP-TV-Z]{26})-(\d{1,2})\.(request|answer)$/;

/**
 * Returns the key of an object. All objects of a day are in one folder, since a folder for each order would stay on
 * the disk after the order's objects were removed.
 */
export const objectKey = ({ day, order, leg, kind }: ObjectName): string =>
  `${OBJECTS_FOLDER}${day}/${order}-${leg}.${kind}`;

/** Reads the parts of a key; null when the text is not the key of an order's object. */
export function parseObjectKey(key: string): ObjectName | null {
  const [, day, order, leg, kind] = KEY_PATTERN.exec(key) ?? [];
  return day === undefined ? null : { day, order: order!, leg: Number(leg), kind: kind as ObjectKind };
}

const nameOf = ({ id, createdAt }: Order, leg: number, kind: ObjectKind): ObjectName => ({
  ...{ day: createdAt.slice(0, 10), order: id, leg, kind },
});

/**
 * Pauses (real ms) between attempts to write an answer. Several are made, since the seller may have been paid
 * already, and a buyer is not charged for an answer that is not stored.
 */
const RETRY_PAUSES_MS = [200, 1_000, 3_000] as const;

/**
 * Stores the request bodies and answers of orders (calls that buyers buy through us). Each object is durable before
 * the order's step that names its sha256 and size is appended to the log, so a step never refers to bytes that were
 * never stored. The log keeps steps for ever; the objects are removed later ({@link ObjectSweep}). Only the selling
 * processes use this store; a client gets an answer from them by its order's id.
 */
export class OrderObjects {
  constructor(
    private readonly store: Pick<Store, "create" | "swap" | "get" | "delete">,
    private readonly metrics: Pick<Metrics, "count">,
    private readonly retryPausesMs: readonly number[] = RETRY_PAUSES_MS,
  ) {}

  /**
   * Writes an object durably; an empty one is not written. An object of this name that exists is replaced: an attempt
   * to pay a seller that was given up before its step was durable may have left it.
   * @throws StepNotSeen when the write may have failed: the step that names the object must not be appended
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
   * Writes an answer as {@link put} does, with retries (default: four attempts in five seconds). @returns whether it is
   * stored
   */
  async putAnswer(order: Order, leg: number, bytes: Uint8Array): Promise<boolean> {
    for (const pause of [0, ...this.retryPausesMs]) {
      if (pause > 0) await systemClock.sleep(pause);
      const isStored = await this.put(order, leg, "answer", bytes).then(
        () => true,
        () => false,
      );
      if (isStored) return true;
    }
    return false;
  }

  /**
   * Reads an object; null when it was removed, or its sha256 or size differs from `digest`, which a step of the order
   * holds.
   * @throws StepNotSeen when the store cannot be asked
   */
  async get(order: Order, leg: number, kind: ObjectKind, { sha256, size }: ObjectDigest): Promise<Buffer | null> {
    if (size === 0) return Buffer.alloc(0);
    const key = objectKey(nameOf(order, leg, kind));
    const object = await this.store.get(key, { maxBytes: size }).catch((cause: unknown) => {
      if ((cause as Error).name === "ObjectTooLarge") return null;
      throw new StepNotSeen(`the ${kind} of ${order.id} cannot be read now`, { cause });
    });
    if (!object) return null;
    const bytes = Buffer.from(object.bytes);
    if (bytes.length === size && sha256hex(bytes) === sha256) return bytes;
    this.metrics.count("touchstone_orders_objects_damaged_total", { kind });
    return null;
  }

  /** Removes an object if it exists. @throws what the store throws */
  async remove(order: Order, leg: number, kind: ObjectKind): Promise<void> {
    await this.store.delete(objectKey(nameOf(order, leg, kind)));
  }
}

/**
 * Reads the answer for which the buyer of an order is charged: that of the last seller that was paid, or of our own
 * operation.
 * @returns null when it was removed; no bytes if the answer had none
 * @throws StepNotSeen when the store cannot be asked
 */
export async function answerOf(objects: OrderObjects, order: Order): Promise<Buffer | null> {
  const digest = answerDigestOf(order);
  return digest ? objects.get(order, order.own ? 0 : order.legs.at(-1)!.leg, "answer", digest) : Buffer.alloc(0);
}

/**
 * Returns sha256 and size of the answer for which the buyer of an order is charged; null when no bytes were received.
 */
export function answerDigestOf(order: Order): ObjectDigest | null {
  const result = order.own ? order.own.result : (order.legs.at(-1)?.result ?? null);
  return result === null || result.sha256 === null ? null : { sha256: result.sha256, size: result.size };
}
