import Database from "better-sqlite3";

/** One word as it stands in a text, and what it makes with the next one where the two are often written as one. */
export interface Spelled {
  word: string;
  /** `sha256` of `SHA-256`, `sha 256` and `sha_256`; null where the next word is a word of its own. */
  joined: string | null;
}

/** Longest word that is kept; a longer one is no word. */
const MAX_WORD = 40;
const WORD = /[\p{L}\p{N}]+/gu;

/** Words of a text in lower case, in their order, at most `most`. `getPrice` is two words, as `get-price` is. */
export function spelled(text: string, most: number): Spelled[] {
  const apart = text.normalize("NFKC").replace(/(\p{Ll})(\p{Lu})/gu, "$1-$2");
  const found = [...apart.matchAll(WORD)].filter(([word]) => word.length <= MAX_WORD).slice(0, most);
  return found.map((at, i) => {
    const word = at[0].toLowerCase();
    const next = found[i + 1];
    if (next === undefined) return { word, joined: null };
    const between = apart.slice(at.index + at[0].length, next.index);
    return { word, joined: areOne(word, between, next[0]) ? word + next[0].toLowerCase() : null };
  });
}

/** A hyphen joins any two words; a space joins a word with the number that follows it. */
const areOne = (word: string, between: string, next: string): boolean =>
  between === "-" || between === "_" || (/^[ ./]?$/.test(between) && /^\p{L}+$/u.test(word) && /^\p{N}+$/u.test(next));

/** The words of one text for the index: joined ones beside their parts. */
const indexed = (text: string, most: number): string =>
  spelled(text, most)
    .flatMap(({ word, joined }) => (joined === null ? [word] : [word, joined]))
    .join(" ");

export interface IndexedText {
  text: string;
  /** What kind of thing the text is about: one word, which brings what is known of the kind. */
  kind: string;
}

/** What a question found. Arrays of one length; `words` and `weights` of another. */
export interface Matched {
  /** Words that were looked for, as they were asked, at most {@link MAX_WORDS}. */
  words: string[];
  /** How rare each one is: more for one that fewer texts hold. */
  weights: number[];
  rows: Uint32Array;
  /** Bit n: the text, or its kind, holds word n. */
  held: Uint16Array;
  /** How well each one fits. */
  scores: Float32Array;
}

/** Most words of one question that are looked for; bits of {@link Matched.held}. */
export const MAX_WORDS = 12;
/** Most words of one text that are indexed. */
const MAX_INDEXED = 120;
/** A word that only the kind brings counts so much of one that the text holds. */
const BY_KIND = 0.4;
/** A word that only begins as one of the text does; looked for where no text holds it as it is. */
const BY_BEGINNING = 0.6;
const LEAST_BEGINNING = 4;
const COUNT = /^\d{1,2}$/;
/** The saturation and the length normalisation of BM25, for words that count once a text. */
const K1 = 1.2;
const B = 0.75;

/**
 * An index of short texts by their words' stems (SQLite's FTS5, Porter's stems, in memory). Strangers' text goes in as
 * data, and so do questions: each word is quoted, so nothing of it is read as the engine's query language.
 */
export class TextIndex {
  readonly #db = new Database(":memory:");
  readonly #insert: Database.Statement;
  readonly #remove: Database.Statement;
  readonly #find: Database.Statement;
  readonly #kinds: Database.Statement;
  /** Words of each row; 0: there is none. */
  #lengths = new Uint16Array(1024);
  #rows = 0;
  #words = 0;

  /** @param kinds words that people use for a kind, by its name */
  constructor(kinds: Readonly<Record<string, string>>) {
    const tokens = `tokenize="porter unicode61"`;
    this.#db.exec(`CREATE VIRTUAL TABLE texts USING fts5(text, kind, content='', contentless_delete=1, ${tokens})`);
    this.#db.exec(`CREATE VIRTUAL TABLE kinds USING fts5(name UNINDEXED, words, ${tokens})`);
    const add = this.#db.prepare("INSERT INTO kinds (name, words) VALUES (?, ?)");
    for (const [name, words] of Object.entries(kinds)) add.run(kindWord(name), indexed(words, MAX_INDEXED));
    this.#insert = this.#db.prepare("INSERT INTO texts (rowid, text, kind) VALUES (?, ?, ?)");
    this.#remove = this.#db.prepare("DELETE FROM texts WHERE rowid = ?");
    this.#find = this.#db.prepare("SELECT rowid FROM texts WHERE texts MATCH ?").pluck();
    this.#kinds = this.#db.prepare("SELECT name FROM kinds WHERE kinds MATCH ?").pluck();
  }

  /** Puts texts under their numbers (from 0) in the place of what stood there; null takes one out. */
  put(texts: readonly (readonly [row: number, text: IndexedText | null])[]): void {
    this.#db.transaction(() => {
      for (const [row, text] of texts) this.#put(row, text);
    })();
  }

  #put(row: number, of: IndexedText | null): void {
    if (row >= this.#lengths.length) {
      const longer = new Uint16Array(Math.max(row + 1, this.#lengths.length * 2));
      longer.set(this.#lengths);
      this.#lengths = longer;
    }
    if (this.#lengths[row]! > 0) {
      this.#remove.run(row);
      this.#rows--;
      this.#words -= this.#lengths[row]!;
      this.#lengths[row] = 0;
    }
    if (of === null) return;
    const text = indexed(of.text, MAX_INDEXED);
    this.#insert.run(row, text, kindWord(of.kind));
    this.#lengths[row] = text.split(" ").length;
    this.#rows++;
    this.#words += this.#lengths[row]!;
  }

  /**
   * Every text that holds one of the words. A word that is known joined with the next one is taken so; a count that is not
   * (`add 2 numbers`) is left out.
   * @param byKind whether words of a kind count for its texts
   */
  match(asked: readonly Spelled[], byKind: boolean): Matched {
    const found: { word: string; own: number[]; share: number; kin: number[] }[] = [];
    for (let i = 0; i < asked.length && found.length < MAX_WORDS; i++) {
      const { word, joined } = asked[i]!;
      const both = joined === null || joined !== word + asked[i + 1]?.word ? null : this.#rowsOf(joined, byKind);
      if (both && both.own.length + both.kin.length > 0) {
        found.push({ word: joined!, ...both });
        i++;
      } else if (!COUNT.test(word)) found.push({ word, ...this.#rowsOf(word, byKind) });
    }
    return this.#scored(found);
  }

  #rowsOf(word: string, byKind: boolean): { own: number[]; share: number; kin: number[] } {
    const kinds = byKind ? (this.#kinds.all(quoted(word)) as string[]) : [];
    const kin = kinds.length === 0 ? [] : (this.#find.all(`kind : (${kinds.map(quoted).join(" OR ")})`) as number[]);
    const own = this.#find.all(`text : ${quoted(word)}`) as number[];
    if (own.length + kin.length > 0 || word.length < LEAST_BEGINNING) return { own, share: 1, kin };
    return { own: this.#find.all(`text : ${quoted(word)} *`) as number[], share: BY_BEGINNING, kin };
  }

  #scored(found: readonly { word: string; own: number[]; share: number; kin: number[] }[]): Matched {
    const held = new Uint16Array(this.#lengths.length);
    const scores = new Float32Array(this.#lengths.length);
    const mean = this.#words / Math.max(1, this.#rows);
    const weights = found.map(({ own, share, kin }, n) => {
      const holding = Math.max(own.length, kin.length);
      const weight = Math.log(1 + (Math.max(0, this.#rows - holding) + 0.5) / (holding + 0.5));
      const add = (row: number, part: number): void => {
        if (held[row]! & (1 << n)) return;
        held[row]! |= 1 << n;
        scores[row]! += (weight * part * (K1 + 1)) / (1 + K1 * (1 - B + (B * this.#lengths[row]!) / mean));
      };
      for (const row of own) add(row, share);
      for (const row of kin) add(row, BY_KIND);
      return weight;
    });
    const rows: number[] = [];
    for (let row = 0; row < held.length; row++) if (held[row] !== 0) rows.push(row);
    return {
      words: found.map(({ word }) => word),
      weights,
      rows: Uint32Array.from(rows),
      held: Uint16Array.from(rows, (row) => held[row]!),
      scores: Float32Array.from(rows, (row) => scores[row]!),
    };
  }
}

/** A string of FTS5: whatever stands in it is text. */
const quoted = (word: string): string => `"${word.replaceAll('"', '""')}"`;

/** The name of a kind as one word of the engine. */
const kindWord = (kind: string): string => kind.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
