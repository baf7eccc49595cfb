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

const CLASS_NAMES = CHECKERS.filter((checker) => checker !== anyClass).map(({ name }) => name);
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

/** An operator's mapping of endpoints to a class, as written in the file. */
const MappingEntry = z
  .strictObject({
    match: Match,
    /** Restricts the match to endpoints with this method, or to this tool of an MCP server. */
    method: z.enum(METHODS).optional(),
    tool: z.string().min(1).max(200).optional(),
    class: z.enum(CLASS_NAMES as [string, ...string[]]),
    /** Name of the class's question; may be left out where the class has only one question. */
    variant: z.string().optional(),
    /** Only for the class `known-rows`: a name under `rows`. */
    rows: z.string().max(60).optional(),
    /** Input of the request. `{name}` in it stands for a value that the question asks about. */
    input: z.strictObject({
      query: TextMembers.optional(),
      body: z.unknown().optional(),
      path: TextMembers.optional(),
    }),
    /**
     * JSON pointer to the value of the answer that is scored; null: the whole answer as text; absent: the pointer that
     * the class defines for the question.
     */
    answer: z.string().max(500).refine(isPointer, 'is no JSON pointer such as "/data/hash"').nullable().optional(),
  })
  .superRefine((entry, context) => {
    const addFault = (path: string[], message: string) => context.addIssue({ code: "custom", path, message });
    const { variants } = checkerOf(entry.class);
    const names = Object.keys(variants);
    const variant = entry.variant ?? (names.length === 1 ? names[0]! : undefined);
    const question = variant !== undefined && Object.hasOwn(variants, variant) ? variants[variant]! : null;
    if (!question) return addFault(["variant"], `is one of ${names.join(", ")}`);
    if (valueIfKeepable(entry.input) === undefined)
      return addFault(["input"], "is too big, or cannot be written in one way");
    if ((entry.class === knownRows.name) !== (entry.rows !== undefined))
      return addFault(["rows"], `names the rows of a mapping of the class ${knownRows.name}, and of no other`);
    // The fields of known rows are checked against the input in ClassesFile.
    if (entry.rows !== undefined) return;
    const placeholders = placeholderNames(entry.input);
    const allowedNames = [...question.asks, ...(question.fixed ?? [])];
    for (const name of question.asks)
      if (!placeholders.includes(name)) addFault(["input"], `has no {${name}}, which the question is about`);
    for (const name of placeholders)
      if (!allowedNames.includes(name))
        addFault(["input"], `{${name}} is nothing that is asked; there is ${allowedNames.join(", ")}`);
  });

/**
 * Fewest known rows of a set. Each row that was asked becomes public with its evidence, so a seller could store the
 * answers of a small set.
 */
const MIN_ROWS = 20;
const MAX_ROWS = 10_000;

/** A set of facts that an operator supplies: the weather of past days, entries of a register or a catalogue. */
const RowSet = z.strictObject({
  /** Largest difference from a row's answer that still counts as right, for numbers. */
  within: z.number().min(0).default(0),
  rows: z
    .array(
      z.strictObject({
        /** The values that are asked about, by the names that stand in braces in the input of a mapping. */
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
    rows: z.record(z.string().min(1).max(60), RowSet).default({}),
    mappings: z.array(MappingEntry).max(100_000),
  })
  .superRefine(({ rows: rowSets, mappings }, context) => {
    for (const [n, { rows: name, input }] of mappings.entries()) {
      if (name === undefined) continue;
      const addFault = (member: string, message: string) =>
        context.addIssue({ code: "custom", path: ["mappings", n, member], message });
      if (!Object.hasOwn(rowSets, name)) {
        addFault("rows", "names no rows of this file");
        continue;
      }
      const placeholders = placeholderNames(input);
      if (placeholders.length === 0) addFault("input", "asks nothing: it has no name of a row's in braces");
      for (const placeholder of placeholders)
        if (rowSets[name]!.rows.some(({ asks }) => !Object.hasOwn(asks, placeholder)))
          addFault("input", `{${placeholder}} is not asked by every row of ${name}`);
    }
  });
type MappingEntry = z.infer<typeof MappingEntry>;

/** Longest file that is read, UTF-16 code units; its bytes may be up to three times as many. */
const MAX_FILE_CHARS = 32 * 1024 * 1024;

const matchKey = ({ match, method, tool }: MappingEntry): string =>
  JSON.stringify([match.capability ?? match.url ?? match.host, method ?? "", tool ?? ""]);

function createEntryMapping(
  { class: name, variant, rows, input, answer }: MappingEntry,
  digests: Map<string, string>,
): Mapping {
  const { variants } = checkerOf(name);
  const variantName = variant ?? Object.keys(variants)[0]!;
  const answerPointer = answer === undefined ? variants[variantName]!.answer : answer;
  const content = { class: name, variant: variantName, by: "operator" as const, input, answer: answerPointer };
  return rows === undefined ? createMapping(content) : createMapping({ ...content, rows }, digests.get(rows));
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
  let document: unknown;
  try {
    const text = readFileSync(path, "utf8");
    if (text.length > MAX_FILE_CHARS) fail(`is longer than ${MAX_FILE_CHARS} characters`);
    document = JSON.parse(text);
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    fail(error instanceof SyntaxError ? `is no JSON: ${error.message}` : `cannot be read: ${(error as Error).message}`);
  }
  return createClassMaps(document, fail);
}

/** Makes the mappings from a parsed file. @param fail called once with all faults; it does not return */
export function createClassMaps(document: unknown, fail: (...says: string[]) => never): ClassMaps {
  const parsed = ClassesFile.safeParse(document);
  if (!parsed.success) fail(...faultsOf(parsed.error).map(({ path, detail }) => `${pointerOf(path)}: ${detail}`));
  const rowSets = Object.entries(parsed.data!.rows);
  const digests = new Map(rowSets.map(([name, set]) => [name, sha256hex(canonicalText(set))]));
  const mappingsByKey = new Map<string, Mapping>();
  const duplicates: string[] = [];
  for (const [n, entry] of parsed.data!.mappings.entries()) {
    const key = matchKey(entry);
    if (mappingsByKey.has(key)) duplicates.push(`/mappings/${n}/match: another mapping matches the same`);
    mappingsByKey.set(key, createEntryMapping(entry, digests));
  }
  if (duplicates.length > 0) fail(...duplicates.slice(0, 20));
  const rowsByName = new Map(
    rowSets.map(([name, { within, rows: all }]): [string, KnownRow[]] => [
      name,
      all.map((one) => ({ ...one, within })),
    ]),
  );
  return {
    rows: (name) => rowsByName.get(name) ?? [],
    find({ cap, url: listedUrl, method, tool }) {
      if (mappingsByKey.size === 0) return null;
      const matchNames = [cap, listedUrl, parseUrl(listedUrl)?.host ?? ""];
      const methodsAndTools = [
        [method, tool ?? ""],
        ["", tool ?? ""],
        [method, ""],
        ["", ""],
      ];
      for (const name of matchNames)
        for (const [methodName, toolName] of methodsAndTools) {
          const mapping = mappingsByKey.get(JSON.stringify([name, methodName, toolName]));
          if (mapping) return mapping;
        }
      return null;
    },
  };
}
