import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import type { Claims } from "../../record/bodies.ts";
import type { Fields, KnownRow } from "../../record/classes/checker.ts";
import { fillTemplateFields, type Mapping } from "../../record/classes/mapping.ts";
import { any, CHECKERS, type Checker, checkerOf, classOf, type Example, type Variant } from "../../record/classes.ts";
import type { ListedCap } from "../../record/memory.ts";
import { get, isObject } from "../json.ts";
import type { Declared } from "../terms/declared.ts";

/** The class of an endpoint, the question that it is asked, and how the question is put into a request. */
export interface ClassMatch {
  checker: Checker;
  /** Name of the question; null where none fits the endpoint. */
  variant: string | null;
  /** null: the seller names the class itself, and takes the question in the class's own form. */
  mapping: Mapping | null;
  /** The request input that asks one question. */
  arrange(fields: Fields): Example | null;
}

/** The mappings that an operator set. They take precedence over what a seller declares. */
export interface ClassMaps {
  find(one: Pick<ListedCap, "cap" | "url" | "method" | "tool">): Mapping | null;
  /** The known rows under a name that a mapping gives; empty where there are none. */
  rows(name: string): readonly KnownRow[];
}

type Place = "query" | "body";
/** How the seller describes its call and its answer: its listing first, then its 402. */
interface Words {
  example: Claims["example"];
  inputSchema: unknown;
  outputSchema: unknown;
}

/** What the class of an endpoint is decided by, beside what its 402 declares. */
type Classed = Pick<ListedCap, "cap" | "url" | "method" | "tool" | "sellerClaims">;

const NONE: ClassMatch = { checker: any, variant: null, mapping: null, arrange: () => null };

function wordsOf({ sellerClaims: own }: Classed, declared: Declared | null): Words {
  return {
    example: own?.example ?? declared?.example ?? null,
    inputSchema: own?.input_schema ?? declared?.inputSchema,
    outputSchema: own?.output_schema ?? declared?.outputSchema,
  };
}

const member = (answer: string | null): string => (answer ?? "").slice(1);
const outputs = (schema: unknown): string[] => {
  const properties = get(schema, "properties");
  return isObject(properties) ? Object.keys(properties) : [];
};
const holds = (value: unknown, names: readonly string[]): boolean =>
  isObject(value) && names.every((name) => Object.hasOwn(value, name));

/**
 * The question whose members the seller's example has, in its query or else in its body. If several fit, the answer's
 * schema decides; null if it leaves none or several.
 */
function ownForm({ variants }: Checker, { example, outputSchema }: Words): { name: string; place: Place } | null {
  if (!example) return null;
  const place = Object.values(variants).some(({ asks }) => holds(example.query, asks)) ? "query" : "body";
  const fitting = Object.entries(variants).filter(([, { asks }]) => holds(example[place], asks));
  const named = outputs(outputSchema);
  const told = fitting.length > 1 ? fitting.filter(([, { answer }]) => named.includes(member(answer))) : fitting;
  return told.length === 1 ? { name: told[0]![0], place } : null;
}

/** A value in the type of the example's: text where the example has text. */
const like = (example: unknown, value: string | number): string | number =>
  typeof example === "string" ? String(value) : value;

/** The seller's example with the question put in; null where the example does not have the question's fixed values. */
function inExample(
  variant: Variant,
  place: Place,
  example: NonNullable<Words["example"]>,
  fields: Fields,
): Example | null {
  const given = example[place] as Record<string, unknown>;
  if (variant.fixed?.some((name) => String(given[name]) !== String(fields[name]))) return null;
  const asked = variant.asks.map((name) => [name, fields[name]!] as const);
  if (place === "query")
    return { ...example, query: { ...example.query, ...Object.fromEntries(asked.map(([n, v]) => [n, String(v)])) } };
  return { ...example, body: { ...given, ...Object.fromEntries(asked.map(([n, v]) => [n, like(given[n], v)])) } };
}

/** The classing of an endpoint whose seller names the class. */
function byName(named: string, words: Words): ClassMatch {
  const checker = checkerOf(named);
  const form = ownForm(checker, words);
  if (!form) return { ...NONE, checker };
  const variant = checker.variants[form.name]!;
  const arrange = (fields: Fields) => inExample(variant, form.place, words.example!, fields);
  return { checker, variant: form.name, mapping: null, arrange };
}

/**
 * A mapping with its id, by which the record tells it from others.
 * @param rows digest of the known rows: other rows under an old name give another id
 */
export const mappingOf = (
  of: Pick<Mapping, "class" | "variant" | "by" | "rows" | "input" | "answer">,
  rows?: string,
): Mapping => ({ ...of, id: sha256hex(canonicalText(rows === undefined ? of : { ...of, rows })) });

export function mapped(mapping: Mapping): ClassMatch {
  const checker = checkerOf(mapping.class);
  if (!Object.hasOwn(checker.variants, mapping.variant)) return NONE;
  return { checker, variant: mapping.variant, mapping, arrange: (fields) => fillTemplateFields(mapping.input, fields) };
}

const same = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((name) => b.includes(name));

/** Names of the input's members: of its schema, or else of the example. */
function inputNames({ inputSchema, example }: Words, place: Place): string[] {
  const properties = get(inputSchema, "properties");
  if (isObject(properties)) return Object.keys(properties);
  const given = example?.[place];
  return isObject(given) ? Object.keys(given) : [];
}

/**
 * For a seller that names no class: the one question whose member names are exactly the input's, and whose answer is in
 * the schema of the answer. If none or several questions fit, the endpoint has no class.
 */
function bySchema(words: Words, place: Place): ClassMatch {
  const [asked, answered] = [inputNames(words, place), outputs(words.outputSchema)];
  const fits = CHECKERS.filter((checker) => checker.bySchema).flatMap((checker) =>
    Object.entries(checker.variants)
      .filter(([, { asks, answer }]) => same(asks, asked) && answered.includes(member(answer)))
      .map(([variant, { asks, answer }]) => ({ class: checker.name, variant, asks, answer })),
  );
  if (fits.length !== 1) return NONE;
  const { asks, ...fit } = fits[0]!;
  const input = Object.fromEntries(asks.map((name) => [name, `{${name}}`]));
  return mapped(mappingOf({ ...fit, by: "schema", input: { [place]: input } }));
}

/** The class of an endpoint: from the operator's mapping, else as the seller names it, else from its schema. */
export function classMatchOf(one: Classed, declared: Declared | null, maps: ClassMaps): ClassMatch {
  const told = maps.find(one);
  if (told) return mapped(told);
  const own = one.sellerClaims;
  const named = own && own.class !== any.name ? own.class : classOf({ named: declared?.named });
  const words = wordsOf(one, declared);
  if (named !== any.name) return byName(named, words);
  const inBody = one.tool !== null || (one.method !== "GET" && one.method !== "DELETE");
  return bySchema(words, inBody ? "body" : "query");
}
