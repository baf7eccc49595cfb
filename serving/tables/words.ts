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
/** Memory of the thread without SQLite's own, MiB. */
const MEMORY = { maxOldGenerationSizeMb: 256 };
/** Most queries and batches of texts that may wait for the thread. */
const MAX_WAITING = 200;
/** Endpoints that are compared before the event loop has its turn. */
const COMPARED_AT_ONCE = 1_000;
/** Number of texts in one message to the thread. */
const BATCH = 256;
/** Most attempts of one query; it is sent again when the thread had lost its index. */
const MAX_TRIES = 5;

/** Answer of the thread. `matched` is absent when it had lost its index, and after messages that only add texts. */
type Answer = { matched?: TextMatches };
/** The part of a view that is indexed. */
interface Listed {
  size: number;
  entries: LayeredMap<Entry>;
}
type RowText = readonly [row: number, text: IndexedText | null];

/**
 * Full-text index of the listed endpoints. The index is in a thread of its own, so a query never blocks the event loop.
 * The first query builds it; each later query first brings it up to the view that is asked about. All views share it,
 * so callers must drop endpoints that their view does not list.
 */
export class WordIndex {
  /** By capability id: the endpoint's row in the index, and the listing that was indexed. */
  readonly #known = new Map<string, { row: number; listing: ListingFacts | null }>();
  #entries: LayeredMap<Entry> | null = null;
  #size = -1;
  #sent = 0;
  /** Incremented each time the index is built from the beginning. */
  #life = 0;
  #changing: Promise<void> = Promise.resolve();

  /** @param thread what answers as words-worker.mjs does */
  constructor(
    private readonly thread: Pick<BoundedThread, "ask"> = new BoundedThread(
      new URL("./words-worker.mjs", import.meta.url),
      { does: "finds words", memory: MEMORY, maxWaiting: MAX_WAITING },
    ),
  ) {}

  /** Returns the row of an endpoint, or undefined when no view that was queried has listed it. */
  rowOf(cap: string): number | undefined {
    return this.#known.get(cap)?.row;
  }

  /** Number of rows, including those of endpoints that are no longer listed. */
  get rows(): number {
    return this.#known.size;
  }

  /**
   * Returns which rows contain which of the words. The index may be that of a newer view than this one.
   * @param byClass whether the words of {@link CLASS_WORDS} count
   * @throws Error when too many queries wait
   */
  async match(view: Listed, asked: readonly SpelledWord[], byClass: boolean): Promise<TextMatches> {
    for (let tries = 1; tries <= MAX_TRIES; tries++) {
      await this.#bring(view);
      const life = this.#life;
      // A concurrent query found that the index was lost.
      if (this.#entries === null) continue;
      const { matched } = await this.#ask({ match: asked, byClass });
      if (matched) return matched;
      await this.#inOrder(async () => this.#forget(life));
    }
    throw new Error("the index of words could not be brought up to date");
  }

  #ask(what: { match: readonly SpelledWord[]; byClass: boolean } | { put: readonly RowText[] }): Promise<Answer> {
    const limits = { cpuMs: MAX_CPU_MS, urgent: "put" in what };
    return this.thread.ask<Answer>({ kinds: CLASS_WORDS, sent: this.#sent, ...what }, limits);
  }

  /**
   * Marks the index as lost after the thread was restarted, so that everything is sent again.
   * @param generation value of `#generation` when the caller sent its query
   */
  #forget(life: number): void {
    if (life !== this.#life) return;
    for (const known of this.#known.values()) known.listing = null;
    this.#entries = null;
    this.#size = -1;
    this.#sent = 0;
    this.#life++;
  }

  /** Runs changes of the index one after the other. A change that fails is tried again by the next query. */
  #inOrder(change: () => Promise<void>): Promise<void> {
    const changing = this.#changing.then(change);
    this.#changing = changing.catch(() => undefined);
    return changing;
  }

  #bring({ entries, size }: Listed): Promise<void> {
    return this.#inOrder(async () => {
      if (entries === this.#entries || size < this.#size) return;
      await this.#bringAll(entries);
      this.#entries = entries;
      this.#size = size;
    });
  }

  async #bringAll(entries: LayeredMap<Entry>): Promise<void> {
    const giveTurn = createYielder(COMPARED_AT_ONCE);
    let batch: RowText[] = [];
    for (const entry of entries.values()) {
      await giveTurn();
      const put = this.#changed(entry);
      if (put === null || batch.push(put) < BATCH) continue;
      await this.#send(batch);
      batch = [];
    }
    if (batch.length > 0) await this.#send(batch);
  }

  /** Returns the new text of an endpoint, or null when the index already has it. */
  #changed(entry: Entry): RowText | null {
    const listing = isListed(entry) ? entry.listing : null;
    const known = this.#known.get(entry.cap);
    if (known === undefined) {
      if (listing === null) return null;
      const row = this.#known.size;
      this.#known.set(entry.cap, { row, listing });
      return [row, textOf(listing)];
    }
    if (known.listing === listing) return null;
    known.listing = listing;
    return [known.row, listing && textOf(listing)];
  }

  /**
   * Sends texts to the thread. The first batch after a restart replaces the whole index. A thread that lost its index
   * refuses further batches and queries, and then everything is sent again.
   */
  async #send(put: readonly RowText[]): Promise<void> {
    await this.#ask({ put });
    this.#sent++;
  }
}

/**
 * Returns the text that is indexed for a listing: its address without the scheme, the seller's description, its class,
 * and whether it is a tool.
 */
function textOf({ url, description, class: kind, tool }: ListingFacts): IndexedText {
  const address = url.replace(/^https?:\/\//i, "");
  const named = tool === null ? "" : `MCP tool ${tool}`;
  return { text: [description ?? "", kind === "any" ? "" : kind, named, address].join(" \n "), kind };
}
