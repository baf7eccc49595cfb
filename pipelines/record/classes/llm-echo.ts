import { type Checker, RandomDraws, short, yes } from "./checker.ts";

const ONES = (
  "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " +
  "seventeen eighteen nineteen"
).split(" ");
const TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split(" ");

/** A number from 0 to 99 in English words. */
export function inWords(number: number): string {
  if (number < 20) return ONES[number]!;
  const rest = number % 10;
  return TENS[Math.floor(number / 10)]! + (rest === 0 ? "" : `-${ONES[rest]}`);
}

const isTruth = (truth: unknown): truth is { code: string; sum: number } =>
  typeof truth === "object" && truth !== null && "code" in truth && "sum" in truth;

/**
 * The JSON object that was asked for, or null for any other text, also for an object in a code fence or in a sentence.
 */
function obedient(said: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(said);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : null;
  } catch {
    return null;
  }
}

/**
 * The object between the first and the last brace of an answer that has other text around it; null where there is none.
 */
function inside(said: string): Record<string, unknown> | null {
  const from = said.indexOf("{");
  const to = said.lastIndexOf("}");
  return from < 0 || to < from ? null : obedient(said.slice(from, to + 1));
}

/** The instruction of this class. @param first,second in words */
const promptOf = (code: string, first: string, second: string): string =>
  'Answer with one JSON object of two members and nothing else, no code fence: "code" is the text ' +
  `"${code}", and "sum" is the number that ${first} and ${second} make when added.`;

const WORDS = new Map(Array.from({ length: 100 }, (_, number) => [inWords(number), number]));
const PROMPT = new RegExp(`^${promptOf("([a-z0-9]{1,20})", "([a-z-]{3,20})", "([a-z-]{3,20})")}$`);

/** Longest answer that is read, characters: the right one has some forty. */
const MOST = 4_000;

/**
 * A language model that follows an instruction: it returns a word that it cannot know, adds two numbers that are
 * written in words, and answers in the requested form and with nothing else. Each is a third of the score. It measures
 * neither how clever the model is nor which one it is.
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
        return { fields: { prompt: promptOf(code, inWords(a), inWords(b)) }, truth: { code, sum: a + b } };
      },
      solve({ prompt }) {
        const [, code, first = "", second = ""] = PROMPT.exec(String(prompt).slice(0, 1_000)) ?? [];
        const [a, b] = [WORDS.get(first), WORDS.get(second)];
        return code === undefined || a === undefined || b === undefined ? null : { code, sum: a + b };
      },
      delivery: (value) => yes(Boolean(short(value, 100_000))),
      score(value, truth) {
        const said = short(value, MOST);
        if (said === undefined || !isTruth(truth)) return 0;
        const bare = obedient(said);
        const read = bare ?? inside(said);
        const right = yes(read?.code === truth.code) + yes(read?.sum === truth.sum);
        const form = bare !== null && Object.keys(bare).length === 2 ? right / 2 : 0;
        return (right + form) / 3;
      },
    },
  },
};
