import type { GradeLeaf, Leaf } from "../../pipelines/record/leaf.ts";
import { addDays } from "../../pipelines/record/time.ts";
import { type Band, TIERS } from "../../pipelines/record/vocabulary.ts";

/**
 * What is wrong with the cards under these leaves: those of one endpoint and run are neighbours, deepest first, one of
 * them speaks for all and none is better than it, and its letter is held as verification-method.md says.
 */
export function groupProblems(leaves: readonly Leaf[]): string[] {
  const problems: string[] = [];
  const bad = (says: string): void => void problems.push(says);
  const groups: GradeLeaf[][] = [];
  for (const leaf of leaves) {
    if (leaf.kind !== "grade") continue;
    const last = groups.at(-1)?.at(-1);
    const neighbours = last?.index === leaf.index - 1 && last.card.capability_id === leaf.card.capability_id;
    if (neighbours && last.card.computed_at === leaf.card.computed_at) groups.at(-1)!.push(leaf);
    else groups.push([leaf]);
  }
  const letters = new Map<string, { day: string; band: Band }[]>();
  const corrected = new Set<string>();
  for (const leaf of leaves) if (leaf.kind === "correction") corrected.add(leaf.capability_id);
  for (const group of groups) {
    const first = group[0]!;
    const where = `cards of ${first.card.capability_id} at ${first.index}`;
    const tiers = group.map((leaf) => TIERS.indexOf(leaf.card.tier));
    if (tiers.some((tier, i) => i > 0 && tier >= tiers[i - 1]!)) bad(`${where}: not deepest first`);
    const headlines = group.filter((leaf) => leaf.headline);
    if (headlines.length !== 1) bad(`${where}: ${headlines.length} headlines`);
    const headline = headlines[0];
    if (!headline) continue;
    for (const leaf of group) {
      if (isBetter(leaf.card.band, headline.card.band)) bad(`${where}: ${leaf.card.tier} is better than the headline`);
    }
    const cap = headline.card.capability_id;
    const seen = letters.get(cap) ?? [];
    letters.set(cap, seen);
    const want = heldBand(headline.raw_band, headline.day, seen);
    if (!corrected.has(cap) && want !== headline.card.band) {
      bad(`${where}: the letter is ${headline.card.band}, by the raw letters it is ${want}`);
    }
    seen.push({ day: headline.day, band: headline.raw_band });
  }
  return problems;
}

const isBetter = (band: Band, than: Band): boolean => band !== "UNRATED" && than !== "UNRATED" && band < than;

/** The hold of verification-method.md section 4, word for word: worst raw letter of the last 14 days, today included. */
function heldBand(raw: Band, today: string, before: readonly { day: string; band: Band }[]): Band {
  if (raw === "UNRATED") return raw;
  let worst = raw;
  for (let back = 0; back < 14; back++) {
    const day = addDays(today, -back);
    const own = before.filter((letter) => letter.day === day);
    // A day without a leaf had the letter of the leaf before it.
    const last = back > 0 && own.length === 0 ? before.findLast((letter) => letter.day < day) : undefined;
    for (const { band } of last ? [last] : own) if (band !== "UNRATED" && band > worst) worst = band;
  }
  return worst;
}
