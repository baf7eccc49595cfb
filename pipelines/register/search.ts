import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { MIN_SIMILARITY, scoreOf, similarityOf } from "./score.ts";

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
  /** Number of the row in our register file: companies are numbered from 1 in the order of their LEIs. */
  number: number;
  lei: string;
  /** Legal name. */
  name: string;
  /** Other names of the company. */
  names: string[];
  jurisdiction: string | null;
  /** GLEIF's code of the legal form. */
  form_code: string | null;
  /** Legal form in words, as written. */
  form_text: string | null;
  /** GLEIF's code of the business register. */
  authority: string | null;
  /** The company's number in that business register. */
  register_number: string | null;
  /** Lines of the street address at the legal address, as written; empty: none is given. */
  legal_lines: string[];
  /** Lines of the street address of the headquarters, as written; empty: none is given. */
  hq_lines: string[];
  legal_country: string | null;
  legal_city: string | null;
  legal_postal_code: string | null;
  hq_country: string | null;
  hq_city: string | null;
  hq_postal_code: string | null;
  /** Status of the company, such as ACTIVE. */
  status: string | null;
  /** LEIs of the company's successors. */
  successors: string[];
  /** Names of the company's successors. */
  successor_names: string[];
  /** When the company ended. */
  expired: string | null;
  /** Why the company ended, as a word of GLEIF. */
  expired_why: string | null;
  /** LEI of the direct parent, which consolidates the company's accounts; null: none is reported. */
  direct_lei: string | null;
  /** Name of the direct parent. */
  direct_name: string | null;
  /** When the relationship with the direct parent began. */
  direct_since: string | null;
  /** LEI of the ultimate parent, the highest one that consolidates the company's accounts; null: none is reported. */
  ultimate_lei: string | null;
  /** Name of the ultimate parent. */
  ultimate_name: string | null;
  /** When the relationship with the ultimate parent began. */
  ultimate_since: string | null;
  /** Why no direct parent is reported; null: no exception is reported. */
  direct_reasons: string[] | null;
  /** Why no ultimate parent is reported; null: no exception is reported. */
  ultimate_reasons: string[] | null;
  /** Status of the LEI, such as ISSUED. */
  registration: string | null;
  /** When GLEIF updated the record, RFC 3339. */
  updated: string | null;
  domains: string[];
}

/** A company that matches a question. */
export interface Match {
  company: Company;
  /** The strongest first. */
  reasons: Reason[];
  /** 1 for a matching id or an equal name; else from {@link scoreOf}. */
  score: number;
}

/** The result of a search. */
export interface Matches {
  matches: Match[];
  /** True if further companies match and are not returned. */
  more: boolean;
}

/** Largest number of names or companies that one query of a search returns. Only these are scored. */
const MAX_SCORED_NAMES = 200;
/**
 * Limits the search for similar names: the words of the question are used from the rarest on, as long as at most this
 * many names contain them. At least one word is used.
 */
const MAX_CANDIDATE_NAMES = 60_000;
/** Largest number of words of a question that are searched for. If it has more, the longest are searched for. */
const MAX_WORDS = 12;
/** For one word of a question, at most this many words of the register with a similar spelling are searched for. */
const MAX_SIMILAR_WORDS = 12;
/** Names with a lower score are not returned. */
const MIN_SCORE = 0.5;

/**
 * Puts values into a query as literals. The engine uses its index, and skips blocks, for literals only, not for
 * parameters and joins.
 */
function withLiteralList(query: string, values: readonly (number | string)[]): string {
  const literals = values.map((value) => (typeof value === "number" ? value : `'${value.replaceAll("'", "''")}'`));
  return query.replace("{list}", () => literals.join(", "));
}

/** Splits a word into its groups of three letters, exactly as the register's macro `grams_of` does. */
export function gramsOf(word: string): string[] {
  const letters = ["_", ...word, "_"];
  return [...new Set(letters.slice(2).map((_, i) => letters.slice(i, i + 3).join("")))];
}

/** A name of the company with this number; `key` is the name as the macro `plain_name` normalises it. */
interface NameRow {
  number: number;
  key: string;
}

/** The companies that were found so far, with their reasons and their best score. */
class FoundCompanies {
  readonly byNumber = new Map<number, { reasons: Set<Reason>; score: number }>();

  add(number: number, reason: Reason, score: number): void {
    const match = this.byNumber.get(number) ?? { reasons: new Set<Reason>(), score: 0 };
    this.byNumber.set(number, match);
    match.reasons.add(reason);
    match.score = Math.max(match.score, score);
  }

  /** Scores names that a query found, and adds those that are good enough. */
  addNamed(questionKey: string, names: readonly NameRow[]): void {
    for (const { number, key } of names) {
      const { value, hasAllWords } = scoreOf(questionKey, key);
      if (hasAllWords) this.add(number, "all_words", value);
      else if (value >= MIN_SCORE) this.add(number, "similar", value);
    }
  }
}

/** Place of the strongest reason in {@link REASONS}. */
const rankOfStrongest = (reasons: ReadonlySet<Reason>): number => REASONS.findIndex((reason) => reasons.has(reason));

/** The words of a question that are searched for, each once, the longest first. */
const wordsOf = (key: string): string[] =>
  [...new Set(key.split(" "))].sort((a, b) => b.length - a.length).slice(0, MAX_WORDS);

/** A word of the register. */
interface WordRow {
  id: number;
  /** Number of names that contain the word. */
  names: number;
}

/** Looks up names by their ids. */
async function readNames(register: Statements, rows: readonly { name: number }[]): Promise<NameRow[]> {
  if (rows.length === 0) return [];
  const ids = rows.map(({ name }) => name);
  return register.all<NameRow>(withLiteralList(sql("register/search:names"), ids));
}

/** Names that contain the three rarest of these words, or all if there are fewer; none if the register lacks a word. */
async function findNamesWithAllWords(
  register: Statements,
  words: readonly string[],
  country: string | null,
): Promise<NameRow[]> {
  const wordRows: WordRow[] = [];
  for (const word of words) {
    const [row] = await register.all<WordRow>(sql("register/search:word"), { word });
    if (!row) return [];
    wordRows.push(row);
  }
  wordRows.sort((x, y) => x.names - y.names);
  const [a, b = a, c = a] = wordRows.map(({ id }) => id);
  const parameters = { a: a!, b: b!, c: c!, country, most: MAX_SCORED_NAMES };
  return readNames(register, await register.all<{ name: number }>(sql("register/search:all_words"), parameters));
}

/** Words of the register that are spelt like this one, the most similar first. */
async function findSimilarWords(register: Statements, word: string): Promise<(WordRow & { alike: number })[]> {
  // Words of up to three letters are searched for exactly: they have too few groups of three, and one edit makes
  // another word.
  if ([...word].length < 4) {
    const rows = await register.all<WordRow>(sql("register/search:word"), { word });
    return rows.map((row) => ({ ...row, alike: 1 }));
  }
  const grams = gramsOf(word);
  const minShared = Math.max(2, Math.floor(grams.length / 3));
  const query = withLiteralList(sql("register/search:near"), grams);
  const wordsWithSharedGrams = await register.all<{ word: number }>(query, { least_shared: minShared });
  if (wordsWithSharedGrams.length === 0) return [];
  const ids = wordsWithSharedGrams.map(({ word: id }) => id);
  const rows = await register.all<WordRow & { word: string }>(withLiteralList(sql("register/search:words"), ids));
  return rows
    .map((row) => ({ ...row, alike: similarityOf(word, row.word) }))
    .filter((row) => row.alike >= MIN_SIMILARITY)
    .sort((x, y) => y.alike - x.alike || y.names - x.names || x.id - y.id)
    .slice(0, MAX_SIMILAR_WORDS);
}

/** Names with words that are spelt like those of the question. */
async function findSimilarNames(
  register: Statements,
  words: readonly string[],
  country: string | null,
): Promise<NameRow[]> {
  const groups: { names: number; near: { place: number; id: number; weight: number }[] }[] = [];
  for (const [place, word] of words.entries()) {
    const similarWords = await findSimilarWords(register, word);
    if (similarWords.length === 0) continue;
    groups.push({
      names: similarWords.reduce((sum, { names }) => sum + names, 0),
      near: similarWords.map(({ id, alike: value }) => ({ place, id, weight: value * word.length })),
    });
  }
  groups.sort((x, y) => x.names - y.names);
  const candidates: (typeof groups)[number]["near"] = [];
  let nameCount = 0;
  for (const group of groups) {
    nameCount += group.names;
    if (candidates.length > 0 && nameCount > MAX_CANDIDATE_NAMES) break;
    candidates.push(...group.near);
  }
  if (candidates.length === 0) return [];
  const query = withLiteralList(sql("register/search:similar"), [...new Set(candidates.map(({ id }) => id))]);
  const parameters = { near: JSON.stringify(candidates), country, most: MAX_SCORED_NAMES };
  return readNames(register, await register.all<{ name: number }>(query, parameters));
}

async function addByName(
  register: Statements,
  key: string,
  question: Question,
  maxMatches: number,
  found: FoundCompanies,
): Promise<void> {
  const country = question.country ?? null;
  const equalNames = await register.all<NameRow>(sql("register/search:by_key"), {
    key,
    country,
    most: MAX_SCORED_NAMES,
  });
  for (const { number } of equalNames) found.add(number, "same_name", 1);
  if (found.byNumber.size > maxMatches) return;
  const words = wordsOf(key);
  found.addNamed(key, await findNamesWithAllWords(register, words, country));
  if (found.byNumber.size > maxMatches) return;
  found.addNamed(key, await findSimilarNames(register, words, country));
}

/**
 * Returns a host and its parent domains of at least two labels: `shop.example.com` is searched for as `example.com`
 * too. Of a host with more parents, the three shortest are returned.
 */
function hostsOf(host: string): string[] {
  const labels = host.split(".");
  const parents = labels.map((_, i) => labels.slice(i).join(".")).slice(1, -1);
  return [host, ...parents.slice(-3)];
}

async function addByIds(
  register: Statements,
  question: Question,
  { number, host }: { number: string | null; host: string | null },
  found: FoundCompanies,
): Promise<void> {
  const country = question.country ?? null;
  if (question.lei !== undefined) {
    const rows = await register.all<{ number: number }>(sql("register/search:by_lei"), { lei: question.lei });
    for (const row of rows) found.add(row.number, "lei", 1);
  }
  if (number !== null) {
    const authority = question.register_authority ?? null;
    const parameters = { number, authority, country, most: MAX_SCORED_NAMES };
    const rows = await register.all<{ number: number }>(sql("register/search:by_number"), parameters);
    for (const row of rows) found.add(row.number, "register_number", 1);
  }
  for (const name of host === null ? [] : hostsOf(host)) {
    const rows = await register.all<{ number: number }>(sql("register/search:by_host"), {
      host: name,
      most: MAX_SCORED_NAMES,
    });
    for (const row of rows) found.add(row.number, "domain", 1);
    if (rows.length > 0) break;
  }
}

/** Facts about one company that was found, by which companies with equal reasons and scores are ordered. */
interface RankingRow {
  number: number;
  /** Is the company's status ACTIVE? */
  active: boolean;
  /** Is the status of its LEI ISSUED (renewed in time)? */
  issued: boolean;
  /** Does one of its names equal the question's name, both folded by the macro `folded`? */
  exact_name: boolean;
}

/** Reads companies with their domains, in the order of the given numbers. */
async function readCompanies(register: Statements, numbers: readonly number[]): Promise<Company[]> {
  if (numbers.length === 0) return [];
  const rows = await register.all<Omit<Company, "domains">>(withLiteralList(sql("register/search:companies"), numbers));
  const hosts = await register.all<{ number: number; host: string }>(
    withLiteralList(sql("register/search:hosts"), numbers),
  );
  const byNumber = new Map(rows.map((row) => [row.number, row]));
  return numbers.map((number) => ({
    ...byNumber.get(number)!,
    domains: hosts.filter((row) => row.number === number).map(({ host }) => host),
  }));
}

/**
 * Returns the numbers of the companies that were found, best first.
 * @param folded the question's name as the register's macro `folded` writes it; empty if the question has no name
 */
async function rankCompanies(register: Statements, found: FoundCompanies, folded: string): Promise<number[]> {
  if (found.byNumber.size === 0) return [];
  const query = withLiteralList(sql("register/search:standing"), [...found.byNumber.keys()]);
  const rankingRows = await register.all<RankingRow>(query, { folded });
  for (const { number, exact_name: exact } of rankingRows) if (exact) found.add(number, "exact_name", 1);
  const matchOf = (number: number) => found.byNumber.get(number)!;
  const order = (x: RankingRow, y: RankingRow): number =>
    rankOfStrongest(matchOf(x.number).reasons) - rankOfStrongest(matchOf(y.number).reasons) ||
    matchOf(y.number).score - matchOf(x.number).score ||
    Number(y.active) - Number(x.active) ||
    Number(y.issued) - Number(x.issued) ||
    x.number - y.number;
  return rankingRows.sort(order).map(({ number }) => number);
}

/**
 * Returns the reasons to report. Of the reasons by name it is only the strongest, since an equal name also has all
 * words.
 */
function reasonsToReport(reasons: ReadonlySet<Reason>): Reason[] {
  const reported = REASONS.filter((reason) => reasons.has(reason));
  const firstByName = reported.findIndex((reason) => REASONS.indexOf(reason) >= REASONS.indexOf("exact_name"));
  return firstByName < 0 ? reported : reported.slice(0, firstByName + 1);
}

/**
 * Finds the companies that a question matches, best first: by the strongest reason, then by score, then active
 * companies before others, then those with a renewed LEI before others, then by LEI.
 * @param maxMatches most companies that are returned
 */
export async function search(register: Statements, question: Question, maxMatches: number): Promise<Matches> {
  const [parsedQuestion] = await register.all<{
    folded: string;
    key: string;
    number: string | null;
    host: string | null;
  }>(sql("register/search:asked"), {
    name: question.name ?? "",
    number: question.register_number ?? "",
    domain: question.domain ?? "",
  });
  const found = new FoundCompanies();
  await addByIds(register, question, parsedQuestion!, found);
  if (parsedQuestion!.key !== "") await addByName(register, parsedQuestion!.key, question, maxMatches, found);
  const numbers = await rankCompanies(register, found, parsedQuestion!.folded);
  const companies = await readCompanies(register, numbers.slice(0, maxMatches));
  const matches = companies.map((company) => {
    const { reasons, score } = found.byNumber.get(company.number)!;
    return { company, reasons: reasonsToReport(reasons), score };
  });
  return { matches, more: numbers.length > maxMatches };
}
