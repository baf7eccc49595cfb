import { randomBytes } from "node:crypto";
import { sha256 } from "../../infra/canonical.ts";
import { type Clock, systemClock } from "../../infra/clock.ts";
import { repeatWork } from "../../infra/concurrency.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { crockford130 } from "../../pipelines/record/ids.ts";
import { addDays, dayOf } from "../../pipelines/record/time.ts";
import { Problem } from "../http/problem.ts";

/** Days that a body is kept, beside the day on which it was fetched. */
export const KEPT_DAYS = 30;

/** Most bytes of all bodies together: some 400 of the largest, or 80,000 web pages of 50 kB. */
const MAX_BYTES = 4 * 2 ** 30;

/** Folder in the store of the orders. It has one folder for each day. */
const FOLDER = "seen/";
/** Length of the body's SHA-256, which precedes the body in its object. */
const HASH_BYTES = 32;
const ID_PATTERN = /^(\d{4})(\d\d)(\d\d)-[0-9A-HJKMNP-TV-Z]{26}$/;
const PAGE_SIZE = 1_000;
const SWEEP_INTERVAL_MS = 3_600_000;

/** Returns the key of a body's object; null for a text that is no id. The key follows from the id, which names the day. */
function keyOf(id: string): string | null {
  const [, year, month, day] = ID_PATTERN.exec(id) ?? [];
  return year === undefined ? null : `${FOLDER}${year}-${month}-${day}/${id}`;
}

export interface BodiesDeps {
  /** The store of the orders: every replica that sells has the same. */
  store: Pick<Store, "create" | "get" | "list" | "delete">;
  clock: Pick<Clock, "now">;
  logger: Pick<Logger, "warn">;
  metrics: Pick<Metrics, "count" | "gauge">;
  /** Default 4 GiB. */
  maxBytes?: number;
}

/** A body that is kept. */
export interface KeptBody {
  /** The day and 130 random bits. Anybody who knows it can read the body. */
  id: string;
  /** Time from which it may be deleted, RFC 3339. */
  until: string;
}

/**
 * Bodies that POST /v1/web/evidence fetched, kept for their buyers. They are private: an id cannot be guessed and is in no
 * log. Any number of replicas may store and sweep at once, since the day in the key decides what is removed.
 */
export class EvidenceBodies {
  /** Bytes that the last sweep counted, and those that this replica has stored since. */
  #storedBytes = 0;

  constructor(private readonly deps: BodiesDeps) {}

  /** @throws Problem unavailable when there is no room */
  refuseWhenFull(): void {
    if (this.#storedBytes < (this.deps.maxBytes ?? MAX_BYTES)) return;
    throw new Problem("unavailable", "too many bodies of others are kept at the moment; nothing is charged", {
      headers: { "retry-after": "3600" },
    });
  }

  /** Keeps a body, durably, for at least {@link KEPT_DAYS} days. @throws Problem unavailable when the store fails */
  async keep(body: Uint8Array): Promise<KeptBody> {
    const day = dayOf(this.deps.clock.now());
    const id = `${day.replaceAll("-", "")}-${crockford130(randomBytes(HASH_BYTES))}`;
    const object = Buffer.concat([sha256(body), body]);
    const { result } = await this.deps.store.create(keyOf(id)!, object).catch((error: unknown) => {
      this.deps.logger.warn({ err: error }, "a fetched body could not be kept: its evidence is not sold");
      throw new Problem("unavailable", "the body cannot be kept now; nothing is charged", {
        headers: { "retry-after": "10" },
      });
    });
    if (result !== "created") throw new Error("an id of 130 random bits was drawn twice");
    this.#storedBytes += object.length;
    this.deps.metrics.count("touchstone_evidence_bodies_written_bytes_total", {}, object.length);
    return { id, until: `${addDays(day, KEPT_DAYS + 1)}T00:00:00.000Z` };
  }

  /**
   * Returns a kept body; null when there is none, or when its days are over, even if it is not deleted yet.
   * @throws Problem unavailable when the store fails, or what it holds is damaged
   */
  async read(id: string): Promise<Buffer | null> {
    const key = keyOf(id);
    if (key === null || this.#isOver(key)) return null;
    const object = await this.deps.store.get(key).catch((error: unknown) => {
      this.deps.logger.warn({ err: error }, "the store of bodies cannot be read");
      throw new Problem("unavailable", "the body cannot be read now", { headers: { "retry-after": "10" } });
    });
    if (!object) return null;
    const [hash, body] = [object.bytes.subarray(0, HASH_BYTES), Buffer.from(object.bytes.subarray(HASH_BYTES))];
    if (Buffer.compare(sha256(body), hash) === 0) return body;
    this.deps.metrics.count("touchstone_evidence_bodies_damaged_total");
    this.deps.logger.warn({ key }, "a kept body is damaged");
    throw new Problem("unavailable", "the body that is kept here is damaged; its receipt and proof still hold");
  }

  /** Removes bodies whose days are over, and counts the rest. @returns objects removed @throws what the store throws */
  async sweep(): Promise<number> {
    const { store, metrics } = this.deps;
    let [removed, bytes, lastKey] = [0, 0, ""];
    for (;;) {
      const objects = await store.list(FOLDER, { startAfter: lastKey, limit: PAGE_SIZE });
      for (const { key, size } of objects) {
        lastKey = key;
        if (!this.#isOver(key)) {
          bytes += size;
          continue;
        }
        await store.delete(key);
        removed++;
      }
      if (objects.length < PAGE_SIZE) break;
    }
    this.#storedBytes = bytes;
    metrics.gauge("touchstone_evidence_bodies_bytes", bytes);
    metrics.count("touchstone_evidence_bodies_removed_total", {}, removed);
    return removed;
  }

  /** Sweeps now and every hour of real time, until stopped. A pass that fails is made again. */
  startSweep(): { stop(): Promise<void> } {
    const sweepOnce = async (): Promise<void> => {
      await this.sweep().catch((error: unknown) => {
        this.deps.logger.warn({ err: error }, "kept bodies could not be swept; it is tried again");
      });
    };
    return repeatWork(sweepOnce, SWEEP_INTERVAL_MS, systemClock);
  }

  #isOver(key: string): boolean {
    const day = key.slice(FOLDER.length, FOLDER.length + "2026-01-01".length);
    return day < addDays(dayOf(this.deps.clock.now()), -KEPT_DAYS);
  }
}
