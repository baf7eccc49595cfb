import { BoundedThread } from "../../infra/bounded-thread.ts";
import { createYielder } from "../../infra/concurrency.ts";
import type { IndexedText, Matched, Spelled } from "../../infra/text-index.ts";
import type { ListingFacts } from "../../pipelines/published/endpoint.ts";
import { type Entry, isListed } from "./entry.ts";
import type { LayeredMap } from "./layered-map.ts";

/** Words under which people look for what endpoints of a class do (docs/classes.md), beside those that sellers write. */
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

/** A match reads a list for each word; 250,000 endpoints that all hold a word cost 70 ms of a processor. */
const MOST_CPU_MS = 5_000;
/** Memory of the thread beside SQLite's, MiB. */
const MEMORY = { maxOldGenerationSizeMb: 256 };
/** Questions, and batches of texts, that may wait. */
const MAX_WAITING = 200;
/** Endpoints that are compared between two turns of others, and texts of one message. */
const COMPARED_A_TURN = 1_000;
const BATCH = 256;
/** How often a question is asked of a thread that had to be begun again. */
const MOST_TRIES = 5;

/** Without a match: a question that a thread which lost its index cannot answer, or texts that were put. */
type Answer = { matched?: Matched };
/** The part of a view that is indexed. */
interface Listed {
  size: number;
  entries: LayeredMap<Entry>;
}
type Put = readonly [row: number, text: IndexedText | null];

/**
 * Which listed endpoints hold which words. The index is in a thread of its own, so no question holds the event loop; it is
 * begun by the first question and follows the views that questions are asked of. Shared by all views: what a view does
 * not list is not found through it.
 */
export class Words {
  /** Row of every endpoint that was listed, and the listing that is indexed. */
  readonly #known = new Map<string, { row: number; listing: ListingFacts | null }>();
  #entries: LayeredMap<Entry> | null = null;
  #size = -1;
  #sent = 0;
  /** How often everything was sent from the beginning. */
  #life = 0;
  #changing: Promise<void> = Promise.resolve();

  /** @param thread what answers as words-worker.mjs does */
  constructor(
    private readonly thread: Pick<BoundedThread, "ask"> = new BoundedThread(
      new URL("./words-worker.mjs", import.meta.url),
      { does: "finds words", memory: MEMORY, maxWaiting: MAX_WAITING },
    ),
  ) {}

  /** Row of an endpoint that was listed in a view which this was asked of. */
  rowOf(cap: string): number | undefined {
    return this.#known.get(cap)?.row;
  }

  /** Rows that were given out. */
  get rows(): number {
    return this.#known.size;
  }

  /**
   * What the endpoints of this view, or of a newer one, hold of the words.
   * @param byClass whether {@link CLASS_WORDS} count
   * @throws Error when too many questions wait
   */
  async match(view: Listed, asked: readonly Spelled[], byClass: boolean): Promise<Matched> {
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      await this.#bring(view);
      const life = this.#life;
      // Another question found that the index was lost.
      if (this.#entries === null) continue;
      const { matched } = await this.#ask({ match: asked, byClass });
      if (matched) return matched;
      await this.#inOrder(async () => this.#forget(life));
    }
    throw new Error("the index of words could not be brought up to date");
  }

  #ask(what: { match: readonly Spelled[]; byClass: boolean } | { put: readonly Put[] }): Promise<Answer> {
    const limits = { cpuMs: MOST_CPU_MS, urgent: "put" in what };
    return this.thread.ask<Answer>({ kinds: CLASS_WORDS, sent: this.#sent, ...what }, limits);
  }

  /** A thread that was begun again holds nothing: everything is sent once more. @param life which one was lost */
  #forget(life: number): void {
    if (life !== this.#life) return;
    for (const known of this.#known.values()) known.listing = null;
    this.#entries = null;
    this.#size = -1;
    this.#sent = 0;
    this.#life++;
  }

  /** One change of the index after another; what fails is tried again by the next question. */
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
    const giveTurn = createYielder(COMPARED_A_TURN);
    let batch: Put[] = [];
    for (const entry of entries.values()) {
      await giveTurn();
      const put = this.#changed(entry);
      if (put === null || batch.push(put) < BATCH) continue;
      await this.#send(batch);
      batch = [];
    }
    if (batch.length > 0) await this.#send(batch);
  }

  /** What the index has to be told of an endpoint, or null. */
  #changed(entry: Entry): Put | null {
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
   * The first batch begins the index anew, whatever the thread holds. A thread that lost its index takes no further one, and
   * answers no question that comes after it: then everything is sent again.
   */
  async #send(put: readonly Put[]): Promise<void> {
    await this.#ask({ put });
    this.#sent++;
  }
}

/** The words of a listing: its address without the scheme, what its seller writes, its class, and that it is a tool. */
function textOf({ url, description, class: kind, tool }: ListingFacts): IndexedText {
  const address = url.replace(/^https?:\/\//i, "");
  const named = tool === null ? "" : `MCP tool ${tool}`;
  return { text: [description ?? "", kind === "any" ? "" : kind, named, address].join(" \n "), kind };
}
