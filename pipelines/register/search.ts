import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { ALIKE, scoreOf } from "./score.ts";

/** What is asked; at least one of lei, number, host and name. All of them together are one question: their matches are united. */
export interface Question {
  lei?: string | undefined;
  /** Number in a business register, as written. */
  register_number?: string | undefined;
  /** GLEIF's code of that register, RA and six digits. */
  register_authority?: string | undefined;
  domain?: string | undefined;
  name?: string | undefined;
  /** ISO 3166-1 alpha-2; limits matches by number, and by name, to its companies. */
  country?: string | undefined;
}

/** Why a company is among the matches, in the order in which reasons rank. */
export const REASONS = ["lei", "register_number", "domain", "exact_name", "same_name", "all_words", "similar"] as const;
export type Reason = (typeof REASONS)[number];

/** A company of the register, as GLEIF published it; null: it says nothing there. */
export interface Company {
  number: number;
  lei: string;
  name: string;
  names: string[];
  jurisdiction: string | null;
  form_code: string | null;
  form_text: string | null;
  authority: string | null;
  register_number: string | null;
  legal_country: string | null;
  legal_city: string | null;
  legal_postal_code: string | null;
  hq_country: string | null;
  hq_city: string | null;
  hq_postal_code: string | null;
  status: string | null;
  registration: string | null;
  updated: string | null;
  domains: string[] | null;
}

export interface Match {
  company: Company;
  /** Best first. */
  reasons: Reason[];
  /** 1 of an exact id or an equal name; else as {@link scoreOf} has it. */
  score: number;
}

export interface Matches {
  matches: Match[];
  /** There are further companies that match as well as the last one shown, or less. */
  more: boolean;
}

/** Names looked at for one question, of those that a prefilter brings. */
const LOOKED_AT = 200;
/** Names that the words of one question may bring into a search for similar ones: rarest words first, and one word always. */
const MAX_HELD = 60_000;
/** Words of a question that are looked for; the longest first where there are more. */
const MAX_WORDS = 12;
/** Names below this are not told. */
const LEAST_SCORE = 0.5;

interface Named {
  number: number;
  key: string;
}

/** Numbers of companies with their reasons and best score, as they come in. */
class Found {
  readonly byNumber = new Map<number, { reasons: Set<Reason>; score: number }>();

  add(number: number, reason: Reason, score: number): void {
    const held = this.byNumber.get(number) ?? { reasons: new Set<Reason>(), score: 0 };
    this.byNumber.set(number, held);
    held.reasons.add(reason);
    held.score = Math.max(held.score, score);
  }

  /** Names that a prefilter brought, each as far as it holds. */
  addNamed(asked: string, names: readonly Named[]): void {
    for (const { number, key } of names) {
      const { value, allWords } = scoreOf(asked, key);
      if (allWords) this.add(number, "all_words", value);
      else if (value >= LEAST_SCORE) this.add(number, "similar", value);
    }
  }
}

const best = (reasons: ReadonlySet<Reason>): number => REASONS.findIndex((reason) => reasons.has(reason));

/** The words of a question that a search goes by, each once. */
const wordsOf = (key: string): string[] =>
  [...new Set(key.split(" "))].sort((a, b) => b.length - a.length).slice(0, MAX_WORDS);

interface Word {
  id: number;
  names: number;
}

/** Names that hold all words of the question; null where the register does not know one of them. */
async function withAllWords(
  register: Statements,
  words: readonly string[],
  country: string | null,
): Promise<Named[] | null> {
  const known: Word[] = [];
  for (const word of words) {
    const [row] = await register.all<Word>(sql("register/search:word"), { word });
    if (!row) return null;
    known.push(row);
  }
  known.sort((x, y) => x.names - y.names);
  const [a, b = a, c = a] = known.map(({ id }) => id);
  return register.all<Named>(sql("register/search:all_words"), { a: a!, b: b!, c: c!, country, most: LOOKED_AT });
}

/** Names in words that are written like those of the question. */
async function similar(register: Statements, words: readonly string[], country: string | null): Promise<Named[]> {
  const groups: { names: number; near: { place: number; id: number; weight: number }[] }[] = [];
  for (const [place, word] of words.entries()) {
    // Words of up to three letters have too few threes to be found by, and one edit makes another word of them.
    const found =
      word.length < 4
        ? await register.all<Word & { alike?: number }>(sql("register/search:word"), { word })
        : await register.all<Word & { alike?: number }>(sql("register/search:near"), { word, least: ALIKE });
    if (found.length === 0) continue;
    groups.push({
      names: found.reduce((sum, { names }) => sum + names, 0),
      near: found.map(({ id, alike = 1 }) => ({ place, id, weight: alike * word.length })),
    });
  }
  groups.sort((x, y) => x.names - y.names);
  const near: (typeof groups)[number]["near"] = [];
  let held = 0;
  for (const group of groups) {
    held += group.names;
    if (near.length > 0 && held > MAX_HELD) break;
    near.push(...group.near);
  }
  if (near.length === 0) return [];
  return register.all<Named>(sql("register/search:similar"), { near: JSON.stringify(near), country, most: LOOKED_AT });
}

async function byName(
  register: Statements,
  key: string,
  question: Question,
  most: number,
  found: Found,
): Promise<void> {
  const country = question.country ?? null;
  const equal = await register.all<Named>(sql("register/search:by_key"), { key, country, most: LOOKED_AT });
  for (const { number } of equal) found.add(number, "same_name", 1);
  if (found.byNumber.size > most) return;
  const words = wordsOf(key);
  found.addNamed(key, (await withAllWords(register, words, country)) ?? []);
  if (found.byNumber.size > most) return;
  found.addNamed(key, await similar(register, words, country));
}

/** A host, and what it is below, down to two labels: `shop.example.com` is looked for as `example.com` too. */
const hostsOf = (host: string): string[] =>
  host
    .split(".")
    .map((_, i, labels) => labels.slice(i).join("."))
    .filter((name) => name.includes("."))
    .slice(0, 4);

async function byIds(
  register: Statements,
  question: Question,
  { number, host }: { number: string | null; host: string | null },
  found: Found,
): Promise<void> {
  const country = question.country ?? null;
  if (question.lei !== undefined) {
    const rows = await register.all<{ number: number }>(sql("register/search:by_lei"), { lei: question.lei });
    for (const row of rows) found.add(row.number, "lei", 1);
  }
  if (number !== null) {
    const authority = question.register_authority ?? null;
    const of = { number, authority, country, most: LOOKED_AT };
    const rows = await register.all<{ number: number }>(sql("register/search:by_number"), of);
    for (const row of rows) found.add(row.number, "register_number", 1);
  }
  for (const name of host === null ? [] : hostsOf(host)) {
    const rows = await register.all<{ number: number }>(sql("register/search:by_host"), {
      host: name,
      most: LOOKED_AT,
    });
    for (const row of rows) found.add(row.number, "domain", 1);
    if (rows.length > 0) break;
  }
}

interface Standing {
  number: number;
  lei: string;
  active: boolean;
  issued: boolean;
  exact_name: boolean;
}

/**
 * Companies that a question means, best first: by the best reason, then the score, then those that are active and whose
 * LEI is kept up, then the LEI. @param most how many are given back
 */
export async function search(register: Statements, question: Question, most: number): Promise<Matches> {
  const [asked] = await register.all<{ folded: string; key: string; number: string | null; host: string | null }>(
    sql("register/search:asked"),
    { name: question.name ?? "", number: question.register_number ?? "", domain: question.domain ?? "" },
  );
  const found = new Found();
  await byIds(register, question, asked!, found);
  if (asked!.key !== "") await byName(register, asked!.key, question, most, found);
  const numbers = JSON.stringify([...found.byNumber.keys()]);
  const standing = await register.all<Standing>(sql("register/search:standing"), { numbers, folded: asked!.folded });
  for (const { number, exact_name: exact } of standing) if (exact) found.add(number, "exact_name", 1);
  const of = (number: number) => found.byNumber.get(number)!;
  standing.sort(
    (x, y) =>
      best(of(x.number).reasons) - best(of(y.number).reasons) ||
      of(y.number).score - of(x.number).score ||
      Number(y.active) - Number(x.active) ||
      Number(y.issued) - Number(x.issued) ||
      (x.lei < y.lei ? -1 : 1),
  );
  const shown = standing.slice(0, most).map(({ number }) => number);
  const rows = await register.all<Company>(sql("register/search:companies"), { numbers: JSON.stringify(shown) });
  const companies = new Map(rows.map((row) => [row.number, row]));
  const matches = shown.map((number) => {
    const { reasons, score } = of(number);
    // An equal name holds all words too: only the better of those two is told.
    const told = REASONS.filter((reason) => reasons.has(reason));
    const byNames = told.findIndex((reason) => REASONS.indexOf(reason) >= REASONS.indexOf("exact_name"));
    return { company: companies.get(number)!, reasons: byNames < 0 ? told : told.slice(0, byNames + 1), score };
  });
  return { matches, more: standing.length > most };
}
