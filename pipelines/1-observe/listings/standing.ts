import type { StandingListing } from "../../record/memory.ts";
import { BoundedMap } from "../bounded.ts";

/** Sources whose rows are remembered, and rows of all of them together. */
const MAX_SOURCES = 100_000;
const MAX_ROWS = 500_000;

/** The newest record of one (source, source id). */
export interface Stands {
  cap: string;
  eventId: string;
  gone: boolean;
}

/** What one source has said: by source id, and the event ids that a copy of today would be dropped for. */
export interface SourceRows {
  rows: Map<string, Stands>;
  used: Set<string>;
}

/** Remembers what stands for each source: the record's word once, then this process's own, which is newer. */
export class Standings {
  readonly #sources = new BoundedMap<string, SourceRows>(MAX_SOURCES);
  #rows = 0;

  /** @param read the record's rows of one source with the ids it used on that UTC day */
  constructor(private readonly read: (source: string, day: string) => Promise<readonly StandingListing[]>) {}

  async of(source: string, day: string): Promise<SourceRows> {
    const known = this.#sources.get(source);
    if (known) return known;
    const loaded: SourceRows = { rows: new Map(), used: new Set() };
    for (const { source_id, cap, event_id, gone, newest } of await this.read(source, day)) {
      loaded.used.add(event_id);
      if (newest) loaded.rows.set(source_id, { cap, eventId: event_id, gone });
    }
    this.#keep(source, loaded);
    return loaded;
  }

  /** Past the limit everything is forgotten and read from the record again: a copy has the same id and is dropped. */
  #keep(source: string, rows: SourceRows): void {
    this.#rows += rows.rows.size;
    if (this.#rows > MAX_ROWS) {
      for (const name of this.#sources.keys()) this.#sources.delete(name);
      this.#rows = rows.rows.size;
    }
    this.#sources.set(source, rows);
  }

  /** A record that is durable now. */
  note(source: SourceRows, sourceId: string, stands: Stands): void {
    if (!source.rows.has(sourceId)) this.#rows++;
    source.rows.set(sourceId, stands);
    source.used.add(stands.eventId);
    // Ids of earlier days are only of use to readers that look across days; a long life must not pile them up.
    if (source.used.size > 1_000 + 8 * source.rows.size) {
      source.used = new Set([...source.rows.values()].map((one) => one.eventId));
    }
  }
}
