import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type CardProof, type Outcome, proveCard } from "../../../serving/prove/steps.ts";
import {
  capOf,
  cardOf,
  type EndpointSpec,
  listingDraft,
  NOW,
  PublicRecord,
  rowOf,
} from "../../helpers/public-record.ts";
import { servingOver, type TestServing } from "../../helpers/serving.ts";

/** What the step `page` says of pages that the service really serves, as the module in the page reads them. */
const [MISSING, FREE, WITHDRAWN, GOOD, AGAIN] = ["missing", "free", "withdrawn", "good", "again"].map(
  (name): EndpointSpec => ({ url: `https://${name}.example/x` }),
) as [EndpointSpec, EndpointSpec, EndpointSpec, EndpointSpec, EndpointSpec];
const ALL = [MISSING, FREE, WITHDRAWN, GOOD, AGAIN];
const UNKNOWN = "UNRATED: 0 of 30 paid calls so far; unknown, not bad.";
const NEVER = { asked_for_payment: 0, paid_calls: 0, price: null, networks: [] };

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    ...ALL.map((spec) => [listingDraft(spec)]),
    ...[MISSING, FREE, WITHDRAWN].map((spec) => record.grades([cardOf(spec, { band: "UNRATED" })], UNKNOWN)),
    ...[GOOD, AGAIN].map((spec) => record.grades([cardOf(spec)], "B: it delivers.")),
  );
  await record.live([
    rowOf(MISSING, { ...NEVER, last_state: "status", last_status: 404 }),
    rowOf(FREE, { ...NEVER, last_state: "free", last_status: 200 }),
    rowOf(WITHDRAWN, { withdrawn_since: 60 }),
    ...[GOOD, AGAIN].map((spec) => rowOf(spec)),
  ]);
  const file = { text: "", sha256: "0", integrity: "sha256-0" };
  serving = await servingOver(record, { proveFile: file } as never);
});
afterAll(() => record.close());

interface Shown {
  letter: string;
  sentence: string;
  computedAt: string | null;
}
/** Letter, sentence and time of the card in an endpoint's page, taken from where the module takes them. */
async function shownOn(spec: EndpointSpec): Promise<Shown> {
  const html = await (await serving.get(`/endpoint/${capOf(spec)}`)).text();
  const first = (pattern: RegExp) => pattern.exec(html)?.[1];
  return {
    letter: first(/<span class="grade \w+ big">([^<]+)/)!,
    sentence: first(/whole sentence<\/summary><p>([^<]*)/)!,
    computedAt: first(/data-prove[^>]* data-computed-at="([^"]+)"/) ?? null,
  };
}

async function pageStep(spec: EndpointSpec, shown: Shown): Promise<[Outcome, string]> {
  const proof = (await (await serving.get(`/v1/trust/${capOf(spec)}/proof`)).json()) as CardProof;
  let said: [Outcome, string] | null = null;
  const proven = await proveCard(proof, {
    ...{ cap: capOf(spec), policy: null, maxAge_s: 86_400, now_ms: Date.parse(NOW), shown },
    ...{ get: async () => null, seenOf: () => null },
    tell: (step, outcome, says) => {
      if (step === "page") said = [outcome, says];
    },
  });
  expect(proven?.card.capability_id).toBe(capOf(spec));
  return said!;
}

describe("the step that compares the page", () => {
  test("shows a page with the letter and the sentence of its card", async () => {
    const shown = await shownOn(GOOD);
    expect(shown).toEqual({ letter: "B", sentence: "B: it delivers.", computedAt: "2026-11-21T06:00:00.000Z" });
    expect((await pageStep(GOOD, shown))[0]).toBe("shown");
  });

  test.each([
    ["answers 404", MISSING, "UNRATED: it answers 404 and asks for no payment, so nobody has paid it."],
    ["is free", FREE, "UNRATED: it answers 200 and asks for no payment, so nobody has paid it."],
    [
      "had its records withdrawn",
      WITHDRAWN,
      "UNRATED: 60 of the 120 records it stood on were withdrawn; a new card follows.",
    ],
  ])("calls no page a lie whose endpoint without a letter %s", async (_, spec, sentence) => {
    const shown = await shownOn(spec);
    expect([shown.letter.toUpperCase(), shown.sentence]).toEqual(["UNRATED", sentence]);
    expect(await pageStep(spec, shown)).toEqual(["open", expect.stringContaining(UNKNOWN)]);
  });

  test("calls no page a lie that was loaded before the endpoint was graded again", async () => {
    const shown = await shownOn(AGAIN);
    const card = cardOf(AGAIN, { band: "C", computed_at: "2026-11-21T07:00:00.000Z" });
    await record.publish(record.grades([card], "C: its price moves."));
    await serving.follower.refresh();
    expect(await pageStep(AGAIN, shown)).toEqual(["open", expect.stringContaining("load the page again")]);
    expect((await pageStep(AGAIN, await shownOn(AGAIN)))[0]).toBe("shown");
  });

  test.each<[string, Partial<Shown>, RegExp]>([
    ["another letter", { letter: "A" }, /the page shows A, and the proven card has B/],
    ["another sentence", { sentence: "B: it is the best there is." }, /another sentence/],
    ["another letter of a card that is newer than the proven one", { letter: "A", computedAt: NOW }, /shows A/],
    ["no time of its card", { sentence: "B: it is the best.", computedAt: null }, /another sentence/],
  ])("fails a page with %s", async (_, lie, says) => {
    expect(await pageStep(GOOD, { ...(await shownOn(GOOD)), ...lie })).toEqual(["failed", expect.stringMatching(says)]);
  });
});
