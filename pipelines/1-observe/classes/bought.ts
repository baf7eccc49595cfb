import { type Fields, lettersAndDigits, type TruthSources } from "../../record/classes/checker.ts";
import { readAskedFields } from "../../record/classes/mapping.ts";
import { anyClass, type Example, type KnownAnswer, type Variant } from "../../record/classes.ts";
import type { ListedCap } from "../../record/memory.ts";
import { hashOf, isObject, parseJson, valueIfKeepable } from "../json.ts";
import { type Declared, NOTHING_DECLARED } from "../terms/declared.ts";
import { type ClassMaps, type ClassMatch, matchClass } from "./classing.ts";
import { NO_CLASS_MAPS } from "./mapping-file.ts";

/** The mappings and sources from which the right answer to a buyer's question is found. */
export interface TruthParts {
  maps: ClassMaps;
  sources: Omit<TruthSources, "row">;
}

/** No mappings and no sources. With this value, only answers that can be computed are found. */
const NO_MAPS_OR_SOURCES: TruthParts = { maps: NO_CLASS_MAPS, sources: {} };

/** A call that a buyer wants to make, and what is known about the endpoint. */
export interface BoughtCall {
  /** The endpoint as it is listed. */
  endpoint: Pick<ListedCap, "cap" | "url" | "method" | "tool">;
  /**
   * Class (kind of questions whose answers we know) in the endpoint's published listing; absent if the listing names
   * none.
   */
  listedClass?: string | undefined;
  /**
   * Has the endpoint already passed a question of ours? Until then, our mapping of the endpoint to a class is not used.
   */
  hasPassedQuestion: boolean;
  /** What the endpoint's 402 for this call declares. */
  declared: Declared | null;
  /** Url of the request as it is sent. */
  url: string;
  /** Body of the request as it is sent; null if it has none. */
  body: Uint8Array | null;
}

/** Returns the parameters by name; null if a name occurs twice. */
function uniqueParams(params: URLSearchParams): Record<string, string> | null {
  const pairs = [...params];
  const valuesByName = Object.fromEntries(pairs);
  return Object.keys(valuesByName).length === pairs.length ? valuesByName : null;
}

/**
 * Reads the buyer's own input: its query without the parameters of the listed url, and its body. null if a name occurs
 * twice, or the body is not JSON.
 */
function readInput({ endpoint, url, body }: BoughtCall): Example | null {
  const query = uniqueParams(new URL(url).searchParams);
  if (!query) return null;
  for (const [name, value] of new URL(endpoint.url).searchParams) if (query[name] === value) delete query[name];
  const queryInput = Object.keys(query).length === 0 ? {} : { query };
  if (body === null || body.length === 0) return queryInput;
  const parsed = parseJson(body);
  return parsed === undefined || valueIfKeepable(parsed) === undefined ? null : { ...queryInput, body: parsed };
}

const isSameValue = (a: unknown, b: unknown): boolean => {
  const hash = hashOf(a ?? null);
  return hash !== null && hash === hashOf(b ?? null);
};

/** Reads the fields of a question from the query or the body; null unless all of them are there as texts or numbers. */
function readFields(value: unknown, names: readonly string[]): Fields | null {
  if (!isObject(value)) return null;
  const fields = names.map((name) => [name, Object.hasOwn(value, name) ? value[name] : null] as const);
  const isComplete = fields.every(([, one]) => typeof one === "string" || typeof one === "number");
  return isComplete ? (Object.fromEntries(fields) as Fields) : null;
}

/**
 * Reads the fields of a question in the class's own form. Besides them the input may only have members of the seller's
 * example with the example's values, since any other member could ask for another answer.
 */
function readFieldsInClassForm(
  { checker, arrange }: ClassMatch,
  variant: Variant,
  input: Example,
  example: Example,
): Fields | null {
  const names = [...variant.asks, ...(variant.fixed ?? [])];
  const place = readFields(input.query, names) ? "query" : "body";
  const fields = readFields(input[place], names);
  const arranged = fields && arrange(fields);
  if (!fields || !arranged || !isSameValue(input.path, example.path)) return null;
  const otherPlace = place === "query" ? "body" : "query";
  if (input[otherPlace] !== undefined && !isSameValue(input[otherPlace], arranged[otherPlace])) return null;
  const [inputMembers, arrangedMembers] = [input[place], arranged[place]] as [
    Record<string, unknown>,
    Record<string, unknown>,
  ];
  const hasOnlyArrangedMembers = Object.entries(inputMembers).every(
    ([name, value]) => Object.hasOwn(arrangedMembers, name) && isSameValue(value, arrangedMembers[name]),
  );
  // If several questions have these field names, another member may select one of them, so the input must have all
  // members.
  const questionsWithSameFields = Object.values(checker.variants).filter(({ asks }) =>
    isSameValue([...asks].sort(), [...variant.asks].sort()),
  );
  const hasAllMembers =
    questionsWithSameFields.length === 1 || Object.keys(inputMembers).length === Object.keys(arrangedMembers).length;
  return hasOnlyArrangedMembers && hasAllMembers ? fields : null;
}

/** Counts the members of an input, at all of its places. */
const countMembers = ({ query, body }: Example): number =>
  [query, body].reduce<number>((count, place) => {
    if (isObject(place)) return count + Object.keys(place).length;
    return place === undefined ? count : count + 1;
  }, 0);

/**
 * Makes the function that finds the one known row (a fact that an operator supplied) with given values. Texts are
 * compared by letters and digits only, as answers are.
 */
function createRowFinder(maps: ClassMaps, name: string | undefined): NonNullable<TruthSources["row"]> {
  return (askedFields) => {
    const isAsked = ([key, value]: [string, string | number]): boolean =>
      Object.hasOwn(askedFields, key) &&
      (String(askedFields[key]) === String(value) || toComparableValue(askedFields[key]) === toComparableValue(value));
    const matchingRows =
      name === undefined ? [] : maps.rows(name).filter(({ asks }) => Object.entries(asks).every(isAsked));
    return matchingRows.length === 1 ? matchingRows[0]! : null;
  };
}

const toComparableValue = (value: unknown): unknown =>
  typeof value === "string" && lettersAndDigits(value) !== "" ? lettersAndDigits(value) : value;

/**
 * Finds the question of a class that a buyer's own call asks, with its right answer, so that the answer can be scored
 * as in a paid call of ours. null if we know no right answer to this input.
 * @throws the error of a source that cannot be read now
 */
export async function findKnownAnswer(
  call: BoughtCall,
  { maps, sources }: TruthParts = NO_MAPS_OR_SOURCES,
): Promise<KnownAnswer | null> {
  const input = readInput(call);
  if (!input) return null;
  const { declared, endpoint, listedClass, hasPassedQuestion } = call;
  const listedClassName = listedClass === anyClass.name ? undefined : listedClass;
  // Without an example from the seller, the input itself is used as the example. Then it must have only the question's
  // members.
  const example = declared?.example ?? { ...input };
  const declaredWithClass: Declared = {
    ...NOTHING_DECLARED,
    ...declared,
    className: declared?.className ?? listedClassName,
    example,
  };
  const match = matchClass({ ...endpoint, sellerClaims: null }, declaredWithClass, maps);
  const { checker, variant: variantName, mapping } = match;
  if (variantName === null || (mapping && !hasPassedQuestion)) return null;
  const variant = checker.variants[variantName]!;
  const fields = mapping
    ? readAskedFields(mapping.input, input)
    : readFieldsInClassForm(match, variant, input, example);
  const count = variant.asks.length + (variant.fixed?.length ?? 0);
  if (!fields || (!mapping && !declared?.example && countMembers(input) !== count)) return null;
  const truth = await variant.solve(fields, { ...sources, row: createRowFinder(maps, mapping?.rows) });
  if (truth === null || truth === undefined || valueIfKeepable(truth) === undefined) return null;
  return { input, truth, class: checker.name, variant: variantName, answer: mapping ? mapping.answer : variant.answer };
}
