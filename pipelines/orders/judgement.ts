import type { Evaluation, Expectation } from "../1-observe/reading/checks.ts";
import { checkerOf } from "../record/classes.ts";
import type { BuyersExpectation } from "../record/expectation.ts";
import { JUDGED_BY, type JudgedBy } from "../record/order-step.ts";

/** Classes whose check has more values than right and wrong: an answer passes that is half right (docs/classes.md). */
const BY_PARTS = new Set(["llm-echo", "planted-page", "token-price"]);

/** What an answer is compared with, as far as it decides by which check it is judged. */
export type Judged = Pick<Expectation, "class" | "known" | "schema" | "mime">;

/**
 * The check that says most of an answer, named as in the list of its checks: the truth, where the buyer's input fixes it;
 * else the seller's own schema; else the form of its class; else that it parses; else its status alone.
 * @param want its schema is one that can be used
 */
export function judgedBy({ class: name, known, schema, mime }: Judged): JudgedBy {
  if (known) return "truth";
  if (schema !== undefined) return "schema";
  if (checkerOf(name).unasked) return "class";
  return mime !== null && /json/i.test(mime) ? "parses" : "status";
}

/** Does the first check say as much of an answer as the second, or more? */
export const saysAsMuch = (one: JudgedBy, other: JudgedBy): boolean =>
  JUDGED_BY.indexOf(one) <= JUDGED_BY.indexOf(other);

/** A check as an order lists it. */
type Check = Evaluation["checks"][number];

/**
 * The checks of an answer as they decided. Classes that score in parts call a check failed that is not whole; of an answer
 * that passed our checks, what it scored was enough.
 * @param passed did it pass all checks but those of its buyer's own?
 */
export const decided = <T extends Check>(checks: readonly T[], passed: boolean): T[] =>
  checks.map((one) => (passed && /^(?:truth$|class_)/.test(one.name) ? { ...one, ok: true } : one));

const SENTENCES: Readonly<Record<Exclude<JudgedBy, "truth">, (name: string) => string>> = {
  schema: () =>
    "You are charged only if the answer fits the JSON Schema that the seller itself advertises; whether it is true is not checked",
  class: (name) =>
    `You are charged only if the answer has the form of the class ${name}; whether it is true is not checked`,
  parses: () =>
    "You are charged only if an answer with a 2xx status came that parses as JSON and is no error message; nothing else of it is checked",
  status: () =>
    "You are charged only if an answer with a 2xx status came that is no error page; nothing else of it is checked",
};

const truthSentence = (name: string): string =>
  BY_PARTS.has(name)
    ? `You are charged only if the answer is at least half right by the check of the class ${name}: your input fixes the right answer, and we know it`
    : `You are charged only if the answer is right: your input fixes the right answer of the class ${name}, and we know it`;

/** Words that only the sentence of one check has. */
const MARKS: Readonly<Record<JudgedBy, string>> = {
  truth: "your input fixes the right answer",
  schema: "fits the JSON Schema that the seller itself advertises",
  class: "has the form of the class",
  parses: "parses as JSON and is no error message",
  status: "is no error page",
};

/** The check that a text promises, which holds a sentence of {@link guaranteeOf}; null where it holds none. */
export const promisedIn = (text: string): JudgedBy | null => JUDGED_BY.find((by) => text.includes(MARKS[by])) ?? null;

const EXPECTED = {
  schema: "fits your schema",
  jsonpath: "has what your JSONPath names",
  regex: "matches your expression",
  min_length: "is as long as you ask",
} as const;

/**
 * What is promised before anybody pays, in one sentence: by which check the answer is judged, and what else its buyer expects
 * of it.
 */
export function guaranteeOf(want: Judged, expect: BuyersExpectation | null): string {
  const by = judgedBy(want);
  const ours = by === "truth" ? truthSentence(want.known!.class) : SENTENCES[by](want.class);
  const members = (Object.keys(EXPECTED) as (keyof typeof EXPECTED)[]).filter((name) => expect?.[name] !== undefined);
  const own = members.map((name) => EXPECTED[name]).join(", ");
  return own === "" ? `${ours}.` : `${ours}; and only if it also ${own}.`;
}
