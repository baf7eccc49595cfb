import { expect, test } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import { signObject } from "../../../infra/keys/signer.ts";
import { CardSignatures } from "../../../pipelines/published/keys.ts";
import { cardTextOf } from "../../../pipelines/record/card-cut.ts";
import type { GradeLeaf } from "../../../pipelines/record/leaf.ts";
import { cardOf, NOW } from "../../helpers/public-record.ts";
import { JWKS, SIGNERS } from "../4-publish/world.ts";

/**
 * Leaves that a holder of the log's key could publish without the key of the cards: a card that somebody signed stands
 * where a reader of bytes could take it for the card that a parser finds.
 */
const SIGNED = signObject(SIGNERS.cards, cardOf({ url: "https://seller.example/x" }, { computed_at: NOW, band: "F" }));
const FORGED = { ...SIGNED, band: "A" as const };
const [signed, forged] = [SIGNED, FORGED].map((card) => canonicalText(card)) as [string, string];
const REST = canonicalText({
  ...{ day: "2026-11-21", headline: true, index: 0, kind: "grade", raw_band: "F", seq: 0, why: 'F: it said "paid"\\.' },
  inputs: { digest: "00".repeat(32), kin: "11".repeat(32), positions: {} },
}).slice(1);
const AT = `"at":"${NOW}"`;

async function problemsOf(entry: Buffer): Promise<string[]> {
  const problems: string[] = [];
  const signatures = new CardSignatures((error) => problems.push((error as Error).message));
  await signatures.add(JSON.parse(entry.toString()) as GradeLeaf, entry, JWKS);
  await signatures.drain();
  return problems;
}

test("the card of a leaf in RFC 8785 form is cut out, and its signature holds", async () => {
  const entry = Buffer.from(`{${AT},"card":${signed},${REST}`);
  expect(cardTextOf(entry)).toBe(signed);
  expect(await problemsOf(entry)).toEqual([]);
});

test.each<[string, string]>([
  [
    "a signed card within another member before it",
    `{"a":{"card":${signed},"day":0},${AT},"card":${forged},"cz":0,${REST}`,
  ],
  [
    "a signed card before it, the second name escaped",
    `{${AT},"card":${signed},"day":0,"c\\u0061rd":${forged},"cz":0,${REST}`,
  ],
  ["two members of its name, the signed one first", `{${AT},"card":${signed},"day":0,"card":${forged},"cz":0,${REST}`],
  ["a space after its name", `{${AT},"card":${signed},"day":0,"card" :${forged},"cz":0,${REST}`],
  ["another at before it", `{"at":{"card":${signed},"day":0},"card":${forged},"cz":0,${REST}`],
  [
    "a name in front of it with an escape",
    `{"at":"\\"","b":{"card":${signed},"day":0},"card":${forged},"cz":0,${REST}`,
  ],
])("a forged card with %s is refused", async (_, text) => {
  const entry = Buffer.from(text);
  expect((JSON.parse(text) as GradeLeaf).card.band).toBe("A");
  expect(await problemsOf(entry)).toEqual([expect.stringContaining("bad_signature")]);
});

test.each<[string, string]>([
  ["a member after it ends as a card does", `{${AT},"card":${signed},"cz":{"q":{},"day":0},${REST}`],
  [
    "a member of its own has braces in a string",
    `{${AT},"card":${canonicalText({ ...SIGNED, x: '}\\"},"day":{' })},${REST}`,
  ],
  ["it comes first", `{"card":${signed},${AT},${REST}`],
  ["a member stands before it", `{"a":{"card":${signed},"day":0},${AT},"card":${forged},${REST}`],
])("the text of a card is that of the parsed card, or none: %s", async (_, text) => {
  const cut = cardTextOf(Buffer.from(text));
  const { card } = JSON.parse(text) as GradeLeaf;
  if (cut !== null) expect(cut).toBe(canonicalText(card));
});
