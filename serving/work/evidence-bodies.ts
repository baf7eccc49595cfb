import { randomBytes } from "node:crypto";
import { BoundedMap } from "../../infra/bounded-map.ts";
import { sha256 } from "../../infra/canonical.ts";
import { type Clock, systemClock } from "../../infra/clock.ts";
import { repeatWork } from "../../infra/concurrency.ts";
import { type Holder, namesOf } from "../../infra/shares.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { crockford130 } from "../../pipelines/record/ids.ts";
import { addDays, dayOf } from "../../pipelines/record/time.ts";
import { Problem } from "../http/problem.ts";

/** Days that a body is kept after the day on which it was fetched. */
export const KEPT_DAYS = 30;

/**
 * Largest number of bytes of all stored bodies together: room for some 400 of the largest, or for 80,000 web pages of
 * 50 kB.
 */
const MAX_BYTES = 4 * 2 ** 30;

/**
 * Largest number of names of buyers whose bytes are counted; beyond it, the name that stored longest ago is forgotten.
 */
const MAX_BUYER_NAMES = 10_000;

/** Folder of the bodies, in the store that also holds the orders. It has one subfolder for each day of fetching. */
const FOLDER = "seen/";
/** Length of the body's SHA-256 hash, with which each stored object begins; the body follows. */
const HASH_BYTES = 32;
const ID_PATTERN = /^(\d{4})(\d\d)(\d\d)-[0-9A-HJKMNP-TV-Z]{26}$/;
const PAGE_SIZE = 1_000;
const SWEEP_INTERVAL_MS = 3_600_000;

/** Returns the store key of a body, in the subfolder of the day in its id; null for a text that is no id. */
function keyOf(id: string): string | null {
  const [, year, month, day] = ID_PATTERN.exec(id) ?? [];
  return year === undefined ? null : `${FOLDER}${year}-${month}-${day}/${id}`;
}

export interface BodiesDeps {
  /** The store that also holds the orders. All replicas that sell use the same store. */
  store: Pick<Store, "create" | "get" | "list" | "delete">;
  clock: Pick<Clock, "now">;
  logger: Pick<Logger, "warn">;
  metrics: Pick<Metrics, "count" | "gauge">;
  /** Largest number of bytes of all stored bodies together. Default 4 GiB. */
  maxBytes?: number;
}

/** The id of a stored body, and the end of its storage. */
export interface KeptBody {
  /** The day of fetching and 130 random bits. Anybody who knows the id can read the body. */
  id: string;
  /** Time from which the body may be deleted, RFC 3339. */
  until: string;
}

/**
 * Stores the bodies that POST /v1/web/evidence fetched, for their buyers. The bodies are private: an id cannot be
 * guessed and is written to no log. Several replicas may store and delete bodies at the same time, since the day in an
 * object's key alone decides when the object is deleted.
 */
export class EvidenceBodies {
  /** Bytes of all bodies that were stored at the last sweep, plus the bytes that this replica has stored since. */
  #storedBytes = 0;
  /** Bytes that this replica has stored since its start under each name of a buyer, by the day of fetching. */
  readonly #bytesByName = new BoundedMap<string, Map<string, number>>(MAX_BUYER_NAMES);

  constructor(private readonly deps: BodiesDeps) {}

  /**
   * Refuses work while the stored bodies have {@link BodiesDeps.maxBytes} or more. Also refuses work of a buyer if
   * under one of its names (wallet, IP network of the client) at least as many bytes are stored as are free, so that
   * one buyer alone can fill half of the room, as in shares.ts.
   * @throws Problem unavailable
   */
  refuseWhenFull(buyer: Holder = {}): void {
    const freeBytes = (this.deps.maxBytes ?? MAX_BYTES) - this.#storedBytes;
    const isOverShare = namesOf(buyer).some((name) => this.#bytesUnder(name) >= freeBytes);
    if (freeBytes > 0 && !isOverShare) return;
    const whose = freeBytes > 0 ? "of your wallet or network" : "of others";
    throw new Problem("unavailable", `too many bodies ${whose} are kept at the moment; nothing is charged`, {
      headers: { "retry-after": "3600" },
    });
  }

  /** Returns how many bytes are stored under a name, without bodies whose days of storage are over. */
  #bytesUnder(name: string): number {
    let bytes = 0;
    for (const [day, size] of this.#bytesByName.get(name) ?? []) if (day >= this.#firstKeptDay()) bytes += size;
    return bytes;
  }

  #countBytes(name: string, today: string, size: number): void {
    const days = [...(this.#bytesByName.get(name) ?? [])].filter(([day]) => day >= this.#firstKeptDay());
    const byDay = new Map(days);
    this.#bytesByName.set(name, byDay.set(today, (byDay.get(today) ?? 0) + size));
  }

  /** Stores a body durably for at least {@link KEPT_DAYS} days. @throws Problem unavailable when the store fails */
  async keep(body: Uint8Array, buyer: Holder = {}): Promise<KeptBody> {
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
    for (const name of namesOf(buyer)) this.#countBytes(name, day, object.length);
    this.deps.metrics.count("touchstone_evidence_bodies_written_bytes_total", {}, object.length);
    return { id, until: `${addDays(day, KEPT_DAYS + 1)}T00:00:00.000Z` };
  }

  /**
   * Returns a stored body; null when none has this id or its {@link KEPT_DAYS} days are over, even if it is not deleted
   * yet.
   * @throws Problem unavailable when the store fails or the stored body is damaged
   */
  async read(id: string): Promise<Buffer | null> {
    const key = keyOf(id);
    if (key === null || this.#isExpired(key)) return null;
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

  /**
   * Deletes the bodies whose {@link KEPT_DAYS} days are over, and counts the bytes of the others.
   * @returns number of deleted bodies
   * @throws any error of the store
   */
  async sweep(): Promise<number> {
    const { store, metrics } = this.deps;
    let [removedCount, keptBytes, lastKey] = [0, 0, ""];
    const storedBefore = this.#storedBytes;
    for (;;) {
      const objects = await store.list(FOLDER, { startAfter: lastKey, limit: PAGE_SIZE });
      for (const { key, size } of objects) {
        lastKey = key;
        if (!this.#isExpired(key)) {
          keptBytes += size;
          continue;
        }
        await store.delete(key);
        removedCount++;
      }
      if (objects.length < PAGE_SIZE) break;
    }
    // Bodies that were stored meanwhile may be in the list or not. Until the next sweep they may count twice.
    this.#storedBytes += keptBytes - storedBefore;
    metrics.gauge("touchstone_evidence_bodies_bytes", keptBytes);
    metrics.count("touchstone_evidence_bodies_removed_total", {}, removedCount);
    return removedCount;
  }

  /**
   * Runs {@link sweep} now and then hourly, by the real clock, until stopped. A failed sweep is logged; the next one
   * repeats its work.
   */
  startSweep(): { stop(): Promise<void> } {
    const sweepOnce = async (): Promise<void> => {
      await this.sweep().catch((error: unknown) => {
        this.deps.logger.warn({ err: error }, "kept bodies could not be swept; it is tried again");
      });
    };
    return repeatWork(sweepOnce, SWEEP_INTERVAL_MS, systemClock);
  }

  #isExpired(key: string): boolean {
    const day = key.slice(FOLDER.length, FOLDER.length + "2026-01-01".length);
    return day < this.#firstKeptDay();
  }

  /** Returns the first day whose bodies are still kept. */
  #firstKeptDay(): string {
    return addDays(dayOf(this.deps.clock.now()), -KEPT_DAYS);
  }
}
