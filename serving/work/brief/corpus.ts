import { sha256hexAsync } from "../../../infra/canonical.ts";
import type { Clock } from "../../../infra/clock.ts";
import { rfc3339 } from "../../../pipelines/record/time.ts";
import type { Doc } from "../../pages/docs.ts";
import type { BriefSource } from "../../schemas/brief.ts";
import type { Extractor } from "../extract/extractor.ts";
import { textOnly } from "../extract/limits.ts";

/** A document, with the part of its text that briefs use. */
export interface Source {
  about: Extract<BriefSource, { read: true }>;
  text: string;
}

/** The documents for questions that name no urls. */
export interface Corpus {
  /** Description of the corpus for the answer. */
  readonly says: string;
  /** Returns all documents. @throws Error when they cannot be read now */
  sources(): Promise<readonly Source[]>;
}

/** Number of characters of one document that a brief uses. */
export const LOOKED_AT_CHARS = 200_000;

export interface DocsCorpusOptions {
  /** Pages by name, as served under `/docs/`. */
  docs: ReadonlyMap<string, Doc>;
  /** Public address of this service. */
  baseUrl: string;
  extractor: Extractor;
  clock: Clock;
}

/**
 * Creates a corpus of the service's own documentation, from its pages as they are served, so that citations can be verified
 * by fetching them. The pages are extracted at the first question, or at the next one if that fails.
 */
export function docsCorpus({ docs, baseUrl, extractor, clock }: DocsCorpusOptions): Corpus {
  let reading: Promise<readonly Source[]> | null = null;
  const read = async (name: string, { title, text: page }: Doc): Promise<Source> => {
    const bytes = Buffer.from(page);
    const url = `${baseUrl.replace(/\/$/, "")}/docs/${name}`;
    const [sha256, { text, kind, part, cut }] = await Promise.all([
      sha256hexAsync(bytes),
      extractor.read({ bytes, url, part: "main", kinds: ["html"], most: textOnly(LOOKED_AT_CHARS) }),
    ]);
    const when = rfc3339(clock.now());
    const isCut = cut.includes("text");
    return {
      about: {
        read: true,
        url,
        final_url: url,
        fetched_at: when,
        title,
        kind,
        part,
        sha256,
        bytes: bytes.length,
        cut: isCut,
      },
      text,
    };
  };
  const all = async (): Promise<readonly Source[]> => {
    const sources: Source[] = [];
    // One after another, so that clients' documents do not wait for the extractor behind ours.
    for (const [name, doc] of docs) if (doc.type === "html") sources.push(await read(name, doc));
    return sources;
  };
  return {
    says: "the documentation of this service; there is no search of the web here",
    async sources() {
      reading ??= all();
      try {
        return await reading;
      } catch (error) {
        reading = null;
        throw error;
      }
    },
  };
}
