import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { ALIKE, alike, scoreOf } from "./score.ts";

/**
 * A question. At least one of lei, register number, domain and name is given; companies that match any of them are
 * returned.
 */
export interface Question {
  lei?: string | undefined;
  /** Number in a business register, as written. */
  register_number?: string | undefined;
  /** GLEIF's code of the business register, RA and six digits. */
  register_authority?: string | undefined;
  domain?: string | undefined;
  name?: string | undefined;
  /** ISO 3166-1 alpha-2. Limits matches by register number or name to companies of this country. */
  country?: string | undefined;
}

/** Why a company matches, from the strongest reason to the weakest. */
export const REASONS = ["lei", "register_number", "domain", "exact_name", "same_name", "all_words", "similar"] as const;
export type Reason = (typeof REASONS)[number];

/** A company of the register, as GLEIF published it; null: not given there. */
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
  /** Lines of the street address, as written; empty: none is given. */
  legal_lines: string[];
  hq_lines: string[];
  legal_country: string | null;
  legal_city: string | null;
  legal_postal_code: string | null;
  hq_country: string | null;
  hq_city: string | null;
  hq_postal_code: string | null;
  status: string | null;
  /** LEIs and names of its successors. */
  successors: string[];
  successor_names: string[];
  /** When and why the company ended. */
  expired: string | null;
  expired_why: string | null;
  /** Accounting consolidation parents as reported; null: none is. Since: when the relationship began. */
  direct_lei: string | null;
  direct_name: string | null;
  direct_since: string | null;
  ultimate_lei: string | null;
  ultimate_name: string | null;
  ultimate_since: string | null;
  /** Why a parent is not reported; null: no exception is reported. */
  direct_reasons: string[] | null;
  ultimate_reasons: string[] | null;
  registration: string | null;
  updated: string | null;
  domains: string[];
}

export interface Match {
  company: Company;
  /** The strongest first. */
  reasons: Reason[];
  /** 1 for a matching id or an equal name; else from {@link scoreOf}. */
  score: number;
}

export interface Matches {
  matches: Match[];
  /** Are there further companies that match and are not returned? */
  more: boolean;
}

/** Most names that are scored for one question, of those that a prefilter finds. */
const LOOKED_AT = 200;
/**
 * Most names that the words of one question may bring into the search for similar names: the rarest words first, and at
 * least one.
 */
const MAX_HELD = 60_000;
/** Most words of a question that are searched for; of more, the longest ones. */
const MAX_WORDS = 12;
/** Most words of the register, similar in spelling, that are searched for one word of a question. */
const MAX_NEAR = 12;
/** Names with a lower score are not returned. */
const LEAST_SCORE = 0.5;

/**
 * A query with the list as literals: the engine uses its index, and skips blocks, for literals only, not for parameters
 * and joins.
 */
function listed(query: string, values: readonly (number | string)[]): string {
  const literals = values.map((value) => (typeof value === "number" ? value : `'${value.replaceAll("'", "''")}'`));
  return query.replace("{list}", () => literals.join(", "));
}

/** The groups of three letters of a word, as the register has them (`grams_of`). */
export function gramsOf(word: string): string[] {
  const letters = ["_", ...word, "_"];
  return [...new Set(letters.slice(2).map((_, i) => letters.slice(i, i + 3).join("")))];
}

interface Named {
  number: number;
  key: string;
}

/** The companies that were found so far, with their reasons and their best score. */
class Found {
  readonly byNumber = new Map<number, { reasons: Set<Reason>; score: number }>();

  add(number: number, reason: Reason, score: number): void {
    const held = this.byNumber.get(number) ?? { reasons: new Set<Reason>(), score: 0 };
    this.byNumber.set(number, held);
    held.reasons.add(reason);
    held.score = Math.max(held.score, score);
  }

  /** Scores names that a prefilter found, and adds those that are good enough. */
  addNamed(asked: string, names: readonly Named[]): void {
    for (const { number, key } of names) {
      const { value, allWords } = scoreOf(asked, key);
      if (allWords) this.add(number, "all_words", value);
      else if (value >= LEAST_SCORE) this.add(number, "similar", value);
    }
  }
}

const best = (reasons: ReadonlySet<Reason>): number => REASONS.findIndex((reason) => reasons.has(reason));

/** The words of a question that are searched for, each once. */
const wordsOf = (key: string): string[] =>
  [...new Set(key.split(" "))].sort((a, b) => b.length - a.length).slice(0, MAX_WORDS);

interface Word {
  id: number;
  names: number;
}

/** Looks up names by their ids. */
async function namesOf(register: Statements, rows: readonly { name: number }[]): Promise<Named[]> {
  if (rows.length === 0) return [];
  const ids = rows.map(({ name }) => name);
  return register.all<Named>(listed(sql("register/search:names"), ids));
}

/** Names with all words of the question; none if the register does not have one of the words. */
async function withAllWords(register: Statements, words: readonly string[], country: string | null): Promise<Named[]> {
  const known: Word[] = [];
  for (const word of words) {
    const [row] = await register.all<Word>(sql("register/search:word"), { word });
    if (!row) return [];
    known.push(row);
  }
  known.sort((x, y) => x.names - y.names);
  const [a, b = a, c = a] = known.map(({ id }) => id);
  const of = { a: a!, b: b!, c: c!, country, most: LOOKED_AT };
  return namesOf(register, await register.all<{ name: number }>(sql("register/search:all_words"), of));
}

/** Words of the register that are spelt like this one, the most alike first. */
async function near(register: Statements, word: string): Promise<(Word & { alike: number })[]> {
  // Words of up to three letters have too few groups of three, and one edit turns them into another word.
  if ([...word].length < 4) {
    const rows = await register.all<Word>(sql("register/search:word"), { word });
    return rows.map((row) => ({ ...row, alike: 1 }));
  }
  const grams = gramsOf(word);
  const least = Math.max(2, Math.floor(grams.length / 3));
  const query = listed(sql("register/search:near"), grams);
  const shared = await register.all<{ word: number }>(query, { least_shared: least });
  if (shared.length === 0) return [];
  const ids = shared.map(({ word: id }) => id);
  const rows = await register.all<Word & { word: string }>(listed(sql("register/search:words"), ids));
  return rows
    .map((row) => ({ ...row, alike: alike(word, row.word) }))
    .filter((row) => row.alike >= ALIKE)
    .sort((x, y) => y.alike - x.alike || y.names - x.names || x.id - y.id)
    .slice(0, MAX_NEAR);
}

/** Names with words that are spelt like those of the question. */
async function similar(register: Statements, words: readonly string[], country: string | null): Promise<Named[]> {
  const groups: { names: number; near: { place: number; id: number; weight: number }[] }[] = [];
  for (const [place, word] of words.entries()) {
    const found = await near(register, word);
    if (found.length === 0) continue;
    groups.push({
      names: found.reduce((sum, { names }) => sum + names, 0),
      near: found.map(({ id, alike: value }) => ({ place, id, weight: value * word.length })),
    });
  }
  groups.sort((x, y) => x.names - y.names);
  const held: (typeof groups)[number]["near"] = [];
  let names = 0;
  for (const group of groups) {
    names += group.names;
    if (held.length > 0 && names > MAX_HELD) break;
    held.push(...group.near);
  }
  if (held.length === 0) return [];
  const query = listed(sql("register/search:similar"), [...new Set(held.map(({ id }) => id))]);
  const of = { near: JSON.stringify(held), country, most: LOOKED_AT };
  return namesOf(register, await register.all<{ name: number }>(query, of));
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
  found.addNamed(key, await withAllWords(register, words, country));
  if (found.byNumber.size > most) return;
  found.addNamed(key, await similar(register, words, country));
}

/** A host and its parent domains of at least two labels: `shop.example.com` is searched for as `example.com` too. */
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
  active: boolean;
  issued: boolean;
  exact_name: boolean;
}

/** Companies with their hosts, in the order of the given numbers. */
async function companiesOf(register: Statements, numbers: readonly number[]): Promise<Company[]> {
  if (numbers.length === 0) return [];
  const rows = await register.all<Omit<Company, "domains">>(listed(sql("register/search:companies"), numbers));
  const hosts = await register.all<{ number: number; host: string }>(listed(sql("register/search:hosts"), numbers));
  const byNumber = new Map(rows.map((row) => [row.number, row]));
  return numbers.map((number) => ({
    ...byNumber.get(number)!,
    domains: hosts.filter((row) => row.number === number).map(({ host }) => host),
  }));
}

/** Numbers of the companies that were found, best first. */
async function ranked(register: Statements, found: Found, folded: string): Promise<number[]> {
  if (found.byNumber.size === 0) return [];
  const query = listed(sql("register/search:standing"), [...found.byNumber.keys()]);
  const standing = await register.all<Standing>(query, { folded });
  for (const { number, exact_name: exact } of standing) if (exact) found.add(number, "exact_name", 1);
  const of = (number: number) => found.byNumber.get(number)!;
  const order = (x: Standing, y: Standing): number =>
    best(of(x.number).reasons) - best(of(y.number).reasons) ||
    of(y.number).score - of(x.number).score ||
    Number(y.active) - Number(x.active) ||
    Number(y.issued) - Number(x.issued) ||
    x.number - y.number;
  return standing.sort(order).map(({ number }) => number);
}

/** Reasons to return: of those by name only the strongest, since an equal name has all words too. */
function reasonsToReport(reasons: ReadonlySet<Reason>): Reason[] {
  const reported = REASONS.filter((reason) => reasons.has(reason));
  const byName = reported.findIndex((reason) => REASONS.indexOf(reason) >= REASONS.indexOf("exact_name"));
  return byName < 0 ? reported : reported.slice(0, byName + 1);
}

/**
 * Finds the companies that a question matches, best first: by the strongest reason, then the score, then active
 * companies, then those whose LEI is renewed, then the LEI.
 * @param maxMatches most companies that are returned
 */
export async function search(register: Statements, question: Question, most: number): Promise<Matches> {
  const [asked] = await register.all<{ folded: string; key: string; number: string | null; host: string | null }>(
    sql("register/search:asked"),
    { name: question.name ?? "", number: question.register_number ?? "", domain: question.domain ?? "" },
  );
  const found = new Found();
  await byIds(register, question, asked!, found);
  if (asked!.key !== "") await byName(register, asked!.key, question, most, found);
  const numbers = await ranked(register, found, asked!.folded);
  const companies = await companiesOf(register, numbers.slice(0, most));
  const matches = companies.map((company) => {
    const { reasons, score } = found.byNumber.get(company.number)!;
    return { company, reasons: reasonsToReport(reasons), score };
  });
  return { matches, more: numbers.length > most };
}
