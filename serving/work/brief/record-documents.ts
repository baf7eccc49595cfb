import { sha256hexAsync } from "../../../infra/canonical.ts";
import type { Clock } from "../../../infra/clock.ts";
import { logId } from "../../../infra/tree/checkpoint.ts";
import { rfc3339 } from "../../../pipelines/record/time.ts";
import type { Checks } from "../../answers/check.ts";
import { Problem } from "../../http/problem.ts";
import type { BriefQuotation, BriefSource } from "../../schemas/brief.ts";
import type { CheckAnswer } from "../../schemas/check.ts";
import { type SearchAnswer, SearchQuery } from "../../schemas/search.ts";
import type { FailuresAnswer } from "../../schemas/trust.ts";
import { type CardEntry, unpackLeaf } from "../../tables/entry.ts";
import type { View } from "../../tables/view.ts";

/**
 * What briefs about the record (what this service has observed of endpoints) are made from: the tables of the newest
 * view, and the functions behind the public answers.
 */
export interface RecordParts {
  view: () => View;
  clock: Clock;
  /** Public address of this service, without a trailing slash. */
  baseUrl: string;
  checks: Pick<Checks, "answer">;
  search(view: View, query: SearchQuery): Promise<SearchAnswer>;
  failures(view: View, cap: string, limit: number): Promise<FailuresAnswer>;
}

/**
 * A document of the record: an answer of this service, as text and parsed, or a leaf (an entry) of its log, whose
 * `value` is null.
 */
interface RecordDocument<Value> {
  value: Value;
  info: Extract<BriefSource, { read: true }>;
  text: string;
}

/** Largest number of failed calls that are read of one endpoint. */
const MAX_FAILURES = 5;

/**
 * Reads documents of the record for one brief, each once, and quotes them. A quotation is one member of a JSON object,
 * name and value, exactly as the document's text contains it.
 */
export class RecordDocuments {
  readonly #documents = new Map<string, Promise<RecordDocument<unknown>>>();
  readonly #cited = new Map<string, Extract<BriefSource, { read: true }>>();

  constructor(
    readonly parts: RecordParts,
    readonly view: View,
    private readonly client: string,
  ) {}

  /** The documents that were quoted. */
  get cited(): readonly BriefSource[] {
    return [...this.#cited.values()];
  }

  /**
   * Returns the leaf of the log that contains a card (signed grade). The document's address is the feed from this leaf
   * on, whose first line is the leaf and never changes.
   */
  readLeaf({ leaf, packed }: CardEntry): Promise<RecordDocument<null>> {
    const path = `/v1/trust/feed?cursor=${logId(this.view.origin)}:${leaf}`;
    return this.#document(path, `leaf ${leaf} of the log`, "leaf", async () => ({
      value: null,
      text: unpackLeaf(packed),
    }));
  }

  /** Returns the signed answer of GET /v1/check about an endpoint. */
  readCheck(cap: string): Promise<RecordDocument<CheckAnswer>> {
    return this.#document(`/v1/check?url=${cap}`, `check of ${cap}`, "answer", async () => {
      const { bytes } = await this.parts.checks.answer({ url: cap }, this.client);
      const text = bytes.toString("utf8");
      return { value: JSON.parse(text) as CheckAnswer, text };
    });
  }

  /** Returns the answer of GET /v1/search to a query. */
  readSearch(query: Record<string, string>): Promise<RecordDocument<SearchAnswer>> {
    const path = `/v1/search?${new URLSearchParams(query)}`;
    return this.#document(path, "search of the record", "answer", async () => {
      const { limit = "10", ...otherParameters } = query;
      const value = await this.parts.search(this.view, SearchQuery.parse({ ...otherParameters, limit: Number(limit) }));
      return { value, text: JSON.stringify(value) };
    });
  }

  /** Returns the newest failed paid calls of an endpoint; null if the evidence cannot be read now within its limits. */
  async readFailures(cap: string): Promise<RecordDocument<FailuresAnswer> | null> {
    try {
      return await this.#document(
        `/v1/trust/${cap}/failures?limit=${MAX_FAILURES}`,
        `failed calls of ${cap}`,
        "answer",
        async () => {
          const value = await this.parts.failures(this.view, cap, MAX_FAILURES);
          return { value, text: JSON.stringify(value) };
        },
      );
    } catch (error) {
      if (error instanceof Problem) return null;
      throw error;
    }
  }

  /**
   * Quotes the first member with this name and value that the document's text contains at offset `after` or later.
   * @throws Error when the text contains no such member, which is a fault of this code
   */
  quote(document: RecordDocument<unknown>, name: string, value: unknown, after = 0): BriefQuotation {
    const text = `${JSON.stringify(name)}:${JSON.stringify(value)}`;
    const offset = document.text.indexOf(text, after);
    if (offset === -1) throw new Error(`${document.info.url} does not hold ${text.slice(0, 200)}`);
    const { url, sha256 } = document.info;
    this.#cited.set(url, document.info);
    return { text, url, sha256, offset };
  }

  async #document<Value>(
    path: string,
    title: string,
    kind: "leaf" | "answer",
    read: () => Promise<{ value: Value; text: string }>,
  ): Promise<RecordDocument<Value>> {
    const cached = this.#documents.get(path) as Promise<RecordDocument<Value>> | undefined;
    if (cached) return cached;
    const pending = read().then(async ({ value, text }): Promise<RecordDocument<Value>> => {
      const url = `${this.parts.baseUrl}${path}`;
      const bytes = Buffer.from(text);
      const fetched_at = rfc3339(this.parts.clock.now());
      const sha256 = await sha256hexAsync(bytes);
      const sourceFields = {
        read: true as const,
        url,
        final_url: url,
        fetched_at,
        title,
        kind,
        part: "whole" as const,
      };
      return { value, text, info: { ...sourceFields, sha256, bytes: bytes.length, cut: false } };
    });
    this.#documents.set(path, pending);
    return pending;
  }
}
