import type { Store, StoredObject } from "../../../infra/store/store.ts";
import { NOW } from "../../helpers/public-record.ts";

/** A store in memory: a thousand fsyncs would say nothing here and take seconds. */
export class MemoryStore implements Store {
  readonly objects = new Map<string, StoredObject>();
  #writes = 0;
  get = async (key: string) => this.objects.get(key) ?? null;
  head = this.get;
  getRange = async (key: string, start: number, end: number) =>
    this.objects.get(key)?.bytes.subarray(start, end) ?? null;
  async create(key: string, bytes: Uint8Array) {
    if (this.objects.has(key)) return { result: "exists" as const };
    await this.swap(key, bytes, null);
    return { result: "created" as const };
  }
  async swap(key: string, bytes: Uint8Array, expected: string | null) {
    if ((this.objects.get(key)?.etag ?? null) !== expected) return { result: "lost" as const };
    const etag = String(this.#writes++);
    this.objects.set(key, { key, bytes, size: bytes.length, etag, modifiedAt: new Date(NOW) });
    return { result: "swapped" as const, etag };
  }
  async list(prefix: string, { startAfter = "", limit = 1_000 }: { startAfter?: string; limit?: number } = {}) {
    const wanted = [...this.objects.values()].filter(({ key }) => key.startsWith(prefix) && key > startAfter);
    return wanted.sort((a, b) => (a.key < b.key ? -1 : 1)).slice(0, limit);
  }
  async delete(key: string) {
    this.objects.delete(key);
  }
  async close() {}
}
