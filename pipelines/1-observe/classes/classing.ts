import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import type { Claims } from "../../record/bodies.ts";
import type { Fields, KnownRow } from "../../record/classes/checker.ts";
import { fillTemplateFields, type Mapping } from "../../record/classes/mapping.ts";
import {
  anyClass,
  CHECKERS,
  type Checker,
  checkerOf,
  classOf,
  type Example,
  type Variant,
} from "../../record/classes.ts";
import type { ListedCap } from "../../record/memory.ts";
import { get, isObject } from "../json.ts";
import type { Declared } from "../terms/declared.ts";

/**
 * The class of an endpoint (a kind of questions whose answers we know), the question that it gets, and how the
 * question is put into a request.
 */
export interface ClassMatch {
  /** Has the questions of the class, and scores their answers. */
  checker: Checker;
  /** Name of the question; null if none fits the endpoint. */
  variant: string | null;
  /**
   * Null if the seller names the class itself. Then its endpoint accepts the question in the form that the class
   * defines.
   */
  mapping: Mapping | null;
  /** Makes the request input that asks one question; null if that is not possible. */
  arrange(fields: Fields): Example | null;
}

/** The mappings from an operator's file. They take precedence over what a seller declares. */
export interface ClassMaps {
  /** Returns the most specific mapping that matches the endpoint; null if none matches. */
  find(one: Pick<ListedCap, "cap" | "url" | "method" | "tool">): Mapping | null;
  /** Returns the known rows under a name that a mapping refers to; empty if there are none. */
  rows(name: string): readonly KnownRow[];
}

/** The part of a request that holds the input. */
type Place = "query" | "body";
/** The seller's description of input and answer, from its listing or else from its 402. */
interface SellerDescription {
  example: Claims["example"];
  inputSchema: unknown;
  outputSchema: unknown;
}

/** The members of an endpoint that determine its class, beside what its 402 declares. */
type ClassedEndpoint = Pick<ListedCap, "cap" | "url" | "method" | "tool" | "sellerClaims">;

const NO_MATCH: ClassMatch = { checker: anyClass, variant: null, mapping: null, arrange: () => null };

function describeBySeller(
  { sellerClaims: listingClaims }: ClassedEndpoint,
  declared: Declared | null,
): SellerDescription {
  return {
    example: listingClaims?.example ?? declared?.example ?? null,
    inputSchema: listingClaims?.input_schema ?? declared?.inputSchema,
    outputSchema: listingClaims?.output_schema ?? declared?.outputSchema,
  };
}

const memberOfPointer = (answer: string | null): string => (answer ?? "").slice(1);
const propertyNames = (schema: unknown): string[] => {
  const properties = get(schema, "properties");
  return isObject(properties) ? Object.keys(properties) : [];
};
const hasMembers = (value: unknown, names: readonly string[]): boolean =>
  isObject(value) && names.every((name) => Object.hasOwn(value, name));

/**
 * Finds the question whose fields the seller's example has, in its query or else in its body. If several questions fit,
 * the answer's schema decides; null if then none or several remain.
 */
function findQuestionOfExample(
  { variants }: Checker,
  { example, outputSchema }: SellerDescription,
): { name: string; place: Place } | null {
  if (!example) return null;
  const place = Object.values(variants).some(({ asks }) => hasMembers(example.query, asks)) ? "query" : "body";
  const fittingVariants = Object.entries(variants).filter(([, { asks }]) => hasMembers(example[place], asks));
  const outputMembers = propertyNames(outputSchema);
  const matches =
    fittingVariants.length > 1
      ? fittingVariants.filter(([, { answer }]) => outputMembers.includes(memberOfPointer(answer)))
      : fittingVariants;
  return matches.length === 1 ? { name: matches[0]![0], place } : null;
}

/** Converts a value to text if the example's value is text. */
const toExampleType = (example: unknown, value: string | number): string | number =>
  typeof example === "string" ? String(value) : value;

/** Puts the question into the seller's example; null where the example does not have the question's fixed values. */
function fillExample(
  variant: Variant,
  place: Place,
  example: NonNullable<SellerDescription["example"]>,
  fields: Fields,
): Example | null {
  const exampleMembers = example[place] as Record<string, unknown>;
  if (variant.fixed?.some((name) => String(exampleMembers[name]) !== String(fields[name]))) return null;
  const askedValues = variant.asks.map((name) => [name, fields[name]!] as const);
  if (place === "query")
    return {
      ...example,
      query: { ...example.query, ...Object.fromEntries(askedValues.map(([n, v]) => [n, String(v)])) },
    };
  return {
    ...example,
    body: {
      ...exampleMembers,
      ...Object.fromEntries(askedValues.map(([n, v]) => [n, toExampleType(exampleMembers[n], v)])),
    },
  };
}

/** Matches an endpoint whose seller names the class. */
function matchByName(className: string, description: SellerDescription): ClassMatch {
  const checker = checkerOf(className);
  const question = findQuestionOfExample(checker, description);
  if (!question) return { ...NO_MATCH, checker };
  const variant = checker.variants[question.name]!;
  const arrange = (fields: Fields) => fillExample(variant, question.place, description.example!, fields);
  return { checker, variant: question.name, mapping: null, arrange };
}

/**
 * Makes a mapping with its id, which is a hash of its members.
 * @param rows digest of the known rows, so that changed rows under an old name give another id
 */
export const createMapping = (
  content: Pick<Mapping, "class" | "variant" | "by" | "rows" | "input" | "answer">,
  rows?: string,
): Mapping => ({ ...content, id: sha256hex(canonicalText(rows === undefined ? content : { ...content, rows })) });

export function matchByMapping(mapping: Mapping): ClassMatch {
  const checker = checkerOf(mapping.class);
  if (!Object.hasOwn(checker.variants, mapping.variant)) return NO_MATCH;
  return { checker, variant: mapping.variant, mapping, arrange: (fields) => fillTemplateFields(mapping.input, fields) };
}

const isSameSet = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((name) => b.includes(name));

/** Reads the names of the input's members from its schema, or else from the example. */
function inputNames({ inputSchema, example }: SellerDescription, place: Place): string[] {
  const properties = get(inputSchema, "properties");
  if (isObject(properties)) return Object.keys(properties);
  const exampleMembers = example?.[place];
  return isObject(exampleMembers) ? Object.keys(exampleMembers) : [];
}

/**
 * Matches an endpoint whose seller names no class: finds the question whose field names are exactly those of the input,
 * and whose answer is in the answer's schema. If no question or several fit, the endpoint has no class.
 */
function matchBySchema(description: SellerDescription, place: Place): ClassMatch {
  const [inputMembers, outputMembers] = [inputNames(description, place), propertyNames(description.outputSchema)];
  const fittingVariants = CHECKERS.filter((checker) => checker.bySchema).flatMap((checker) =>
    Object.entries(checker.variants)
      .filter(
        ([, { asks, answer }]) => isSameSet(asks, inputMembers) && outputMembers.includes(memberOfPointer(answer)),
      )
      .map(([variant, { asks, answer }]) => ({ class: checker.name, variant, asks, answer })),
  );
  if (fittingVariants.length !== 1) return NO_MATCH;
  const { asks, ...fittingVariant } = fittingVariants[0]!;
  const input = Object.fromEntries(asks.map((name) => [name, `{${name}}`]));
  return matchByMapping(createMapping({ ...fittingVariant, by: "schema", input: { [place]: input } }));
}

/**
 * Determines the class of an endpoint: from the operator's mapping, else from the seller's name for it, else from its
 * schema.
 */
export function matchClass(endpoint: ClassedEndpoint, declared: Declared | null, maps: ClassMaps): ClassMatch {
  const mapping = maps.find(endpoint);
  if (mapping) return matchByMapping(mapping);
  const listingClaims = endpoint.sellerClaims;
  const className =
    listingClaims && listingClaims.class !== anyClass.name
      ? listingClaims.class
      : classOf({ named: declared?.className });
  const description = describeBySeller(endpoint, declared);
  if (className !== anyClass.name) return matchByName(className, description);
  const isInputInBody = endpoint.tool !== null || (endpoint.method !== "GET" && endpoint.method !== "DELETE");
  return matchBySchema(description, isInputInBody ? "body" : "query");
}
