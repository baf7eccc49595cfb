import { sha256Soon } from "../../../infra/canonical.ts";
import type { Clock } from "../../../infra/clock.ts";
import { rfc3339 } from "../../../pipelines/record/time.ts";
import type { Doc } from "../../pages/docs.ts";
import type { BriefSource } from "../../schemas/brief.ts";
import type { Extractor } from "../extract/extractor.ts";
import { textOnly } from "../extract/limits.ts";

/** A document that was read, and its text as far as briefs look at it. */
export interface Source {
  about: Extract<BriefSource, { read: true }>;
  text: string;
}

/** What a question is asked of that names no addresses. */
export interface Corpus {
  /** What it is, for whoever reads the answer. */
  readonly says: string;
  /** All of its documents. @throws when they cannot be read now */
  sources(): Promise<readonly Source[]>;
}

/** Characters of one document that a brief looks at. */
export const LOOKED_AT_CHARS = 200_000;

export interface DocsCorpusOptions {
  /** Pages by name, as they are served under `/docs/`. */
  docs: ReadonlyMap<string, Doc>;
  /** Where this service is reached. */
  baseUrl: string;
  extractor: Extractor;
  clock: Clock;
}

/**
 * The service's own documentation: the pages as anybody may fetch them, so that a citation can be looked up as any other. They
 * are read once, when the first question comes; where that fails, again with the next.
 */
export function docsCorpus({ docs, baseUrl, extractor, clock }: DocsCorpusOptions): Corpus {
  let reading: Promise<readonly Source[]> | null = null;
  const read = async (name: string, { title, text: page }: Doc): Promise<Source> => {
    const bytes = Buffer.from(page);
    const url = `${baseUrl.replace(/\/$/, "")}/docs/${name}`;
    const [sha256, { text, kind, part, cut }] = await Promise.all([
      sha256Soon(bytes),
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
    // One after the other, so that strangers' documents do not wait for the extractor behind ours.
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
