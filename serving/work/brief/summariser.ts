import { BoundedThread } from "../../../infra/bounded-thread.ts";
import type { Ranked, Ranking } from "./rank.ts";

/** A text that a brief may quote. */
export interface Evidence extends Ranking {
  url: string;
}

/** A sentence of a brief, and the place in the evidence of what it is quoted from. */
export interface Quote {
  source: number;
  text: string;
  /** Where it is said to begin; looked for where absent. */
  offset?: number;
}

/** What makes a brief. A model may stand here: what it gives is kept only where it is quoted ({@link verifiedQuotes}). */
export interface Summariser {
  readonly name: string;
  /** What it does, for whoever reads its briefs. */
  readonly says: string;
  /**
   * At most `most` sentences that answer the question, best first; none where nothing does.
   * @throws when it cannot tell at all
   */
  summarise(
    question: string,
    evidence: readonly Evidence[],
    most: number,
    signal: AbortSignal,
  ): Promise<readonly Quote[]>;
}

/** A quote as it stands in its source. */
export type VerifiedQuote = Required<Quote>;

/** Shortest text that counts as a quote, characters: single words stand everywhere. */
const MIN_QUOTE = 20;

/** Quotes that stand word for word in the source that they name, once each; all others are dropped. */
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

/** Two megabytes of text are ranked within a second; the limit is for texts that were written to take longer. */
const LIMITS = { cpuMs: 5_000, urgent: false };
/** Memory of the thread, MiB. */
const MEMORY = { maxOldGenerationSizeMb: 384 };
const MAX_WAITING = 50;

const thread = new BoundedThread(new URL("./rank-worker.mjs", import.meta.url), {
  does: "ranks sentences",
  memory: MEMORY,
  maxWaiting: MAX_WAITING,
});

/** Chooses sentences and writes none. */
export const extractive: Summariser = {
  name: "extractive",
  says: "Sentences chosen by BM25; of similar ones only the best. Nothing is written that no source says.",
  summarise(question, evidence, most) {
    const texts = evidence.map(({ text, wraps }) => ({ text, wraps }));
    return thread.ask<Ranked[]>({ question, texts, most }, LIMITS);
  },
};
