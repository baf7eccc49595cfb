import { BoundedThread } from "../../../infra/bounded-thread.ts";
import { type Difference, differenceOf, isSameStatement, type Ranked } from "./rank.ts";
import { type RankingText, sentencesIn, wholeSentences } from "./sentences.ts";

/** A text that a brief (the answer to a question, made of quotations) may quote. */
export interface Evidence extends RankingText {
  url: string;
}

/** A quotation from one text of the evidence. */
export interface Quote {
  /** Index of the text in the evidence. */
  source: number;
  text: string;
  /**
   * Offset at which the quotation is said to begin. If it is absent or wrong, the text is searched for the quotation.
   */
  offset?: number;
}

/** A claim of a brief, with the quotations that state it. */
export interface Claim<Quotation = Quote> {
  text: string;
  quotations: readonly Quotation[];
}

/** Claims and differences (contradictions between two quotations) of a brief, before or after they are verified. */
export interface Draft<Quotation = Quote> {
  /** Best first; empty when nothing answers the question. */
  claims: readonly Claim<Quotation>[];
  differences: readonly Difference<Quotation>[];
}

/**
 * Writes the draft of a brief. An implementation may be a language model, since only claims that the sources contain
 * are kept ({@link verifyDraft}).
 */
export interface Summariser {
  readonly name: string;
  /** Description of the method, which the brief shows to its reader. */
  readonly says: string;
  /**
   * Returns at most `maxClaims` claims that answer the question.
   * @throws Error when it fails
   */
  summarise(question: string, evidence: readonly Evidence[], maxClaims: number, signal: AbortSignal): Promise<Draft>;
}

/** A quotation that was found in its text and widened to whole sentences, with its offset. */
export type VerifiedQuote = Required<Quote>;

/** Shortest and longest text that counts as a quotation, characters. */
const QUOTE_CHARS = { min: 20, max: 600 };
/** Largest number of quotations of one claim. */
const MAX_QUOTATIONS = 4;
/** Largest number of differences of one brief. */
const MAX_DIFFERENCES = 4;

/** Returns a quotation widened to whole sentences, if it occurs verbatim in the text that it names; null otherwise. */
export function verifyQuote({ source, text, offset }: Quote, evidence: readonly Evidence[]): VerifiedQuote | null {
  const sourceText = evidence[source];
  if (sourceText === undefined || text.length < QUOTE_CHARS.min || text.length > QUOTE_CHARS.max) return null;
  const at = offset !== undefined && sourceText.text.startsWith(text, offset) ? offset : sourceText.text.indexOf(text);
  if (at === -1) return null;
  const piece = wholeSentences(sourceText, at, text.length);
  return piece && { source, ...piece };
}

/** Words that do not change what a sentence states. They are ignored when a claim is compared with a quotation. */
const FILLERS = new Set("additionally also furthermore hence however indeed moreover please therefore thus".split(" "));
const EDGE_PUNCTUATION = /^[,;:.!?"'“”‘’«»()[\]]+|[,;:.!?"'“”‘’«»()[\]]+$/g;

/**
 * Returns the words of a sentence in the form in which sentences are compared: in lower case, without punctuation at
 * their ends and without {@link FILLERS}. Signs beside a figure, such as `%`, stay.
 */
const comparableWords = (text: string): string =>
  text
    .normalize("NFC")
    .toLowerCase()
    .split(/\s+/)
    .map((word) => word.replace(EDGE_PUNCTUATION, ""))
    .filter((word) => word !== "" && !FILLERS.has(word))
    .join(" ");

/**
 * Returns the sentences of the quotation that a claim states, in the quotation's own words; null when the claim adds,
 * omits, replaces or moves a word of them. A looser comparison would accept a sentence without its negation, condition
 * or subject, which states something else.
 */
export function statedSentences(claim: string, quotation: string): string | null {
  const comparedClaim = claim.length > 2 * QUOTE_CHARS.max ? "" : comparableWords(claim);
  if (comparedClaim === "") return null;
  const sentences = sentencesIn(quotation);
  for (let first = 0; first < sentences.length; first++) {
    for (let last = first + 1; last <= sentences.length; last++) {
      const sentenceRun = sentences.slice(first, last).join(" ");
      if (comparableWords(sentenceRun) === comparedClaim) return sentenceRun.replaceAll(/\s+/g, " ");
    }
  }
  return null;
}

/** The verified part of a draft, and the number of claims and differences that were left out. */
export interface VerifiedDraft extends Draft<VerifiedQuote> {
  leftOutCount: number;
}

/**
 * Returns the claims and differences of a draft that the evidence contains. A claim is kept if it states sentences of
 * one of its verbatim quotations, with the words of that source, and with those of its other quotations that state the
 * same. A difference is kept if {@link differenceOf} finds one between its two quotations. Of claims with equal text
 * the first is kept.
 * @param maxClaims number of the draft's claims that are verified; the others are ignored
 */
export function verifyDraft(
  { claims, differences }: Draft,
  evidence: readonly Evidence[],
  maxClaims: number,
): VerifiedDraft {
  const claimByText = new Map<string, Claim<VerifiedQuote>>();
  const draftClaims = claims.slice(0, maxClaims);
  let leftOutCount = 0;
  for (const { text, quotations } of draftClaims) {
    const quotes = quotations
      .slice(0, MAX_QUOTATIONS)
      .map((quote) => verifyQuote(quote, evidence))
      .filter((quote) => quote !== null);
    const mainQuote = quotes.find((quote) => statedSentences(text, quote.text) !== null);
    if (!mainQuote) {
      leftOutCount++;
      continue;
    }
    const stated = statedSentences(text, mainQuote.text)!;
    const others = quotes.filter((quote) => quote !== mainQuote && isSameStatement(quote.text, mainQuote.text));
    if (!claimByText.has(stated))
      claimByText.set(stated, { text: stated, quotations: withoutDuplicates([mainQuote, ...others]) });
  }
  const keptDifferences: Difference<VerifiedQuote>[] = [];
  for (const { sentences } of differences.slice(0, MAX_DIFFERENCES)) {
    const [a, b] = sentences.map((quote) => verifyQuote(quote, evidence));
    const difference = a && b && a.source !== b.source ? differenceOf(a.text, b.text) : null;
    if (difference === null) leftOutCount++;
    else keptDifferences.push({ differsIn: difference, sentences: [a!, b!] });
  }
  return { claims: [...claimByText.values()], differences: keptDifferences, leftOutCount };
}

const withoutDuplicates = (quotes: readonly VerifiedQuote[]): VerifiedQuote[] => [
  ...new Map(quotes.map((quote) => [`${quote.source} ${quote.offset}`, quote])).values(),
];

/** Limits of one ranking. Two megabytes of text take a second, so only a text made to take long exceeds them. */
const RANK_LIMITS = { cpuMs: 5_000, urgent: false };
/** Largest heap of the ranking thread. */
const MEMORY = { maxOldGenerationSizeMb: 384 };
const MAX_WAITING = 50;

const thread = new BoundedThread(new URL("./rank-worker.mjs", import.meta.url), {
  does: "ranks sentences",
  memory: MEMORY,
  maxWaiting: MAX_WAITING,
});

/**
 * Ranks the sentences of the evidence in another thread.
 * @throws Error when it takes too long or too many requests wait
 */
export const rankInThread = (question: string, evidence: readonly Evidence[], maxClaims: number): Promise<Ranked> =>
  thread.ask<Ranked>({ question, texts: evidence.map(({ url: _, ...text }) => text), most: maxClaims }, RANK_LIMITS);

/** Selects sentences of the evidence by BM25, a ranking function for text search. */
export const extractive: Summariser = {
  name: "extractive",
  says: "Sentences chosen by BM25; those that say the same are one claim. Nothing is written that no source says.",
  async summarise(question, evidence, maxClaims) {
    const { claims, differences } = await rankInThread(question, evidence, maxClaims);
    return { claims: claims.map((quotations) => ({ text: quotations[0]!.text, quotations })), differences };
  },
};
