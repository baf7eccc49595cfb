import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import type { Claims } from "../../record/bodies.ts";
import type { Fields, KnownRow } from "../../record/classes/checker.ts";
import { filled, type Mapping } from "../../record/classes/mapping.ts";
import { any, CHECKERS, type Checker, checkerOf, classOf, type Example, type Variant } from "../../record/classes.ts";
import type { ListedCap } from "../../record/memory.ts";
import { get, isObject } from "../json.ts";
import type { Declared } from "../terms/declared.ts";

/** Which class an endpoint has, which of its questions it is asked, and how. */
export interface Classing {
  checker: Checker;
  /** Name of the question; null: there is none that it could be asked. */
  variant: string | null;
  /** null: the seller names the class itself, and takes questions in the class's own form. */
  mapping: Mapping | null;
  /** The input of one question. */
  arrange(fields: Fields): Example | null;
}

/** What an operator sets of classes; it goes before what a seller says of itself. */
export interface ClassMaps {
  find(one: Pick<ListedCap, "cap" | "url" | "method" | "tool">): Mapping | null;
  /** Rows by the name that a mapping has for them; none where the file has none of that name. */
  rows(name: string): readonly KnownRow[];
}

type Place = "query" | "body";
/** How the seller itself says that it is called and what it answers: its listing first, then its 402. */
interface Words {
  example: Claims["example"];
  inputSchema: unknown;
  outputSchema: unknown;
}

const NONE: Classing = { checker: any, variant: null, mapping: null, arrange: () => null };

function wordsOf({ sellerClaims: own }: ListedCap, declared: Declared | null): Words {
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
 * Kinds of question whose names the example has, in its query or else in its body; several are told apart by the
 * answer.
 */
function ownForm({ variants }: Checker, { example, outputSchema }: Words): { name: string; place: Place } | null {
  if (!example) return null;
  const place = Object.values(variants).some(({ asks }) => holds(example.query, asks)) ? "query" : "body";
  const fitting = Object.entries(variants).filter(([, { asks }]) => holds(example[place], asks));
  const named = outputs(outputSchema);
  const told = fitting.length > 1 ? fitting.filter(([, { answer }]) => named.includes(member(answer))) : fitting;
  return told.length === 1 ? { name: told[0]![0], place } : null;
}

/** A value in the form that the example has: text where the example has text. */
const like = (example: unknown, value: string | number): string | number =>
  typeof example === "string" ? String(value) : value;

/** The seller's own example with the question in it; null where the example does not have the question's fixed values. */
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

/** The seller says which class it is. */
function byName(named: string, words: Words): Classing {
  const checker = checkerOf(named);
  const form = ownForm(checker, words);
  if (!form) return { ...NONE, checker };
  const variant = checker.variants[form.name]!;
  const arrange = (fields: Fields) => inExample(variant, form.place, words.example!, fields);
  return { checker, variant: form.name, mapping: null, arrange };
}

/**
 * What a mapping does, as the record tells it apart from others.
 * @param rows what makes its rows others than those of the same name before
 */
export const mappingOf = (
  of: Pick<Mapping, "class" | "variant" | "by" | "rows" | "input" | "answer">,
  rows?: string,
): Mapping => ({ ...of, id: sha256hex(canonicalText(rows === undefined ? of : { ...of, rows })) });

export function mapped(mapping: Mapping): Classing {
  const checker = checkerOf(mapping.class);
  if (!Object.hasOwn(checker.variants, mapping.variant)) return NONE;
  return { checker, variant: mapping.variant, mapping, arrange: (fields) => filled(mapping.input, fields) };
}

const same = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((name) => b.includes(name));

/** Names that an input has to have, and no other: of a schema, or else of the example. */
function inputNames({ inputSchema, example }: Words, place: Place): string[] {
  const properties = get(inputSchema, "properties");
  if (isObject(properties)) return Object.keys(properties);
  const given = example?.[place];
  return isObject(given) ? Object.keys(given) : [];
}

/**
 * A seller that names no class, and whose own words fit exactly one question of exactly one class: its input has the
 * names of the question and no others, its answer's schema names the question's answer and that of no other question.
 */
function bySchema(words: Words, place: Place): Classing {
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

/** The class of an endpoint: by an operator's word, else by the seller's, else by the schema that it declares. */
export function classingOf(one: ListedCap, declared: Declared | null, maps: ClassMaps): Classing {
  const told = maps.find(one);
  if (told) return mapped(told);
  const own = one.sellerClaims;
  const named = own && own.class !== any.name ? own.class : classOf({ named: declared?.named });
  const words = wordsOf(one, declared);
  if (named !== any.name) return byName(named, words);
  const inBody = one.tool !== null || (one.method !== "GET" && one.method !== "DELETE");
  return bySchema(words, inBody ? "body" : "query");
}
