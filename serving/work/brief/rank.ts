/**
 * Which sentences answer a question: BM25 over sentences (Robertson and Zaragoza, 2009), and of what is alike only the best
 * (maximal marginal relevance, Carbonell and Goldstein, 1998). The same texts and question give the same sentences.
 */

/** A sentence of a text. */
export interface Ranked {
  source: number;
  offset: number;
  text: string;
}

/** Usual constants of BM25: how soon a repeated word counts no more, and how much a long sentence is held back. */
const K1 = 1.2;
const B = 0.75;
/** Weight of relevance against likeness to what was chosen already. */
const LAMBDA = 0.7;
/** Two sentences count as the same from this share of words in common on (Jaccard). */
const SAME = 0.6;
/** Sentences among which is chosen, sentences of all texts, and what a sentence is long, in characters. */
const MAX_CANDIDATES = 200;
const MAX_SENTENCES = 40_000;
const CHARS = { min: 20, max: 600 };

/** Stop words of English. */
const STOPWORDS = new Set(
  "a about all also am an and any are as at be been being but by can could did do does for from had has have he her his how i if in into is it its may me might more most my no not of on one or our shall she should so some such than that the their them then there these they this those to was we were what when where which who whom whose why will with would you your".split(
    " ",
  ),
);

/** Scripts that are written without spaces: a character is a word. */
const WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{M}\p{N}]+/gu;

/** The singular of a word, by the S-stemmer (Harman, 1991): it joins what differs by its plural and nothing else. */
function stem(word: string): string {
  if (word.length < 4) return word;
  if (/[^ea]ies$/.test(word)) return `${word.slice(0, -3)}y`;
  if (/[^aeo]es$/.test(word)) return word.slice(0, -1);
  return /[^us]s$/.test(word) ? word.slice(0, -1) : word;
}

/** Words of a text that can be looked for. */
export const termsOf = (text: string): string[] =>
  (text.normalize("NFKC").toLowerCase().match(WORD) ?? []).filter((word) => !STOPWORDS.has(word)).map(stem);

const segmenter = new Intl.Segmenter("en", { granularity: "sentence" });

/** A text to choose from. */
export interface Ranking {
  text: string;
  /** Its lines end where a page did, so that paragraphs are what an empty line sets apart; else each line is one. */
  wraps: boolean;
}

/** Sentences of a text with their offsets, word for word. No sentence goes on in the next paragraph. */
export function* sentencesOf({ text, wraps }: Ranking): Generator<{ offset: number; text: string }> {
  let from = 0;
  for (const paragraph of text.split(wraps ? "\n\n" : "\n")) {
    // As long as before, so that offsets stay: a line's end would end a sentence too.
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

interface Candidate extends Ranked {
  words: Map<string, number>;
  length: number;
  score: number;
}

function candidatesOf(texts: readonly Ranking[]): Candidate[] {
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

/** A sentence says something of a question when it has two of its words, and a third of them; of one word, that one. */
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
 * The sentences of `texts` that say most of the question and not the same twice, best first; none where none has its words.
 * @param most how many
 */
export function rank(question: string, texts: readonly Ranking[], most: number): Ranked[] {
  const terms = [...new Set(termsOf(question))];
  const candidates = scored(candidatesOf(texts), terms);
  const best = candidates[0]?.score ?? 1;
  const chosen: Candidate[] = [];
  // Likeness to the nearest chosen one, kept beside each candidate as the choice grows.
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
