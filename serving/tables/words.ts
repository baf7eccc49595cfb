import { BoundedThread } from "../../infra/bounded-thread.ts";
import { createYielder } from "../../infra/concurrency.ts";
import type { IndexedText, SpelledWord, TextMatches } from "../../infra/text-index.ts";
import type { ListingFacts } from "../../pipelines/published/endpoint.ts";
import { type Entry, isListed } from "./entry.ts";
import type { LayeredMap } from "./layered-map.ts";

/** Search words for each class, in addition to the words that sellers write (docs/classes.md). */
export const CLASS_WORDS: Readonly<Record<string, string>> = {
  arithmetic: "arithmetic add addition plus sum total number math maths calculate calculator compute",
  encodings:
    "encode decode encoding hash hashing checksum digest fingerprint sha md5 hex base64 urlencode crypto text string",
  "calendar-facts": "calendar date day weekday week time timezone zone utc offset clock",
  "geo-facts": "geography country countries capital city currency iso code location",
  "llm-echo": "llm ai gpt model language chat chatbot prompt completion ask assistant generate text inference",
  "planted-page":
    "scrape scraper scraping crawl web website page site url link html markdown content extract read fetch screenshot text",
  "chain-data": "chain blockchain block onchain ethereum evm hash height timestamp explorer rpc",
  "token-price":
    "price quote rate token coin crypto cryptocurrency bitcoin btc ethereum eth sol exchange currency forex fx market",
  "company-name": "company companies business firm legal entity lei register name kyb",
  "known-rows": "fact lookup dataset record history weather register catalogue",
};

/**
 * Most processor time of one query, ms. A query reads one list of rows for each word; with 250,000 endpoints that all
 * contain a word it takes 70 ms.
 */
const MAX_CPU_MS = 5_000;
/** Limit on the thread's memory, MiB. SQLite's own memory is not counted. */
const MEMORY_LIMITS = { maxOldGenerationSizeMb: 256 };
/** Largest number of queries and batches of texts that may wait for the thread. */
const MAX_WAITING = 200;
/** Number of endpoints that are compared before the event loop has its turn. */
const ENTRIES_PER_TURN = 1_000;
/** Number of texts in one message to the thread. */
const TEXTS_PER_BATCH = 256;
/** Largest number of attempts of one query. A query is sent again when the thread had lost its index. */
const MAX_TRIES = 5;

/**
 * Answer of the thread. `matched` is absent when the thread had lost its index, and after messages that only add
 * texts.
 */
type Answer = { matched?: TextMatches };
/** The part of a view that is indexed. */
interface IndexSource {
  size: number;
  entries: LayeredMap<Entry>;
}
/** Number of a row and its new text; null removes the row's text. */
type RowText = readonly [row: number, text: IndexedText | null];
/** Number of an endpoint's row in the index, and the listing that the thread has indexed for it (null: none). */
interface IndexedRow {
  row: number;
  listing: ListingFacts | null;
}
/** A listing to index in place of the row's; null: the endpoint is not listed any more. */
interface RowChange {
  indexed: IndexedRow;
  listing: ListingFacts | null;
}

/**
 * Full-text index of the listed endpoints. The index is in a thread of its own, so a query never blocks the event
 * loop. The first query builds it; each later query first updates it to the view that is searched. All views share
 * it, so callers must leave out of their result the endpoints that their view does not list.
 */
export class WordIndex {
  /** Rows by capability id. */
  readonly #rowsByCap = new Map<string, IndexedRow>();
  /** Entries of the view to which the index was last updated; null if it has to be built from the beginning. */
  #entries: LayeredMap<Entry> | null = null;
  /** Size of that view; -1 if the index has to be built. */
  #size = -1;
  /** Number of batches of texts sent since the index was last built from the beginning. */
  #sentBatches = 0;
  /** Incremented each time the index was lost and has to be built from the beginning. */
  #generation = 0;
  #pendingChange: Promise<void> = Promise.resolve();

  /** @param thread the thread that runs words-worker.mjs; tests pass another one */
  constructor(
    private readonly thread: Pick<BoundedThread, "ask"> = new BoundedThread(
      new URL("./words-worker.mjs", import.meta.url),
      { does: "finds words", memory: MEMORY_LIMITS, maxWaiting: MAX_WAITING },
    ),
  ) {}

  /** Returns the row of an endpoint, or undefined when no view that was queried has listed it. */
  rowOf(cap: string): number | undefined {
    return this.#rowsByCap.get(cap)?.row;
  }

  /** Number of rows, including those of endpoints that are no longer listed. */
  get rowCount(): number {
    return this.#rowsByCap.size;
  }

  /**
   * Returns which rows contain which of the words. The index may be that of a newer view than this one.
   * @param byClass true: a row also matches by the words of its class ({@link CLASS_WORDS}). false: by its own text
   * alone
   * @throws Error when too many queries wait
   */
  async match(view: IndexSource, words: readonly SpelledWord[], byClass: boolean): Promise<TextMatches> {
    for (let attempt = 1; attempt <= MAX_TRIES; attempt++) {
      await this.#update(view);
      const generation = this.#generation;
      // A concurrent query found meanwhile that the index was lost, so it has to be built again.
      if (this.#entries === null) continue;
      const { matched } = await this.#ask({ match: words, byClass });
      if (matched) return matched;
      await this.#runInOrder(async () => this.#markLost(generation));
    }
    throw new Error("the index of words could not be brought up to date");
  }

  #ask(question: { match: readonly SpelledWord[]; byClass: boolean } | { put: readonly RowText[] }): Promise<Answer> {
    const limits = { cpuMs: MAX_CPU_MS, urgent: "put" in question };
    return this.thread.ask<Answer>({ kinds: CLASS_WORDS, sent: this.#sentBatches, ...question }, limits);
  }

  /**
   * Marks the index as lost after the thread was restarted, so that everything is sent again.
   * @param generation value of `#generation` when the caller sent its query
   */
  #markLost(generation: number): void {
    if (generation !== this.#generation) return;
    for (const indexed of this.#rowsByCap.values()) indexed.listing = null;
    this.#entries = null;
    this.#size = -1;
    this.#sentBatches = 0;
    this.#generation++;
  }

  /** Runs changes of the index one after the other. A change that fails is tried again by the next query. */
  #runInOrder(change: () => Promise<void>): Promise<void> {
    const changing = this.#pendingChange.then(change);
    this.#pendingChange = changing.catch(() => undefined);
    return changing;
  }

  #update({ entries, size }: IndexSource): Promise<void> {
    return this.#runInOrder(async () => {
      if (entries === this.#entries || size < this.#size) return;
      await this.#updateAll(entries);
      this.#entries = entries;
      this.#size = size;
    });
  }

  async #updateAll(entries: LayeredMap<Entry>): Promise<void> {
    const giveTurn = createYielder(ENTRIES_PER_TURN);
    let batch: RowChange[] = [];
    for (const entry of entries.values()) {
      await giveTurn();
      const change = this.#changeOf(entry);
      if (change === null || batch.push(change) < TEXTS_PER_BATCH) continue;
      await this.#send(batch);
      batch = [];
    }
    if (batch.length > 0) await this.#send(batch);
  }

  /** Returns the change that gives an endpoint's row its current listing; null when the row has it already. */
  #changeOf(entry: Entry): RowChange | null {
    const listing = isListed(entry) ? entry.listing : null;
    let indexed = this.#rowsByCap.get(entry.cap);
    if ((indexed?.listing ?? null) === listing) return null;
    if (indexed === undefined) {
      indexed = { row: this.#rowsByCap.size, listing: null };
      this.#rowsByCap.set(entry.cap, indexed);
    }
    return { indexed, listing };
  }

  /**
   * Sends texts to the thread and records which listings it has. The first batch after {@link WordIndex.#markLost}
   * replaces the whole index. A thread that lost its index ignores further batches; the next query finds that out, and
   * everything is sent again. If the thread throws, nothing is recorded, so that the next update sends the batch again.
   */
  async #send(batch: readonly RowChange[]): Promise<void> {
    await this.#ask({ put: batch.map(({ indexed, listing }) => [indexed.row, listing && textOf(listing)]) });
    this.#sentBatches++;
    for (const { indexed, listing } of batch) indexed.listing = listing;
  }
}

/**
 * Returns the text that is indexed for a listing: its address without the scheme, the seller's description, its class,
 * and whether it is a tool.
 */
function textOf({ url, description, class: kind, tool }: ListingFacts): IndexedText {
  const address = url.replace(/^https?:\/\//i, "");
  const toolText = tool === null ? "" : `MCP tool ${tool}`;
  return { text: [description ?? "", kind === "any" ? "" : kind, toolText, address].join(" \n "), kind };
}
