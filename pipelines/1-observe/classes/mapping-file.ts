import { readFileSync } from "node:fs";
import { z } from "zod";
import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import { ConfigError } from "../../../infra/config.ts";
import { parseUrl } from "../../../infra/url.ts";
import { type KnownRow, lettersAndDigits } from "../../record/classes/checker.ts";
import { knownRows } from "../../record/classes/known-rows.ts";
import { isPointer, type Mapping, placeholderNames } from "../../record/classes/mapping.ts";
import { anyClass, CHECKERS, checkerOf } from "../../record/classes.ts";
import { faultsOf, pointerOf } from "../../record/faults.ts";
import { isId } from "../../record/ids.ts";
import { BadUrl, normaliseUrl } from "../../record/url.ts";
import { METHODS } from "../../record/vocabulary.ts";
import { valueIfKeepable } from "../json.ts";
import { type ClassMaps, createMapping } from "./classing.ts";

/** The empty mappings, for a service without a file of classes. */
export const NO_CLASS_MAPS: ClassMaps = { find: () => null, rows: () => [] };

const CLASSES = CHECKERS.filter((checker) => checker !== anyClass).map(({ name }) => name);
const TextMembers = z.record(z.string().min(1).max(200), z.string().max(10_000));

const url = z.string().transform((text, context) => {
  try {
    return normaliseUrl(text);
  } catch (error) {
    context.addIssue({ code: "custom", message: error instanceof BadUrl ? error.says : "is no url" });
    return z.NEVER;
  }
});
const host = z
  .string()
  .refine(
    (text) => /^[^\s/?#@\\]+$/.test(text) && parseUrl(`https://${text}`) !== null,
    "is no host such as api.example.com",
  )
  .transform((text) => new URL(`https://${text}`).host);

/** Matches one endpoint by its id or its listed url (which may be a template), or all endpoints of a host. */
const Match = z
  .strictObject({
    capability: z
      .string()
      .refine((id) => isId("cap", id), "is no capability id")
      .optional(),
    url: url.optional(),
    host: host.optional(),
  })
  .refine((one) => Object.values(one).filter((value) => value !== undefined).length === 1, {
    message: "names exactly one of capability, url and host",
  });

const Row = z
  .strictObject({
    match: Match,
    /** Restricts the match to endpoints with this method, or to this tool of an MCP server. */
    method: z.enum(METHODS).optional(),
    tool: z.string().min(1).max(200).optional(),
    class: z.enum(CLASSES as [string, ...string[]]),
    /** Name of the class's question; may be left out where the class has only one question. */
    variant: z.string().optional(),
    /** Only for the class `known-rows`: a name under `rows`. */
    rows: z.string().max(60).optional(),
    input: z.strictObject({
      query: TextMembers.optional(),
      body: z.unknown().optional(),
      path: TextMembers.optional(),
    }),
    answer: z.string().max(500).refine(isPointer, 'is no JSON pointer such as "/data/hash"').nullable().optional(),
  })
  .superRefine((row, context) => {
    const fault = (path: string[], message: string) => context.addIssue({ code: "custom", path, message });
    const { variants } = checkerOf(row.class);
    const names = Object.keys(variants);
    const variant = row.variant ?? (names.length === 1 ? names[0]! : undefined);
    const known = variant !== undefined && Object.hasOwn(variants, variant) ? variants[variant]! : null;
    if (!known) return fault(["variant"], `is one of ${names.join(", ")}`);
    if (valueIfKeepable(row.input) === undefined)
      return fault(["input"], "is too big, or cannot be written in one way");
    if ((row.class === knownRows.name) !== (row.rows !== undefined))
      return fault(["rows"], `names the rows of a mapping of the class ${knownRows.name}, and of no other`);
    // The fields of known rows are checked against the input in ClassesFile.
    if (row.rows !== undefined) return;
    const used = placeholderNames(row.input);
    const takes = [...known.asks, ...(known.fixed ?? [])];
    for (const name of known.asks)
      if (!used.includes(name)) fault(["input"], `has no {${name}}, which the question is about`);
    for (const name of used)
      if (!takes.includes(name)) fault(["input"], `{${name}} is nothing that is asked; there is ${takes.join(", ")}`);
  });

/**
 * Fewest known rows of a set. Each row that was asked becomes public with its evidence, so a seller could store the
 * answers of a small set.
 */
const MIN_ROWS = 20;
const MAX_ROWS = 10_000;

/** A set of facts that an operator supplies: the weather of past days, entries of a register or a catalogue. */
const Rows = z.strictObject({
  /** Largest difference from a row's answer that still counts as right, for numbers. */
  within: z.number().min(0).default(0),
  rows: z
    .array(
      z.strictObject({
        asks: z.record(
          z.string().regex(/^[a-z_]{1,40}$/, "is no name of small letters and _"),
          z.union([z.string().max(1_000), z.number()]),
        ),
        answer: z.union([
          z
            .string()
            .max(1_000)
            .refine((text) => lettersAndDigits(text) !== "", "has no letter and no figure: nobody could say it"),
          z.number(),
        ]),
      }),
    )
    .min(MIN_ROWS)
    .max(MAX_ROWS),
});

const ClassesFile = z
  .strictObject({
    version: z.literal(1),
    rows: z.record(z.string().min(1).max(60), Rows).default({}),
    mappings: z.array(Row).max(100_000),
  })
  .superRefine(({ rows: sets, mappings }, context) => {
    for (const [n, { rows: name, input }] of mappings.entries()) {
      if (name === undefined) continue;
      const fault = (member: string, message: string) =>
        context.addIssue({ code: "custom", path: ["mappings", n, member], message });
      if (!Object.hasOwn(sets, name)) {
        fault("rows", "names no rows of this file");
        continue;
      }
      const used = placeholderNames(input);
      if (used.length === 0) fault("input", "asks nothing: it has no name of a row's in braces");
      for (const one of used)
        if (sets[name]!.rows.some(({ asks }) => !Object.hasOwn(asks, one)))
          fault("input", `{${one}} is not asked by every row of ${name}`);
    }
  });
type Row = z.infer<typeof Row>;

/** The longest file that is read, bytes. */
const MAX_FILE = 32 * 1024 * 1024;

const matchKey = ({ match, method, tool }: Row): string =>
  JSON.stringify([match.capability ?? match.url ?? match.host, method ?? "", tool ?? ""]);

function createRowMapping({ class: name, variant, rows, input, answer }: Row, digests: Map<string, string>): Mapping {
  const { variants } = checkerOf(name);
  const chosen = variant ?? Object.keys(variants)[0]!;
  const at = answer === undefined ? variants[chosen]!.answer : answer;
  const of = { class: name, variant: chosen, by: "operator" as const, input, answer: at };
  return rows === undefined ? createMapping(of) : createMapping({ ...of, rows }, digests.get(rows));
}

/**
 * Reads an operator's file of classes (docs/classes.md). If several mappings match an endpoint, the most specific is
 * used: by id before url before host, and then one with method or tool before one without.
 * @throws ConfigError that names the place of every fault
 */
export function readClassMaps(path: string): ClassMaps {
  const fail = (...says: string[]): never => {
    throw new ConfigError(says.map((one) => `classes_file (${path}): ${one}`));
  };
  let given: unknown;
  try {
    const text = readFileSync(path, "utf8");
    if (text.length > MAX_FILE) fail(`is longer than ${MAX_FILE} bytes`);
    given = JSON.parse(text);
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    fail(error instanceof SyntaxError ? `is no JSON: ${error.message}` : `cannot be read: ${(error as Error).message}`);
  }
  return createClassMaps(given, fail);
}

/** Makes the mappings from a parsed file. @param fail called once with all faults; it does not return */
export function createClassMaps(given: unknown, fail: (...says: string[]) => never): ClassMaps {
  const parsed = ClassesFile.safeParse(given);
  if (!parsed.success) fail(...faultsOf(parsed.error).map(({ path, detail }) => `${pointerOf(path)}: ${detail}`));
  const sets = Object.entries(parsed.data!.rows);
  const digests = new Map(sets.map(([name, set]) => [name, sha256hex(canonicalText(set))]));
  const rows = new Map<string, Mapping>();
  const duplicates: string[] = [];
  for (const [n, row] of parsed.data!.mappings.entries()) {
    const key = matchKey(row);
    if (rows.has(key)) duplicates.push(`/mappings/${n}/match: another mapping matches the same`);
    rows.set(key, createRowMapping(row, digests));
  }
  if (duplicates.length > 0) fail(...duplicates.slice(0, 20));
  const known = new Map(
    sets.map(([name, { within, rows: all }]): [string, KnownRow[]] => [name, all.map((one) => ({ ...one, within }))]),
  );
  return {
    rows: (name) => known.get(name) ?? [],
    find({ cap, url: of, method, tool }) {
      if (rows.size === 0) return null;
      const asked = [cap, of, parseUrl(of)?.host ?? ""];
      const methodsAndTools = [
        [method, tool ?? ""],
        ["", tool ?? ""],
        [method, ""],
        ["", ""],
      ];
      for (const name of asked)
        for (const [verb, named] of methodsAndTools) {
          const found = rows.get(JSON.stringify([name, verb, named]));
          if (found) return found;
        }
      return null;
    },
  };
}
