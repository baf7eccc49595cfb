import { sha256hexAsync } from "../../../infra/canonical.ts";
import type { Clock } from "../../../infra/clock.ts";
import { rfc3339 } from "../../../pipelines/record/time.ts";
import type { Doc } from "../../pages/docs.ts";
import type { BriefSource } from "../../schemas/brief.ts";
import type { Extractor } from "../extract/extractor.ts";
import type { ExtractLimits } from "../extract/limits.ts";
import { textOnly } from "../extract/limits.ts";
import { minWordsOf } from "./rank.ts";
import type { RankingText } from "./sentences.ts";
import { soughtWordsOf, termsOf } from "./terms.ts";

/** A document, with the part of its text that briefs use. */
export interface Source {
  info: Extract<BriefSource, { read: true }>;
  text: string;
  headings: RankingText["headings"];
}

/** The documents for questions that name no urls. */
export interface Corpus {
  /** Description of the corpus, which the brief shows to its reader. */
  readonly says: string;
  /** Returns the documents that may answer a question. @throws Error when they cannot be read now */
  findSources(question: string): Promise<readonly Source[]>;
}

/** Largest number of characters of one document that a brief (the answer to a question) uses. */
const MAX_TEXT_CHARS = 200_000;
/** Limits of an extraction for a brief: the text, and its headings, so that they are not quoted as sentences. */
export const BRIEF_EXTRACT_LIMITS: Partial<ExtractLimits> = { ...textOnly(MAX_TEXT_CHARS), headings: 1_000 };

/** Converts headings to ranges of the text. */
export const headingRangesOf = (headings: readonly { offset: number; text: string }[]): RankingText["headings"] =>
  headings.map(({ offset, text }) => ({ offset, length: text.length }));

export interface DocsCorpusOptions {
  /** Pages by name, as served under `/docs/`. */
  docs: ReadonlyMap<string, Doc>;
  /** Public address of this service. */
  baseUrl: string;
  extractor: Extractor;
  clock: Clock;
}

/** Largest number of pages of the documentation that are read for one question. */
const MAX_PAGES = 6;

/**
 * Returns the names of the pages that contain as many words of the question as a sentence needs to be relevant ({@link
 * minWordsOf}), those with the rarest words first.
 */
function pagesFor(question: string, termsByPage: ReadonlyMap<string, ReadonlySet<string>>): string[] {
  const soughtWords = soughtWordsOf(question);
  const minWords = minWordsOf(soughtWords.length);
  const pages = [...termsByPage].map(([name, pageTerms]) => {
    return { name, hasWord: soughtWords.map(({ terms }) => terms.some((term) => pageTerms.has(term))) };
  });
  const rarity = soughtWords.map((_, i) => {
    const pagesWithWord = pages.reduce((count, { hasWord }) => count + (hasWord[i] ? 1 : 0), 0);
    return Math.log(1 + pages.length / (1 + pagesWithWord));
  });
  return pages
    .filter(({ hasWord }) => hasWord.filter(Boolean).length >= minWords)
    .map(({ name, hasWord }) => ({ name, score: rarity.reduce((sum, one, i) => sum + (hasWord[i] ? one : 0), 0) }))
    .sort((a, b) => b.score - a.score || (a.name < b.name ? -1 : 1))
    .slice(0, MAX_PAGES)
    .map(({ name }) => name);
}

/**
 * Creates a corpus of the service's own documentation, from the pages exactly as they are served, so that a reader can
 * verify quotations by fetching the pages. A page is extracted for the first question that it may answer; if that
 * fails, it is extracted again for the next such question.
 */
export function createDocsCorpus({ docs, baseUrl, extractor, clock }: DocsCorpusOptions): Corpus {
  const pages = new Map([...docs].filter(([, { type }]) => type === "html"));
  const pendingPages = new Map<string, Promise<Source>>();
  let termsByPage: Map<string, ReadonlySet<string>> | null = null;
  const readPage = async (name: string, { title, text: page }: Doc): Promise<Source> => {
    const bytes = Buffer.from(page);
    const url = `${baseUrl.replace(/\/$/, "")}/docs/${name}`;
    const [sha256, { text, kind, part, cut, headings }] = await Promise.all([
      sha256hexAsync(bytes),
      extractor.read({ bytes, url, part: "main", kinds: ["html"], limits: BRIEF_EXTRACT_LIMITS }),
    ]);
    const readFields = { read: true as const, url, final_url: url, fetched_at: rfc3339(clock.now()) };
    return {
      info: { ...readFields, title, kind, part, sha256, bytes: bytes.length, cut: cut.includes("text") },
      text,
      headings: headingRangesOf(headings),
    };
  };
  return {
    says: "the documentation of this service",
    async findSources(question) {
      termsByPage ??= new Map(
        [...pages].map(([name, { text }]) => [name, new Set(termsOf(text.replaceAll(/<[^>]*>/g, " ")))]),
      );
      const sources: Source[] = [];
      // Pages are extracted one after another, so that documents of clients wait for at most one of them.
      for (const name of pagesFor(question, termsByPage)) {
        const source = pendingPages.get(name) ?? readPage(name, pages.get(name)!);
        pendingPages.set(name, source);
        source.catch(() => pendingPages.delete(name));
        sources.push(await source);
      }
      return sources;
    },
  };
}
