import { type Fields, lettersAndDigits, type TruthSources } from "../../record/classes/checker.ts";
import { readAskedFields } from "../../record/classes/mapping.ts";
import { any, type Example, type KnownAnswer, type Variant } from "../../record/classes.ts";
import type { ListedCap } from "../../record/memory.ts";
import { hashOf, isObject, keepable, parseJson } from "../json.ts";
import { type Declared, NOTHING } from "../terms/declared.ts";
import { type ClassMaps, type ClassMatch, classMatchOf } from "./classing.ts";
import { NO_MAPS } from "./mapping-file.ts";

/** What the right answer to somebody else's question is found with. */
export interface Truths {
  maps: ClassMaps;
  sources: Omit<TruthSources, "row">;
}

/** Classes alone: what can be computed, and no mapping. */
const NO_TRUTHS: Truths = { maps: NO_MAPS, sources: {} };

/** A call that a buyer wants to be made, and what is known of the endpoint. */
export interface BoughtCall {
  /** As it is listed. */
  endpoint: Pick<ListedCap, "cap" | "url" | "method" | "tool">;
  /** Class in its published listing; absent: none. */
  listedClass?: string | undefined;
  /** Were answers of it scored by questions of ours? A mapping of ours is not used before one of them passed. */
  scored: boolean;
  /** What its 402 for this call declares. */
  declared: Declared | null;
  /** The request as it is sent. */
  url: string;
  body: Uint8Array | null;
}

/** Each name with its value; null where a name stands there twice. */
function single(params: URLSearchParams): Record<string, string> | null {
  const pairs = [...params];
  const named = Object.fromEntries(pairs);
  return Object.keys(named).length === pairs.length ? named : null;
}

/**
 * The buyer's own input: its query without what the endpoint's address has itself, and its body. null where it cannot be
 * read in one way: a name twice, or a body that is no JSON.
 */
function inputOf({ endpoint, url, body }: BoughtCall): Example | null {
  const query = single(new URL(url).searchParams);
  if (!query) return null;
  for (const [name, value] of new URL(endpoint.url).searchParams) if (query[name] === value) delete query[name];
  const sent = Object.keys(query).length === 0 ? {} : { query };
  if (body === null || body.length === 0) return sent;
  const parsed = parseJson(body);
  return parsed === undefined || keepable(parsed) === undefined ? null : { ...sent, body: parsed };
}

const same = (a: unknown, b: unknown): boolean => {
  const hash = hashOf(a ?? null);
  return hash !== null && hash === hashOf(b ?? null);
};

/** The members of a question, where a place of the input has all of them as texts or numbers. */
function fieldsIn(value: unknown, names: readonly string[]): Fields | null {
  if (!isObject(value)) return null;
  const fields = names.map((name) => [name, Object.hasOwn(value, name) ? value[name] : null] as const);
  const isFull = fields.every(([, one]) => typeof one === "string" || typeof one === "number");
  return isFull ? (Object.fromEntries(fields) as Fields) : null;
}

/**
 * The fields of a question in the class's own form. Beside them the input may have what the seller's example has, with the
 * example's values and in its types, and nothing else: another member could ask for another answer.
 */
function ownFields(
  { checker, arrange }: ClassMatch,
  variant: Variant,
  input: Example,
  example: Example,
): Fields | null {
  const names = [...variant.asks, ...(variant.fixed ?? [])];
  const place = fieldsIn(input.query, names) ? "query" : "body";
  const fields = fieldsIn(input[place], names);
  const arranged = fields && arrange(fields);
  if (!fields || !arranged || !same(input.path, example.path)) return null;
  const other = place === "query" ? "body" : "query";
  if (input[other] !== undefined && !same(input[other], arranged[other])) return null;
  const [given, full] = [input[place], arranged[place]] as [Record<string, unknown>, Record<string, unknown>];
  const isWithin = Object.entries(given).every(([name, value]) => Object.hasOwn(full, name) && same(value, full[name]));
  // Of questions that are asked under the same names, another member may say which one is meant.
  const alike = Object.values(checker.variants).filter(({ asks }) => same([...asks].sort(), [...variant.asks].sort()));
  const isWhole = alike.length === 1 || Object.keys(given).length === Object.keys(full).length;
  return isWithin && isWhole ? fields : null;
}

/** Members of an input, at all of its places. */
const membersIn = ({ query, body }: Example): number =>
  [query, body].reduce<number>((count, place) => {
    if (isObject(place)) return count + Object.keys(place).length;
    return place === undefined ? count : count + 1;
  }, 0);

/** The one row that has these values; texts are compared by their letters and digits, as its answer is. */
function rowOf(maps: ClassMaps, name: string | undefined): NonNullable<TruthSources["row"]> {
  return (asked) => {
    const isAsked = ([key, value]: [string, string | number]): boolean =>
      Object.hasOwn(asked, key) && (String(asked[key]) === String(value) || plainly(asked[key]) === plainly(value));
    const found = name === undefined ? [] : maps.rows(name).filter(({ asks }) => Object.entries(asks).every(isAsked));
    return found.length === 1 ? found[0]! : null;
  };
}

const plainly = (value: unknown): unknown =>
  typeof value === "string" && lettersAndDigits(value) !== "" ? lettersAndDigits(value) : value;

/**
 * The question of a class that a buyer's own call asks, with its right answer: what a paid call of ours would be scored by.
 * null where the input fixes no answer that we know.
 * @throws what a source throws that cannot be asked now
 */
export async function knownOf(call: BoughtCall, { maps, sources }: Truths = NO_TRUTHS): Promise<KnownAnswer | null> {
  const input = inputOf(call);
  if (!input) return null;
  const { declared, endpoint, listedClass, scored } = call;
  const listed = listedClass === any.name ? undefined : listedClass;
  // Without an example of the seller's the input shows the form: then it has the question's members and no others.
  const example = declared?.example ?? { ...input };
  const words: Declared = { ...NOTHING, ...declared, named: declared?.named ?? listed, example };
  const match = classMatchOf({ ...endpoint, sellerClaims: null }, words, maps);
  const { checker, variant: name, mapping } = match;
  if (name === null || (mapping && !scored)) return null;
  const variant = checker.variants[name]!;
  const fields = mapping ? readAskedFields(mapping.input, input) : ownFields(match, variant, input, example);
  const count = variant.asks.length + (variant.fixed?.length ?? 0);
  if (!fields || (!mapping && !declared?.example && membersIn(input) !== count)) return null;
  const truth = await variant.solve(fields, { ...sources, row: rowOf(maps, mapping?.rows) });
  if (truth === null || truth === undefined || keepable(truth) === undefined) return null;
  return { input, truth, class: checker.name, variant: name, answer: mapping ? mapping.answer : variant.answer };
}
