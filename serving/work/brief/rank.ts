/**
 * Selects the sentences that answer a question: BM25 over sentences (Robertson and Zaragoza, 2009), with maximal marginal
 * relevance (Carbonell and Goldstein, 1998) so that similar sentences are selected once. The result is deterministic.
 */

/** A sentence, with the index of its text and its offset in it (UTF-16 units). */
export interface RankedSentence {
  source: number;
  offset: number;
  text: string;
}

/** The usual constants of BM25: saturation of repeated words, and normalisation by the length of a sentence. */
const K1 = 1.2;
const B = 0.75;
/** Weight of relevance; the rest is the penalty for similarity to selected sentences. */
const LAMBDA = 0.7;
/** Jaccard similarity of words from which on two sentences count as equal. */
const SAME = 0.6;
/** Most sentences to select from, most sentences of all texts, and the length of a sentence in characters. */
const MAX_CANDIDATES = 200;
const MAX_SENTENCES = 40_000;
const CHARS = { min: 20, max: 600 };

/** Stop words of English. */
const STOPWORDS = new Set(
  "a about all also am an and any are as at be been being but by can could did do does for from had has have he her his how i if in into is it its may me might more most my no not of on one or our shall she should so some such than that the their them then there these they this those to was we were what when where which who whom whose why will with would you your".split(
    " ",
  ),
);

/** Matches words; in scripts that are written without spaces, single characters. */
const WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{M}\p{N}]+/gu;

/** Returns the singular of an English word, by the S-stemmer (Harman, 1991). */
function stem(word: string): string {
  if (word.length < 4) return word;
  if (/[^ea]ies$/.test(word)) return `${word.slice(0, -3)}y`;
  if (/[^aeo]es$/.test(word)) return word.slice(0, -1);
  return /[^us]s$/.test(word) ? word.slice(0, -1) : word;
}

/** Returns the search terms of a text: its words without stop words, stemmed. */
export const termsOf = (text: string): string[] =>
  (text.normalize("NFKC").toLowerCase().match(WORD) ?? []).filter((word) => !STOPWORDS.has(word)).map(stem);

const segmenter = new Intl.Segmenter("en", { granularity: "sentence" });

/** A text to select sentences from. */
export interface RankingText {
  text: string;
  /** Whether lines are wrapped, so that an empty line ends a paragraph; otherwise each line is a paragraph. */
  wraps: boolean;
}

/** Yields the sentences of a text, unchanged, with their offsets. A sentence does not cross paragraphs. */
export function* sentencesOf({ text, wraps }: RankingText): Generator<{ offset: number; text: string }> {
  let from = 0;
  for (const paragraph of text.split(wraps ? "\n\n" : "\n")) {
    // Line feeds become blanks, because the segmenter would end a sentence at them; offsets do not change.
    for (const { segment, index } of segmenter.segment(paragraph.replaceAll("\n", " "))) {
      const start = index + segment.length - segment.trimStart().length;
      const sentence = paragraph.slice(start, index + segment.trimEnd().length);
      if (sentence.length >= CHARS.min && sentence.length <= CHARS.max && !sentence.includes("\t")) {
        yield { offset: from + start, text: sentence };
      }
    }
    from += paragraph.length + (wraps ? 2 : 1);
  }
}

interface Candidate extends RankedSentence {
  words: Map<string, number>;
  length: number;
  score: number;
}

function candidatesOf(texts: readonly RankingText[]): Candidate[] {
  const all: Candidate[] = [];
  for (const [source, text] of texts.entries()) {
    for (const { offset, text: sentence } of sentencesOf(text)) {
      if (all.length >= MAX_SENTENCES) return all;
      const terms = termsOf(sentence);
      const words = new Map<string, number>();
      for (const term of terms) words.set(term, (words.get(term) ?? 0) + 1);
      all.push({ source, offset, text: sentence, words, length: terms.length, score: 0 });
    }
  }
  return all;
}

/** Returns how many of a question's terms a relevant sentence has: a third of them, and at least two if there are two. */
const wantedOf = (terms: number): number => Math.max(Math.min(2, terms), Math.ceil(terms / 3));

function scored(all: readonly Candidate[], terms: readonly string[]): Candidate[] {
  const average = all.reduce((sum, { length }) => sum + length, 0) / Math.max(1, all.length);
  const weights = terms.map((term) => {
    const having = all.reduce((count, { words }) => count + (words.has(term) ? 1 : 0), 0);
    return { term, idf: Math.log(1 + (all.length - having + 0.5) / (having + 0.5)) };
  });
  const wanted = wantedOf(terms.length);
  const relevant: Candidate[] = [];
  for (const one of all) {
    const held = weights.filter(({ term }) => one.words.has(term));
    if (held.length < wanted) continue;
    one.score = held.reduce((sum, { term, idf }) => {
      const count = one.words.get(term)!;
      return sum + (idf * count * (K1 + 1)) / (count + K1 * (1 - B + (B * one.length) / average));
    }, 0);
    relevant.push(one);
  }
  const better = (a: Candidate, b: Candidate) => b.score - a.score || a.source - b.source || a.offset - b.offset;
  return relevant.sort(better).slice(0, MAX_CANDIDATES);
}

function likeness(a: Candidate, b: Candidate): number {
  let both = 0;
  for (const word of a.words.keys()) if (b.words.has(word)) both += 1;
  return both / (a.words.size + b.words.size - both || 1);
}

/**
 * Selects at most `most` sentences of `texts` that are relevant to the question and not similar to each other, best first.
 */
export function rank(question: string, texts: readonly RankingText[], most: number): RankedSentence[] {
  const terms = [...new Set(termsOf(question))];
  const candidates = scored(candidatesOf(texts), terms);
  const best = candidates[0]?.score ?? 1;
  const chosen: Candidate[] = [];
  // Similarity of each candidate to the most similar selected sentence, updated after each selection.
  const nearest = new Map(candidates.map((one) => [one, 0]));
  while (chosen.length < most && nearest.size > 0) {
    let next: Candidate | null = null;
    let worth = -Infinity;
    for (const [one, near] of nearest) {
      const value = (LAMBDA * one.score) / best - (1 - LAMBDA) * near;
      if (value > worth) [next, worth] = [one, value];
    }
    chosen.push(next!);
    nearest.delete(next!);
    for (const [one, near] of nearest) {
      const like = likeness(one, next!);
      if (like >= SAME) nearest.delete(one);
      else nearest.set(one, Math.max(near, like));
    }
  }
  return chosen.map(({ source, offset, text }) => ({ source, offset, text }));
}
