import { booleanScore, boundedText, type Checker, RandomDraws } from "./checker.ts";

const ONES = (
  "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " +
  "seventeen eighteen nineteen"
).split(" ");
const TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split(" ");

/** Writes a number from 0 to 99 in English words. */
export function numberInWords(number: number): string {
  if (number < 20) return ONES[number]!;
  const rest = number % 10;
  return TENS[Math.floor(number / 10)]! + (rest === 0 ? "" : `-${ONES[rest]}`);
}

const isTruth = (truth: unknown): truth is { code: string; sum: number } =>
  typeof truth === "object" && truth !== null && "code" in truth && "sum" in truth;

/**
 * Parses an answer that is exactly one JSON object; null for any other text, also for an object in a code fence or in a
 * sentence.
 */
function parseBareObject(answer: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(answer);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : null;
  } catch {
    return null;
  }
}

/**
 * Parses the JSON object between the first and the last brace of an answer with other text around it; null if there is
 * none.
 */
function parseEnclosedObject(answer: string): Record<string, unknown> | null {
  const start = answer.indexOf("{");
  const end = answer.lastIndexOf("}");
  return start < 0 || end < start ? null : parseBareObject(answer.slice(start, end + 1));
}

/**
 * Makes the instruction for the model.
 * @param first,second numbers in words
 */
const createPrompt = (code: string, first: string, second: string): string =>
  'Answer with one JSON object of two members and nothing else, no code fence: "code" is the text ' +
  `"${code}", and "sum" is the number that ${first} and ${second} make when added.`;

const NUMBERS_BY_WORDS = new Map(Array.from({ length: 100 }, (_, number) => [numberInWords(number), number]));
const PROMPT_FORM = new RegExp(`^${createPrompt("([a-z0-9]{1,20})", "([a-z-]{3,20})", "([a-z-]{3,20})")}$`);

/** Longest answer that is scored, characters. The right answer has about forty. */
const MAX_ANSWER_CHARS = 4_000;

/**
 * The class of language models. The question instructs the model to repeat a random word, to add two numbers that are
 * written in words, and to answer in a given form without other text. Each of the three is worth a third of the
 * score; the form counts only as far as the word and the sum are right. The score measures neither how capable the
 * model is nor which model answers.
 */
export const llmEcho: Checker = {
  name: "llm-echo",
  variants: {
    chat: {
      asks: ["prompt"],
      answer: "/text",
      draw(seed) {
        const draws = new RandomDraws(seed);
        const code = draws.word(8);
        const [a, b] = [11 + draws.below(80), 11 + draws.below(80)];
        return {
          fields: { prompt: createPrompt(code, numberInWords(a), numberInWords(b)) },
          truth: { code, sum: a + b },
        };
      },
      solve({ prompt }) {
        const [, code, first = "", second = ""] = PROMPT_FORM.exec(String(prompt).slice(0, 1_000)) ?? [];
        const [a, b] = [NUMBERS_BY_WORDS.get(first), NUMBERS_BY_WORDS.get(second)];
        return code === undefined || a === undefined || b === undefined ? null : { code, sum: a + b };
      },
      delivery: (value) => booleanScore(Boolean(boundedText(value, 100_000))),
      score(value, truth) {
        const answer = boundedText(value, MAX_ANSWER_CHARS);
        if (answer === undefined || !isTruth(truth)) return 0;
        const bareObject = parseBareObject(answer);
        const parsedObject = bareObject ?? parseEnclosedObject(answer);
        const contentPoints =
          booleanScore(parsedObject?.code === truth.code) + booleanScore(parsedObject?.sum === truth.sum);
        const formPoints = bareObject !== null && Object.keys(bareObject).length === 2 ? contentPoints / 2 : 0;
        return (contentPoints + formPoints) / 3;
      },
    },
  },
};
