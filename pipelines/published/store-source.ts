import { ObjectTooLarge, StoreDown } from "../../infra/store/errors.ts";
import type { Store } from "../../infra/store/store.ts";
import { tellingMissing } from "../../infra/store/unlisted.ts";
import { Oversized, SourceDown } from "./errors.ts";
import { CHECKPOINT } from "./objects.ts";
import type { Sink } from "./sink.ts";
import type { Source } from "./source.ts";

/** Bytes of one ranged read. */
const STEP_BYTES = 8 * 1024 * 1024;

/** A bucket (or any store of infra/store) as a source. Only read; closed with the source. */
export class StoreSource implements Source {
  readonly #store: Store;

  constructor(
    readonly name: string,
    store: Store,
  ) {
    this.#store = tellingMissing(store, CHECKPOINT);
  }

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    return (await this.#asking(key, maxBytes, () => this.#store.get(key, { maxBytes })))?.bytes ?? null;
  }

  /** In ranges. The store does not tie a range to an etag, so the object is looked at again after the last one. */
  async into(key: string, maxBytes: number, sink: Sink): Promise<boolean> {
    return this.#asking(key, maxBytes, async () => {
      const info = await this.#store.head(key);
      if (!info) return false;
      if (info.size > maxBytes) throw new Oversized(key, maxBytes);
      const etag = `"${info.etag}"`;
      if (sink.etag !== etag || sink.at > info.size) await sink.restart(etag);
      while (sink.at < info.size) {
        const bytes = await this.#store.getRange(key, sink.at, Math.min(info.size, sink.at + STEP_BYTES));
        if (!bytes?.length) throw new SourceDown(this.name, key, "it went away while it was read");
        await sink.write(bytes);
      }
      if ((await this.#store.head(key))?.etag === info.etag) return true;
      await sink.restart(null);
      throw new SourceDown(this.name, key, "it changed while it was read");
    });
  }

  async #asking<T>(key: string, maxBytes: number, ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof ObjectTooLarge) throw new Oversized(key, maxBytes);
      if (error instanceof StoreDown) throw new SourceDown(this.name, key, error.message);
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#store.close();
  }
}
