/**
 * The extractive method: BM25 over sentences (Robertson and Zaragoza, 2009), with maximal marginal relevance (Carbonell
 * and Goldstein, 1998). Sentences that state the same become one claim with several quotations. Two sentences about the
 * same thing are a difference if their figures differ; so are two nearly equal sentences of which one is negated. The
 * result is deterministic.
 */
import { type Piece, type RankingText, sentencesOf } from "./sentences.ts";
import { type SoughtWord, soughtWordsOf, termsOf, wordsOf } from "./terms.ts";

/** A sentence, with the index of its text. */
export interface RankedSentence extends Piece {
  source: number;
}

/** Two sentences that contradict each other, and what they differ in. */
export interface Difference<Sentence> {
  differsIn: string;
  sentences: readonly [Sentence, Sentence];
}

export interface Ranked {
  /** Best claim first. The sentences of one claim state the same; its best sentence is first. */
  claims: RankedSentence[][];
  differences: Difference<RankedSentence>[];
}

/** The usual constants of BM25: saturation of repeated words, and normalisation by the length of a sentence. */
const K1 = 1.2;
const B = 0.75;
/** Weight of relevance; the rest is the penalty for similarity to selected sentences. */
const LAMBDA = 0.7;
/** Two sentences count as equal when the Jaccard similarity of their words is at least this. */
const EQUAL_SIMILARITY = 0.6;
/**
 * Two sentences are about the same thing when the similarity of their words, without figures and units, is at least
 * this and they share two words or more.
 */
const RELATED_SIMILARITY = 0.2;
/** Factor for the score of a sentence with a figure when the question asks for one. */
const FIGURE_FACTOR = 1.5;
/** Largest number of relevant sentences from which the claims are selected. */
const MAX_CANDIDATES = 200;
/** Largest number of sentences that are examined, of all texts together. */
const MAX_SENTENCES = 40_000;
/** Largest number of sentences of one claim. */
const MAX_QUOTATIONS = 4;
const MAX_DIFFERENCES = 4;

const ASKS_A_FIGURE =
  /\b(?:how (?:long|much|many|often|old|far|big|large|high|late|soon|fast)|when|what (?:year|date|time|price)|wie (?:lange|viele?|oft|alt|weit|groß|hoch|spät|schnell)|wieviele?|wann|bis wann)\b/iu;

interface Candidate extends RankedSentence {
  /** The terms of the sentence, each with its number of occurrences. */
  words: Map<string, number>;
  /** Number of all occurrences in `words`. */
  length: number;
  score: number;
}

function collectSentences(texts: readonly RankingText[]): Candidate[] {
  const all: Candidate[] = [];
  for (const [source, text] of texts.entries()) {
    for (const piece of sentencesOf(text)) {
      if (all.length >= MAX_SENTENCES) return all;
      const words = wordCounts(piece.text);
      const length = [...words.values()].reduce((sum, count) => sum + count, 0);
      all.push({ source, ...piece, words, length, score: 0 });
    }
  }
  return all;
}

/**
 * A sentence is relevant only if the words of the question that it contains have at least this share of the weight of
 * all words of the question. The rarer a word is in the texts, the more it weighs.
 */
const MIN_WEIGHT_SHARE = 0.4;
/**
 * Returns how many of a question's words a relevant sentence must contain: two fifths, but at least two if there are
 * two.
 */
export const minWordsOf = (words: number): number => Math.max(Math.min(2, words), Math.ceil(0.4 * words));

/** Counts how often a sentence has a word of the question, in any of the terms that stand for it. */
const countOccurrences = (words: ReadonlyMap<string, number>, { terms }: SoughtWord): number =>
  terms.reduce((sum, term) => sum + (words.get(term) ?? 0), 0);

function scoreRelevant(all: readonly Candidate[], question: string): Candidate[] {
  const average = all.reduce((sum, { length }) => sum + length, 0) / Math.max(1, all.length);
  const weights = soughtWordsOf(question).map((sought) => {
    const sentencesWithWord = all.reduce(
      (count, { words }) => count + (countOccurrences(words, sought) > 0 ? 1 : 0),
      0,
    );
    return { sought, idf: Math.log(1 + (all.length - sentencesWithWord + 0.5) / (sentencesWithWord + 0.5)) };
  });
  const minWords = minWordsOf(weights.length);
  const totalWeight = weights.reduce((sum, { idf }) => sum + idf, 0);
  const asksFigure = ASKS_A_FIGURE.test(question);
  const relevant: Candidate[] = [];
  for (const sentence of all) {
    let heldWordCount = 0;
    let weight = 0;
    let score = 0;
    for (const { sought, idf } of weights) {
      const count = countOccurrences(sentence.words, sought);
      if (count === 0) continue;
      heldWordCount++;
      weight += idf;
      score += (idf * count * (K1 + 1)) / (count + K1 * (1 - B + (B * sentence.length) / average));
    }
    if (heldWordCount < minWords || weight < MIN_WEIGHT_SHARE * totalWeight) continue;
    sentence.score = asksFigure && /\p{N}/u.test(sentence.text) ? score * FIGURE_FACTOR : score;
    relevant.push(sentence);
  }
  const compareCandidates = (a: Candidate, b: Candidate) =>
    b.score - a.score || a.source - b.source || a.offset - b.offset;
  return relevant.sort(compareCandidates).slice(0, MAX_CANDIDATES);
}

type WordSet = ReadonlyMap<string, number>;

const countShared = (a: WordSet, b: WordSet): number => [...a.keys()].filter((word) => b.has(word)).length;

/** Returns the Jaccard similarity: the number of shared words by the number of all words, 0 to 1. */
function similarity(a: WordSet, b: WordSet): number {
  const sharedCount = countShared(a, b);
  return sharedCount / (a.size + b.size - sharedCount || 1);
}

const NEGATIONS = new Set(
  "not no never none nobody nothing neither nor cannot without unless except nicht kein keine keinen nie niemals ohne".split(
    " ",
  ),
);
const isNegated = (text: string): boolean =>
  wordsOf(text).some((word) => NEGATIONS.has(word)) || /n['’]t\b/i.test(text);

/** Units of figures that are compared, by their spellings. */
const UNITS: Readonly<Record<string, string>> = Object.fromEntries(
  `seconds second sec s sekunde sekunden|minutes minute min minuten|hours hour h stunde stunden|days day tag tage tagen|weeks week woche wochen|months month monat monate monaten
  years year jahr jahre jahren|percent % prozent|USD usd usdc $ dollar dollars|EUR eur € euro euros|GBP gbp £ pound pounds|cents cent ¢|km kilometre kilometres kilometer kilometers|m metre metres meter meters
  kg kilogram kilograms|KB kb kib|MB mb mib|GB gb gib|ms millisecond milliseconds|people person persons|requests request|times time|pages page|characters character`
    .split(/[|\n]/)
    .flatMap((line) => {
      const [unit, ...spelled] = line.trim().split(" ");
      return [unit!.toLowerCase(), ...spelled].map((one) => [one, unit!]);
    }),
);
const FIGURE = /([$€£])?\s?(\d{1,12}(?:[.,]\d{1,6})*)\s?((?:[%¢€$]|\p{L}+)?)(?:[\s-](\p{L}+))?/gu;

/**
 * Returns the figures of a sentence by their unit, without thousands separators and trailing zeros. A word may stand
 * between figure and unit: `14 full days`.
 */
function figuresOf(text: string): Map<string, Set<string>> {
  const figures = new Map<string, Set<string>>();
  for (const [, sign, number, first = "", second = ""] of text.matchAll(FIGURE)) {
    const unit = [sign, first, second].map((one) => one && UNITS[one.toLowerCase()]).find((one) => one);
    if (!unit) continue;
    const value = number!
      .replace(/,(?=\d{3}\b)/g, "")
      .replace(/(\.\d*?)0+$/, "$1")
      .replace(/\.$/, "");
    figures.set(unit, (figures.get(unit) ?? new Set()).add(value));
  }
  return figures;
}

/** Words that stand beside many figures, and so do not show what a sentence is about. */
const FIGURE_WORDS = new Set("within after before until least most up first last per each every only".split(" "));
/** Returns the terms of a sentence without figures, units and the words beside them. */
const subjectOf = (text: string): WordSet =>
  new Map(
    termsOf(text)
      .filter((term) => !/^\p{N}/u.test(term) && !Object.hasOwn(UNITS, term) && !FIGURE_WORDS.has(term))
      .map((term) => [term, 1]),
  );

/**
 * Returns what two sentences differ in, as words for people; null when their words show no contradiction. They differ
 * when they are about the same thing and have different figures with one unit, or when they are nearly equal and one is
 * negated.
 */
export function differenceOf(a: string, b: string): string | null {
  const [subjectA, subjectB] = [subjectOf(a), subjectOf(b)];
  const subjectSimilarity = similarity(subjectA, subjectB);
  if (subjectSimilarity >= RELATED_SIMILARITY && countShared(subjectA, subjectB) >= 2) {
    const figuresOfB = figuresOf(b);
    for (const [unit, valuesOfA] of figuresOf(a)) {
      const valuesOfB = figuresOfB.get(unit);
      if (!valuesOfB || [...valuesOfA].some((value) => valuesOfB.has(value))) continue;
      return `${[...valuesOfA].join(", ")} or ${[...valuesOfB].join(", ")} ${unit}`;
    }
  }
  return subjectSimilarity >= EQUAL_SIMILARITY && isNegated(a) !== isNegated(b) ? "one of them says not" : null;
}

const wordCounts = (text: string): Map<string, number> => {
  const words = new Map<string, number>();
  for (const term of termsOf(text)) words.set(term, (words.get(term) ?? 0) + 1);
  return words;
};
const figuresIn = (words: WordSet): string =>
  [...words.keys()]
    .filter((word) => /\p{N}/u.test(word))
    .sort()
    .join(" ");

/**
 * Returns true if two sentences state the same: nearly equal words, equal figures, and a negation in both or neither.
 * Returns false if one of these differs.
 */
export const isSameStatement = (a: string, b: string): boolean =>
  isEqualStatement({ text: a, words: wordCounts(a) }, { text: b, words: wordCounts(b) });

type CountedSentence = Pick<Candidate, "text" | "words">;
const isEqualStatement = (a: CountedSentence, b: CountedSentence): boolean =>
  similarity(a.words, b.words) >= EQUAL_SIMILARITY &&
  isNegated(a.text) === isNegated(b.text) &&
  figuresIn(a.words) === figuresIn(b.words);

const toRankedSentence = ({ source, offset, text }: Candidate): RankedSentence => ({ source, offset, text });

/**
 * Selects at most `maxClaims` claims in sentences of `texts` that are relevant to the question, best first. Candidates
 * that state the same as a selected sentence are quoted with it, at most one of each text.
 */
export function rank(question: string, texts: readonly RankingText[], maxClaims: number): Ranked {
  const candidates = scoreRelevant(collectSentences(texts), question);
  const bestScore = candidates[0]?.score ?? 1;
  const chosen: Candidate[][] = [];
  // Similarity of each candidate to the most similar selected sentence, updated after each selection.
  const similarityToChosen = new Map(candidates.map((one) => [one, 0]));
  while (chosen.length < maxClaims && similarityToChosen.size > 0) {
    let next: Candidate | null = null;
    let bestValue = -Infinity;
    for (const [one, near] of similarityToChosen) {
      const value = (LAMBDA * one.score) / bestScore - (1 - LAMBDA) * near;
      if (value > bestValue) [next, bestValue] = [one, value];
    }
    const claim = [next!];
    chosen.push(claim);
    similarityToChosen.delete(next!);
    for (const [one, near] of similarityToChosen) {
      if (isEqualStatement(one, next!)) {
        similarityToChosen.delete(one);
        const isNew = claim.every(({ source }) => source !== one.source);
        if (isNew && claim.length < MAX_QUOTATIONS) claim.push(one);
      } else similarityToChosen.set(one, Math.max(near, similarity(one.words, next!.words)));
    }
  }
  return { claims: chosen.map((claim) => claim.map(toRankedSentence)), differences: differencesIn(chosen, candidates) };
}

/** Returns the differences between selected sentences and candidates of other texts, the best first. */
function differencesIn(chosen: readonly Candidate[][], candidates: readonly Candidate[]): Difference<RankedSentence>[] {
  const differences: Difference<RankedSentence>[] = [];
  const used = new Set<Candidate>();
  for (const [one] of chosen) {
    for (const other of candidates) {
      if (other.source === one!.source || used.has(other) || differences.length >= MAX_DIFFERENCES) continue;
      const about = differenceOf(one!.text, other.text);
      if (about === null) continue;
      used.add(one!).add(other);
      differences.push({ differsIn: about, sentences: [toRankedSentence(one!), toRankedSentence(other)] });
    }
  }
  return differences;
}
