import { canonicalText } from "../../infra/canonical-text.ts";
import { gradeLine } from "../../pipelines/3-grade/cards.ts";
import { windowStart } from "../../pipelines/3-grade/params.ts";
import { sumRows } from "../../pipelines/3-grade/pure.ts";
import { compareIds, inputLine } from "../../pipelines/3-grade/sample.ts";
import { whyText } from "../../pipelines/3-grade/why.ts";
import { EndpointEvidence } from "../../pipelines/audit/as-of.ts";
import type { EvidenceLine } from "../../pipelines/record/evidence.ts";
import { FIRST_VERIFIER_VERSION } from "../../pipelines/record/verifier-version.ts";
import type { Band } from "../../pipelines/record/vocabulary.ts";
import { bytesOf, hex, sha256 } from "../client/bytes.ts";
import type { Card } from "./numbers.ts";

/**
 * The members of a proven leaf (log entry) with a card (signed grade) that regrading reads. The leaf as it is published
 * is `GradeLeaf` of pipelines/record/leaf.ts.
 */
export interface GradeLeaf {
  why: string;
  raw_band: string;
  headline: boolean;
  /**
   * Offset of the next record of each topic of the log when the card was computed, and the SHA-256 hash (hex) of the
   * rows that the card was computed from.
   */
  inputs: { positions: Record<string, number>; digest: string };
  card: Card;
}

/** The result of computing a card again from its rows. */
export interface RegradeResult {
  rowCount: number;
  /** The letter (grade) that the rows give, before the hold: a published letter rises only after 14 clean days. */
  rawLetter: string;
  /** Number of compared members that are equal in the published card and the one computed from the rows. */
  equalMemberCount: number;
  /** Differences between the published card and the one computed from the rows, in words. */
  differences: string[];
  /** What cannot be computed from these rows alone, in words. */
  undecided: string[];
}

/** Members that are added to a card when it is signed. */
const SIGNING_MEMBERS: readonly string[] = ["signature", "signing_key_id", "canonicalization"];
/**
 * Flags that do not follow from the card's rows, but from other endpoints, disputes or older letters, with the words
 * for {@link RegradeResult.undecided}.
 */
const UNDECIDED_FLAGS: Readonly<Record<string, string>> = {
  payee_took_the_money: "the flags of related parties",
  domain_took_the_money: "the flags of related parties",
  held_14d: "the hold of 14 days",
  disputed: "the flag of an open dispute",
};

const shortJson = (value: unknown): string => (value === undefined ? "nothing" : canonicalText(value).slice(0, 160));

/**
 * Computes a card again from the rows of its endpoint, with the code with which the service grades. The card's leaf has
 * the hash of the rows that the card was computed from. Rows with this hash are authentic, from any source.
 * @param lines lines of the evidence files that name the endpoint
 * @returns a text with the reason, if the rows have another hash, or give no card of this tier
 * @throws Error for lines of another form
 */
export async function regrade(leaf: GradeLeaf, lines: readonly EvidenceLine[]): Promise<RegradeResult | string> {
  const { card, inputs } = leaf;
  const evidence = new EndpointEvidence();
  for (const line of lines) if (line.capability_id === card.capability_id) evidence.add(line);
  const endpoint = evidence.endpointAsOf(card.capability_id, inputs.positions, null);
  const now = new Date(String(card.computed_at));
  const since = windowStart(now);
  const rows = endpoint.rows.filter(({ t, obs_id }) => t >= since && t < now && !endpoint.withdrawn.has(obs_id));
  const digest = hex(await sha256(bytesOf([...rows].sort(compareIds).map(inputLine).join(""))));
  if (digest !== inputs.digest) {
    return `the ${rows.length} rows that came have the hash ${digest}, and the leaf names ${inputs.digest}: they are not the rows that this card was made from`;
  }
  const version = typeof card.verifier_version === "string" ? card.verifier_version : FIRST_VERIFIER_VERSION;
  const gradedLine = gradeLine(sumRows(endpoint, now, version), { payee: false, domain: false }, now, version);
  const regraded = gradedLine.cards.find((graded) => graded.card.tier === card.tier);
  if (!regraded) return `the rows make no card of the tier ${card.tier}`;
  const differences: string[] = [];
  let equalMemberCount = 0;
  const compare = (what: string, published: unknown, computed: unknown): void => {
    if (canonicalText(published) === canonicalText(computed)) equalMemberCount++;
    else differences.push(`${what}: published ${shortJson(published)}, and the rows make ${shortJson(computed)}`);
  };
  compare("raw letter", leaf.raw_band, regraded.raw_band);
  compare("headline", leaf.headline, regraded.headline);
  const { band, flags = [], ...members } = card;
  const { band: _, flags: computedFlags, ...computedMembers } = regraded.card;
  for (const name of new Set([...Object.keys(members), ...Object.keys(computedMembers)])) {
    if (SIGNING_MEMBERS.includes(name)) continue;
    compare(name, members[name] ?? null, (computedMembers as Record<string, unknown>)[name] ?? null);
  }
  const decidedFlags = (all: readonly string[]): string[] => all.filter((flag) => UNDECIDED_FLAGS[flag] === undefined);
  compare("flags", decidedFlags(flags), decidedFlags(computedFlags));
  const undecided = new Set(flags.flatMap((flag) => UNDECIDED_FLAGS[flag] ?? []));
  if (band === regraded.raw_band) {
    compare("sentence", leaf.why, whyText({ band: band as Band, parts: regraded.why, heldUntil: null }));
  } else {
    undecided.add("the hold of 14 days");
    const isWorse = band !== "UNRATED" && (regraded.raw_band === "UNRATED" || band > regraded.raw_band);
    if (!isWorse)
      differences.push(`letter: published ${band}, and the rows make ${regraded.raw_band}; a hold never raises`);
  }
  return {
    rowCount: rows.length,
    rawLetter: regraded.raw_band,
    equalMemberCount,
    differences,
    undecided: [...undecided],
  };
}
