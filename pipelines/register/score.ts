/** Words with a lower similarity count as different. */
export const MIN_SIMILARITY = 0.7;

/**
 * Number of edits between two words (optimal string alignment: insert, delete or replace a letter, or swap two
 * neighbours).
 */
export function countEdits(a: string, b: string): number {
  const [lettersOfA, lettersOfB] = [[...a], [...b]];
  let rowBeforeLast: number[] = [];
  let lastRow = Array.from({ length: lettersOfB.length + 1 }, (_, i) => i);
  for (let i = 1; i <= lettersOfA.length; i++) {
    const row = [i];
    for (let j = 1; j <= lettersOfB.length; j++) {
      const cost = lettersOfA[i - 1] === lettersOfB[j - 1] ? 0 : 1;
      row[j] = Math.min(lastRow[j]! + 1, row[j - 1]! + 1, lastRow[j - 1]! + cost);
      const isSwapped =
        i > 1 && j > 1 && lettersOfA[i - 1] === lettersOfB[j - 2] && lettersOfA[i - 2] === lettersOfB[j - 1];
      if (isSwapped) row[j] = Math.min(row[j]!, rowBeforeLast[j - 2]! + 1);
    }
    rowBeforeLast = lastRow;
    lastRow = row;
  }
  return lastRow[lettersOfB.length]!;
}

const countLetters = (words: readonly string[]): number => words.reduce((sum, word) => sum + [...word].length, 0);

/**
 * Returns the similarity of two words: 1 minus the number of edits divided by the longer length; 0 if that is below
 * {@link MIN_SIMILARITY}.
 */
export function similarityOf(a: string, b: string): number {
  if (a === b) return 1;
  const [shorter, longer] = [[...a].length, [...b].length].sort((x, y) => x - y) as [number, number];
  // The difference in length is the least number of edits.
  if (shorter / longer < MIN_SIMILARITY) return 0;
  const value = 1 - countEdits(a, b) / longer;
  return value < MIN_SIMILARITY ? 0 : value;
}

export interface Score {
  /**
   * 0 to 1: the share of the letters of both names that are in words which are alike, each word weighted by its
   * likeness.
   */
  value: number;
  /** True if the name contains every word of the question exactly. */
  hasAllWords: boolean;
}

/**
 * Largest number of words of each text that are compared: the longest names have some forty. Further words count as not
 * similar.
 */
const MAX_WORDS = 40;

/**
 * Compares a question with a name, both normalised by the register's macro `plain_name`. Words are paired, the most
 * similar first, and each is used once. The score is the sum over the pairs of their similarity times the letters of
 * both words, divided by the letters of both names. So long words count more than short ones, and `of` or `de` hardly
 * matter. Equal words in any order score 1.
 */
export function scoreOf(question: string, name: string): Score {
  const [questionWords, nameWords] = [question.split(" "), name.split(" ")];
  const letters = countLetters(questionWords) + countLetters(nameWords);
  const pairs = questionWords
    .slice(0, MAX_WORDS)
    .flatMap((a, i) => nameWords.slice(0, MAX_WORDS).map((b, j) => ({ i, j, value: similarityOf(a, b) })))
    .filter(({ value }) => value > 0)
    .sort((x, y) => y.value - x.value || x.i - y.i || x.j - y.j);
  const [usedOfQuestion, usedOfName] = [new Set<number>(), new Set<number>()];
  let sum = 0;
  let equalWords = 0;
  for (const { i, j, value } of pairs) {
    if (usedOfQuestion.has(i) || usedOfName.has(j)) continue;
    usedOfQuestion.add(i);
    usedOfName.add(j);
    sum += value * countLetters([questionWords[i]!, nameWords[j]!]);
    if (value === 1) equalWords++;
  }
  return { value: letters === 0 ? 0 : sum / letters, hasAllWords: equalWords === questionWords.length };
}

/** Remainder modulo 97 of a text of 0-9 and A-Z, where letters stand for 10 to 35 (ISO 7064, mod 97-10). */
function remainder97(text: string): number {
  let rest = 0;
  for (const character of text) {
    const value = Number.parseInt(character, 36);
    rest = (rest * (value < 10 ? 10 : 100) + value) % 97;
  }
  return rest;
}

/**
 * Returns what is wrong with a LEI (ISO 17442: 18 characters and two check digits), in words; null when it is valid.
 */
export function faultOfLei(lei: string): string | null {
  if (!/^[0-9A-Z]{18}[0-9]{2}$/.test(lei)) return "must be 18 letters and digits and two check digits (ISO 17442)";
  return remainder97(lei) === 1 ? null : `has wrong check digits (ISO 17442): ${lei.slice(18)}`;
}
