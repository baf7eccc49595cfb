import { BoundedThread } from "../../../infra/bounded-thread.ts";
import type { RankedSentence, RankingText } from "./rank.ts";

/** A text that a brief may quote. */
export interface Evidence extends RankingText {
  url: string;
}

/** A sentence of a brief, which quotes a text of the evidence. */
export interface Quote {
  /** Index of the text in the evidence. */
  source: number;
  text: string;
  /** Claimed offset in the text; the text is searched when it is absent or wrong. */
  offset?: number;
}

/**
 * Selects the sentences of a brief. An implementation may be a language model, since only verbatim quotes are kept
 * ({@link verifiedQuotes}).
 */
export interface Summariser {
  readonly name: string;
  /** Description of the method for the answer. */
  readonly says: string;
  /**
   * Returns at most `most` sentences that answer the question, best first; empty when none does.
   * @throws Error when it fails
   */
  summarise(
    question: string,
    evidence: readonly Evidence[],
    most: number,
    signal: AbortSignal,
  ): Promise<readonly Quote[]>;
}

/** A quote with its verified offset. */
export type VerifiedQuote = Required<Quote>;

/** Shortest text that counts as a quote, characters. */
const MIN_QUOTE = 20;

/** Returns the distinct quotes that occur verbatim in the text that they name; all others are dropped. */
export function verifiedQuotes(quotes: readonly Quote[], evidence: readonly Evidence[]): VerifiedQuote[] {
  const kept = new Map<string, VerifiedQuote>();
  for (const { source, text, offset } of quotes) {
    const whole = evidence[source]?.text;
    if (whole === undefined || text.length < MIN_QUOTE) continue;
    const at = offset !== undefined && whole.startsWith(text, offset) ? offset : whole.indexOf(text);
    if (at !== -1 && !kept.has(text)) kept.set(text, { source, text, offset: at });
  }
  return [...kept.values()];
}

/** Ranking two megabytes of text takes a second; the limit is for texts that are made to take longer. */
const LIMITS = { cpuMs: 5_000, urgent: false };
/** Heap of the thread. */
const MEMORY = { maxOldGenerationSizeMb: 384 };
const MAX_WAITING = 50;

const thread = new BoundedThread(new URL("./rank-worker.mjs", import.meta.url), {
  does: "ranks sentences",
  memory: MEMORY,
  maxWaiting: MAX_WAITING,
});

/** Selects sentences of the evidence by BM25. */
export const extractive: Summariser = {
  name: "extractive",
  says: "Sentences chosen by BM25; of similar ones only the best. Nothing is written that no source says.",
  summarise(question, evidence, most) {
    const texts = evidence.map(({ text, wraps }) => ({ text, wraps }));
    return thread.ask<RankedSentence[]>({ question, texts, most }, LIMITS);
  },
};
