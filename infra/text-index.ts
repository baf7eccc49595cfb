import Database from "better-sqlite3";

/** One word of a text, and its compound with the next word when the two are often written as one word. */
export interface SpelledWord {
  word: string;
  /** The compound: `sha256` for `SHA-256`, `sha 256` and `sha_256`. Null when the two words are not written as one. */
  joined: string | null;
}

/** Longest word, in characters. Longer runs of letters and digits are ignored. */
const MAX_WORD_CHARS = 40;
const WORD = /[\p{L}\p{N}]+/gu;

/**
 * Splits a text into its words, in lower case and in their order, at most `maxWords`. `getPrice` is two words, like
 * `get-price`.
 */
export function splitWords(text: string, maxWords: number): SpelledWord[] {
  const separated = text.normalize("NFKC").replace(/(\p{Ll})(\p{Lu})/gu, "$1-$2");
  const matches = [...separated.matchAll(WORD)].filter(([word]) => word.length <= MAX_WORD_CHARS).slice(0, maxWords);
  return matches.map((match, i) => {
    const word = match[0].toLowerCase();
    const next = matches[i + 1];
    if (next === undefined) return { word, joined: null };
    const between = separated.slice(match.index + match[0].length, next.index);
    return { word, joined: isOneWord(word, between, next[0]) ? word + next[0].toLowerCase() : null };
  });
}

/**
 * Reports whether two words form a compound: a hyphen or underscore joins any two words; a space, dot or slash joins
 * letters with a number.
 */
const isOneWord = (word: string, between: string, next: string): boolean =>
  between === "-" || between === "_" || (/^[ ./]?$/.test(between) && /^\p{L}+$/u.test(word) && /^\p{N}+$/u.test(next));

/** Returns the words of a text as the index stores them, with each compound beside its parts. */
const toIndexedWords = (text: string, maxWords: number): string =>
  splitWords(text, maxWords)
    .flatMap(({ word, joined }) => (joined === null ? [word] : [word, joined]))
    .join(" ");

export interface IndexedText {
  text: string;
  /**
   * Kind of thing that the text is about, as one word. A question also finds the text by words that people use for the
   * kind.
   */
  kind: string;
}

/**
 * The texts that match a question. `words` and `weights` have one element for each word of the question; `rows` (the
 * texts' row numbers), `held` and `scores` have one for each text.
 */
export interface TextMatches {
  /** Words that were searched for, in the question's spelling, at most {@link MAX_WORDS}. */
  words: string[];
  /** Weight of each word: the fewer texts hold the word, the larger it is. */
  weights: number[];
  rows: Uint32Array;
  /** Bit n is set when word n matches the text or its kind. */
  held: Uint16Array;
  /** BM25 score of each text. */
  scores: Float32Array;
}

/** The rows that match one word of a question. */
interface WordRows {
  /** Rows whose text holds the word, or a word that begins with it. */
  textRows: number[];
  /** Score of these rows, as a share of the score of a whole word. */
  share: number;
  /** Rows whose kind people call by the word. */
  kindRows: number[];
}

/** Largest number of words of a question that are searched for. Each takes a bit of {@link TextMatches.held}. */
export const MAX_WORDS = 12;
/** Largest number of words of a text that are indexed. */
const MAX_INDEXED_WORDS = 120;
/** Score of a word that matches only the text's kind, as a share of the score of a word that the text itself holds. */
const KIND_SHARE = 0.4;
/**
 * Score of a word that is only the beginning of a word in the text, as a share of the score of a whole word. Such
 * matches are used when no text holds the whole word and no kind is called by it.
 */
const PREFIX_SHARE = 0.6;
const MIN_PREFIX_CHARS = 4;
const SMALL_NUMBER = /^\d{1,2}$/;
/**
 * BM25's term saturation (K1) and length normalisation (B). A word counts once in each text, however often it occurs.
 */
const K1 = 1.2;
const B = 0.75;

/**
 * An in-memory index of short texts by the stems of their words (SQLite FTS5 with Porter's stemmer). Texts and
 * questions come from strangers, so each word is quoted, and FTS5 reads none of it as query syntax.
 */
export class TextIndex {
  readonly #db = new Database(":memory:");
  readonly #insert: Database.Statement;
  readonly #remove: Database.Statement;
  readonly #find: Database.Statement;
  readonly #kinds: Database.Statement;
  /** Number of words of each row; 0 when the row has no text. */
  #wordCounts = new Uint16Array(1024);
  #rowCount = 0;
  #totalWords = 0;

  /** @param kinds the words that people use for each kind, by the name of the kind */
  constructor(kinds: Readonly<Record<string, string>>) {
    const tokens = `tokenize="porter unicode61"`;
    this.#db.exec(`CREATE VIRTUAL TABLE texts USING fts5(text, kind, content='', contentless_delete=1, ${tokens})`);
    this.#db.exec(`CREATE VIRTUAL TABLE kinds USING fts5(name UNINDEXED, words, ${tokens})`);
    const add = this.#db.prepare("INSERT INTO kinds (name, words) VALUES (?, ?)");
    for (const [name, words] of Object.entries(kinds))
      add.run(kindWord(name), toIndexedWords(words, MAX_INDEXED_WORDS));
    this.#insert = this.#db.prepare("INSERT INTO texts (rowid, text, kind) VALUES (?, ?, ?)");
    this.#remove = this.#db.prepare("DELETE FROM texts WHERE rowid = ?");
    this.#find = this.#db.prepare("SELECT rowid FROM texts WHERE texts MATCH ?").pluck();
    this.#kinds = this.#db.prepare("SELECT name FROM kinds WHERE kinds MATCH ?").pluck();
  }

  /** Replaces the texts of these rows (numbered from 0); null removes the text of a row. */
  put(texts: readonly (readonly [row: number, text: IndexedText | null])[]): void {
    this.#db.transaction(() => {
      for (const [row, text] of texts) this.#put(row, text);
    })();
  }

  #put(row: number, indexedText: IndexedText | null): void {
    if (row >= this.#wordCounts.length) {
      const longer = new Uint16Array(Math.max(row + 1, this.#wordCounts.length * 2));
      longer.set(this.#wordCounts);
      this.#wordCounts = longer;
    }
    if (this.#wordCounts[row]! > 0) {
      this.#remove.run(row);
      this.#rowCount--;
      this.#totalWords -= this.#wordCounts[row]!;
      this.#wordCounts[row] = 0;
    }
    if (indexedText === null) return;
    const text = toIndexedWords(indexedText.text, MAX_INDEXED_WORDS);
    this.#insert.run(row, text, kindWord(indexedText.kind));
    this.#wordCounts[row] = text.split(" ").length;
    this.#rowCount++;
    this.#totalWords += this.#wordCounts[row]!;
  }

  /**
   * Finds every text that holds at least one of the words. Where the index knows the compound of a word and the next
   * word, it searches for the compound. A small number that is not part of a compound (`add 2 numbers`) is skipped.
   * @param byKind true: a text also matches by the words that people use for its kind. false: by its own words alone
   */
  match(questionWords: readonly SpelledWord[], byKind: boolean): TextMatches {
    const foundWords: (WordRows & { word: string })[] = [];
    for (let i = 0; i < questionWords.length && foundWords.length < MAX_WORDS; i++) {
      const { word, joined } = questionWords[i]!;
      const joinedRows =
        joined === null || joined !== word + questionWords[i + 1]?.word ? null : this.#rowsOf(joined, byKind);
      if (joinedRows && joinedRows.textRows.length + joinedRows.kindRows.length > 0) {
        foundWords.push({ word: joined!, ...joinedRows });
        i++;
      } else if (!SMALL_NUMBER.test(word)) foundWords.push({ word, ...this.#rowsOf(word, byKind) });
    }
    return this.#scoreMatches(foundWords);
  }

  #rowsOf(word: string, byKind: boolean): WordRows {
    const kinds = byKind ? (this.#kinds.all(quote(word)) as string[]) : [];
    const kindRows =
      kinds.length === 0 ? [] : (this.#find.all(`kind : (${kinds.map(quote).join(" OR ")})`) as number[]);
    const textRows = this.#find.all(`text : ${quote(word)}`) as number[];
    if (textRows.length + kindRows.length > 0 || word.length < MIN_PREFIX_CHARS)
      return { textRows, share: 1, kindRows };
    return { textRows: this.#find.all(`text : ${quote(word)} *`) as number[], share: PREFIX_SHARE, kindRows };
  }

  #scoreMatches(foundWords: readonly (WordRows & { word: string })[]): TextMatches {
    const held = new Uint16Array(this.#wordCounts.length);
    const scores = new Float32Array(this.#wordCounts.length);
    const mean = this.#totalWords / Math.max(1, this.#rowCount);
    const weights = foundWords.map(({ textRows, share, kindRows }, n) => {
      const textCount = Math.max(textRows.length, kindRows.length);
      const weight = Math.log(1 + (Math.max(0, this.#rowCount - textCount) + 0.5) / (textCount + 0.5));
      const add = (row: number, part: number): void => {
        if (held[row]! & (1 << n)) return;
        held[row]! |= 1 << n;
        scores[row]! += (weight * part * (K1 + 1)) / (1 + K1 * (1 - B + (B * this.#wordCounts[row]!) / mean));
      };
      for (const row of textRows) add(row, share);
      for (const row of kindRows) add(row, KIND_SHARE);
      return weight;
    });
    const rows: number[] = [];
    for (let row = 0; row < held.length; row++) if (held[row] !== 0) rows.push(row);
    return {
      words: foundWords.map(({ word }) => word),
      weights,
      rows: Uint32Array.from(rows),
      held: Uint16Array.from(rows, (row) => held[row]!),
      scores: Float32Array.from(rows, (row) => scores[row]!),
    };
  }
}

/** Quotes a word as an FTS5 string, in which no character is query syntax. */
const quote = (word: string): string => `"${word.replaceAll('"', '""')}"`;

/** Returns the name of a kind as one word that FTS5 can index. */
const kindWord = (kind: string): string => kind.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
