import { deffOf } from "./bounds.ts";
import { BAD_BELOW } from "./params.ts";

/** Bad blocks of a part, and how many runs they make. @param xs block means in time order */
export function badRuns(xs: readonly number[]): { bad: number; starts: number } {
  let bad = 0;
  let starts = 0;
  let before = false;
  for (const x of xs) {
    const now = x < BAD_BELOW;
    if (now) bad++;
    if (now && !before) starts++;
    before = now;
  }
  return { bad, starts };
}

/** Design effect of streaks. @param xs block means in time order */
export function streakDeff(xs: readonly number[]): number {
  const { bad, starts } = badRuns(xs);
  return deffOf(bad, starts, xs.length);
}
