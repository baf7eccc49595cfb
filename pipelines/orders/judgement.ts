import type { Evaluation, Expectation } from "../1-observe/reading/checks.ts";
import { checkerOf } from "../record/classes.ts";
import type { BuyersExpectation } from "../record/expectation.ts";
import { JUDGED_BY, type JudgedBy } from "../record/order-step.ts";

/**
 * Classes (kinds of endpoints) whose check scores an answer from 0 to 1. An answer passes from 0.5 on
 * (docs/classes.md).
 */
const CLASSES_SCORED_IN_PARTS = new Set(["llm-echo", "planted-page", "token-price"]);

/** The facts about an answer's endpoint and request that determine which check judges the answer. */
export type CheckInputs = Pick<Expectation, "class" | "known" | "schema" | "mime">;

/**
 * Returns the strongest check that can judge an answer: the known right answer, if the buyer's input determines it;
 * else the seller's own JSON Schema; else the form of answers of the endpoint's class; else that the answer parses;
 * else its status alone. `schema` must be undefined if it cannot be used for validation.
 */
export function strongestCheckOf({ class: name, known, schema, mime }: CheckInputs): JudgedBy {
  if (known) return "truth";
  if (schema !== undefined) return "schema";
  if (checkerOf(name).scoreOther) return "class";
  return mime !== null && /json/i.test(mime) ? "parses" : "status";
}

/** Is the first check as strong as the second, or stronger? */
export const isAtLeastAsStrong = (one: JudgedBy, other: JudgedBy): boolean =>
  JUDGED_BY.indexOf(one) <= JUDGED_BY.indexOf(other);

/** A check as an order lists it. */
type Check = Evaluation["checks"][number];

/**
 * Returns the checks of an answer with their final results. Checks `truth` and `class_..` are recorded as failed if
 * their score is below 1. If the answer passed our checks as a whole, the score was high enough, so they are returned
 * as passed.
 * @param hasPassed true if the answer passed all checks except, perhaps, the buyer's own expectation
 */
export const withFinalResults = <T extends Check>(checks: readonly T[], hasPassed: boolean): T[] =>
  checks.map((one) => (hasPassed && /^(?:truth$|class_)/.test(one.name) ? { ...one, ok: true } : one));

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
  CLASSES_SCORED_IN_PARTS.has(name)
    ? `You are charged only if the answer is at least half right by the check of the class ${name}: your input fixes the right answer, and we know it`
    : `You are charged only if the answer is right: your input fixes the right answer of the class ${name}, and we know it`;

/** For each check, words that appear in its sentence and in no other. */
const SENTENCE_MARKS: Readonly<Record<JudgedBy, string>> = {
  truth: "your input fixes the right answer",
  schema: "fits the JSON Schema that the seller itself advertises",
  class: "has the form of the class",
  parses: "parses as JSON and is no error message",
  status: "is no error page",
};

/**
 * Finds the check that a text promises, by the sentence of {@link guaranteeOf} that it contains; null if it contains
 * none.
 */
export const parsePromisedCheck = (text: string): JudgedBy | null =>
  JUDGED_BY.find((by) => text.includes(SENTENCE_MARKS[by])) ?? null;

const EXPECTATION_WORDS = {
  schema: "fits your schema",
  jsonpath: "has what your JSONPath names",
  regex: "matches your expression",
  min_length: "is as long as you ask",
} as const;

/**
 * Makes the promise that a buyer gets before paying, in one sentence: which check judges the answer, and which
 * expectations of the buyer it has to meet.
 */
export function guaranteeOf(inputs: CheckInputs, expect: BuyersExpectation | null): string {
  const by = strongestCheckOf(inputs);
  const ourSentence = by === "truth" ? truthSentence(inputs.known!.class) : SENTENCES[by](inputs.class);
  const members = (Object.keys(EXPECTATION_WORDS) as (keyof typeof EXPECTATION_WORDS)[]).filter(
    (name) => expect?.[name] !== undefined,
  );
  const buyersWords = members.map((name) => EXPECTATION_WORDS[name]).join(", ");
  return buyersWords === "" ? `${ourSentence}.` : `${ourSentence}; and only if it also ${buyersWords}.`;
}
