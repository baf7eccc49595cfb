/** Words that are less alike than this count as different. */
export const ALIKE = 0.7;

/**
 * Edits between two words (optimal string alignment: a letter put in, left out, exchanged, or two beside each other
 * swapped).
 */
export function edits(a: string, b: string): number {
  const [from, to] = [[...a], [...b]];
  let before: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = 1; j <= to.length; j++) {
      const cost = from[i - 1] === to[j - 1] ? 0 : 1;
      row[j] = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + cost);
      const swapped = i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1];
      if (swapped) row[j] = Math.min(row[j]!, before[j - 2]! + 1);
    }
    before = last;
    last = row;
  }
  return last[to.length]!;
}

const lettersIn = (words: readonly string[]): number => words.reduce((sum, word) => sum + [...word].length, 0);

/** How alike two words are: 1 minus edits by the longer length, and 0 below {@link ALIKE}. */
export function alike(a: string, b: string): number {
  if (a === b) return 1;
  const [shorter, longer] = [[...a].length, [...b].length].sort((x, y) => x - y) as [number, number];
  // Each letter that the longer one has more is an edit.
  if (shorter / longer < ALIKE) return 0;
  const value = 1 - edits(a, b) / longer;
  return value < ALIKE ? 0 : value;
}

export interface Score {
  /** 0 to 1: the share of the letters of both names that stand in words which are alike, each word by how alike it is. */
  value: number;
  /** Every word of the question stands in the name as it was asked. */
  allWords: boolean;
}

/** The longest names have some forty words; what lies beyond counts as not alike. */
const MAX_WORDS = 40;

/**
 * A question against a name, both as they are compared (`plain_name`): pairs of words, the most alike first, no word twice;
 * the score is the sum over pairs of alike times the letters of both, by the letters of both names. Long words count for
 * more than short ones, so that `of` and `de` decide nothing. 1 is the same words in any order.
 */
export function scoreOf(asked: string, name: string): Score {
  const [question, said] = [asked.split(" "), name.split(" ")];
  const letters = lettersIn(question) + lettersIn(said);
  const pairs = question
    .slice(0, MAX_WORDS)
    .flatMap((a, i) => said.slice(0, MAX_WORDS).map((b, j) => ({ i, j, value: alike(a, b) })))
    .filter(({ value }) => value > 0)
    .sort((x, y) => y.value - x.value || x.i - y.i || x.j - y.j);
  const [usedOfQuestion, usedOfName] = [new Set<number>(), new Set<number>()];
  let sum = 0;
  let equal = 0;
  for (const { i, j, value } of pairs) {
    if (usedOfQuestion.has(i) || usedOfName.has(j)) continue;
    usedOfQuestion.add(i);
    usedOfName.add(j);
    sum += value * lettersIn([question[i]!, said[j]!]);
    if (value === 1) equal++;
  }
  return { value: letters === 0 ? 0 : sum / letters, allWords: equal === question.length };
}

/** Remainder by 97 of a text of 0-9 and A-Z, where letters stand for 10 to 35 (ISO 7064, mod 97-10). */
function remainder(text: string): number {
  let rest = 0;
  for (const character of text) {
    const value = Number.parseInt(character, 36);
    rest = (rest * (value < 10 ? 10 : 100) + value) % 97;
  }
  return rest;
}

/** What is wrong with a text as a LEI (ISO 17442: 18 characters, two check digits), in words; null where nothing is. */
export function faultOfLei(lei: string): string | null {
  if (!/^[0-9A-Z]{18}[0-9]{2}$/.test(lei)) return "must be 18 letters and digits and two check digits (ISO 17442)";
  return remainder(lei) === 1 ? null : `has wrong check digits (ISO 17442): ${lei.slice(18)}`;
}
