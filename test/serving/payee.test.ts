import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CheckAnswer } from "../../serving/schemas/check.ts";
import { PayeeTable } from "../../serving/tables/payees.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver, type TestServing } from "../helpers/serving.ts";

const OWN = `0x${"Ab".repeat(20)}`;
const POLYGON = `0x${"22".repeat(20)}`;
const EARLIER = `0x${"33".repeat(20)}`;
const LISTED = `0x${"44".repeat(20)}`;
const STRANGE = `0x${"11".repeat(20)}`;
const BASE58 = "DRpbCBMxVnDK7maPM5tGv6MvB3v1sRMC86PZ8okm21hy";
const DEFECT = JSON.stringify([{ defect: "bad_asset", says: "an asset", seenAt: null }]);

const GOOD = { url: "https://good.example/sum" };
const TWIN = { url: "https://twin.example/sum" };
const HIJACKED = { url: "https://hijacked.example/sum" };
const SILENT = { url: "https://silent.example/sum" };
const TEMPLATE = { url: "https://template.example/users/:id" };
const LISTED_ONLY = { url: "https://listed.example/sum" };
const LIST = { url: "https://list.example/sum", defects: [{ defect: "no_402", says: "listed as paid" }] };

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  const all = [GOOD, TWIN, HIJACKED, SILENT, TEMPLATE, LISTED_ONLY, LIST];
  await record.publish(
    ...all.map((spec) => [listingDraft(spec)]),
    record.grades([cardOf(GOOD, { band: "A" })], "A on OUTCOME_VERIFIED, composite 0.95."),
  );
  await record.live([
    rowOf(GOOD, { pay_to: OWN, pay_tos: [OWN, POLYGON, BASE58], pay_tos_before: [EARLIER], pay_tos_listed: [OWN] }),
    rowOf(TWIN, { pay_to: null, pay_tos: [BASE58], defects: DEFECT }),
    rowOf(HIJACKED, { pay_to: STRANGE, pay_tos_listed: [LISTED] }),
    rowOf(SILENT, { pay_to: null }),
    rowOf(TEMPLATE, { pay_to: OWN }),
    rowOf(LISTED_ONLY, { pay_to: null, pay_tos_listed: [LISTED] }),
    rowOf(LIST, { pay_to: EARLIER, defects: "[]" }),
  ]);
  serving = await servingOver(record);
});
afterAll(() => record.close());

const ask = async (url: string, pay_to: string): Promise<CheckAnswer> => {
  const response = await serving.get(checkPath({ url, pay_to }));
  expect(response.status).toBe(200);
  return CheckAnswer.parse(await response.json());
};
const flagsOf = async (url: string, pay_to: string) =>
  (await ask(url, pay_to)).flags?.filter((flag) => flag.startsWith("pay_to_"));

describe("the address in hand against those that the endpoint named", () => {
  test("one that nobody ever named is said first, with those that were seen; the letter stays what it is", async () => {
    const answer = await ask(GOOD.url, STRANGE);
    expect(answer.flags?.slice(0, 2)).toEqual(["pay_to_unknown", "pay_to_differs"]);
    expect(answer.band).toBe("A");
    expect(answer.why).toBe(
      `Do not pay yet: no 402 of this endpoint and no listing of its seller's own ever named ${STRANGE}; its newest 402 ` +
        `names ${OWN}, ${POLYGON}, ${BASE58}; its seller's own listing names ${OWN}; earlier 402s named ${EARLIER}. ` +
        "A on OUTCOME_VERIFIED, composite 0.95.",
    );
  });

  test.each([
    ["as the newest 402 writes it", GOOD.url, OWN, []],
    ["in another case, hex", GOOD.url, OWN.toLowerCase(), []],
    ["of another of its offers, of which the listing says nothing", GOOD.url, POLYGON, []],
    ["base58 of another offer", GOOD.url, BASE58, []],
    ["base58 in another case", GOOD.url, BASE58.replace("DRp", "dRp"), ["pay_to_unknown", "pay_to_differs"]],
    ["one of an earlier 402", GOOD.url, EARLIER, ["pay_to_differs"]],
    ["what the 402 names, against the seller's own listing", HIJACKED.url, STRANGE, ["pay_to_differs"]],
    ["what the listing names, against the newest 402", HIJACKED.url, LISTED, ["pay_to_differs"]],
    ["of an endpoint that never named one", SILENT.url, STRANGE, []],
    ["through a template", "https://template.example/users/7", OWN, []],
    ["another through a template", "https://template.example/users/7", STRANGE, ["pay_to_unknown", "pay_to_differs"]],
    ["listed and never asked", LISTED_ONLY.url, LISTED, []],
    ["another than listed, never asked", LISTED_ONLY.url, STRANGE, ["pay_to_unknown", "pay_to_differs"]],
    ["base58 where only the listing speaks, and of hex alone", LISTED_ONLY.url, BASE58, ["pay_to_unknown"]],
    ["of an endpoint that is not in the record", "https://nobody.example/x", STRANGE, undefined],
  ])("%s", async (_, url, pay_to, flags) => {
    expect(await flagsOf(url, pay_to)).toEqual(flags);
  });

  test("without pay_to nothing is said of it", async () => {
    const answer = CheckAnswer.parse(await (await serving.get(checkPath({ url: GOOD.url }))).json());
    expect(answer.flags).toEqual([]);
    expect(answer.why).toBe("A on OUTCOME_VERIFIED, composite 0.95.");
  });

  test("a seller that named hundreds does not fill the sentence", async () => {
    const many = Array.from({ length: 60 }, (_, n) => `0x${n.toString(16).padStart(40, "f")}`);
    const other = await PublicRecord.open();
    await other.publish([listingDraft(GOOD)]);
    await other.live([rowOf(GOOD, { pay_to: OWN, pay_tos: many, pay_tos_before: [EARLIER] })]);
    const response = await (await servingOver(other)).get(checkPath({ url: GOOD.url, pay_to: STRANGE }));
    const { why } = CheckAnswer.parse(await response.json());
    expect(why).toContain(`${many[3]} and 56 more`);
    expect(why.length).toBeLessThan(700);
    await other.close();
  });
});

describe("payee", () => {
  test("every payTo of every offer, and those of earlier 402s, whatever our rail could pay", async () => {
    expect((await ask(SILENT.url, BASE58)).payee).toEqual({
      ...{
        address: BASE58,
        origins: ["https://good.example", "https://twin.example"],
        listed: 2,
        graded: 1,
        bestBand: "A",
      },
      withDefects: 1,
    });
    expect((await ask(SILENT.url, POLYGON.toUpperCase().replace("0X", "0x"))).payee?.listed).toBe(1);
  });

  test("with defects as a check shows them: what the newest 402 mended counts no more", async () => {
    expect((await ask(LIST.url, EARLIER)).defects).toEqual([]);
    expect((await ask(SILENT.url, EARLIER)).payee).toMatchObject({ listed: 2, withDefects: 0 });
  });
});

test("what was asked is shown whether or not a rail of ours could pay it", async () => {
  const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
  const other = await PublicRecord.open();
  await other.live([
    rowOf(GOOD, { pay_to: null, pay_tos: [BASE58], price: "0.500000", asset: "MINT", networks: [SOLANA] }),
  ]);
  const response = await (await servingOver(other)).get(checkPath({ url: GOOD.url }));
  const { observed } = CheckAnswer.parse(await response.json());
  expect(observed?.advertised).toEqual({ amount: "0.500000", asset: "MINT", networks: [SOLANA] });
  await other.close();
});

test("where origins are cut, the answer says how many there are", async () => {
  const many = await PublicRecord.open();
  try {
    const specs = Array.from({ length: 101 }, (_, i) => ({ url: `https://s${i}.example/x` }));
    await many.publish(...specs.map((spec) => [listingDraft(spec)]));
    await many.live(
      specs.map((spec, i) => rowOf(spec, { pay_to: i === 100 ? STRANGE : OWN, pay_tos_before: [EARLIER] })),
    );
    const over = await servingOver(many);
    const asked = async (url: string, pay_to: string) =>
      CheckAnswer.parse(await (await over.get(checkPath({ url, pay_to }))).json());
    const cut = await asked(specs[0]!.url, EARLIER);
    expect([cut.payee!.origins.length, cut.payee!.listed, cut.next]).toEqual([
      ...[100, 101, `The first 100 of the 101 origins that pay ${EARLIER} are named.`],
    ]);
    const unseen = await asked("https://unseen.example/x", EARLIER);
    expect(unseen.next).toMatch(/^In line for a free handshake.* The first 100 of the 101 origins/);
    // Exactly a hundred are all of them.
    const whole = await asked(specs[0]!.url, OWN);
    expect([whole.payee!.origins.length, whole.next]).toEqual([100, undefined]);
  } finally {
    await many.close();
  }
});

test("who is paid is made ready for the next view once one was asked of it, and says the same as made anew", async () => {
  const on = await servingOver(record);
  const asked = async () => CheckAnswer.parse(await (await on.get(checkPath({ url: GOOD.url, pay_to: OWN }))).json());
  await record.live([rowOf(SILENT, { pay_to: null, pay_tos: [STRANGE] })]);
  await on.follower.refresh();
  expect(on.follower.view.hasPayeeTable, "nobody asked").toBe(false);
  await asked();
  await record.live([rowOf(TWIN, { pay_to: OWN, pay_tos: [OWN] }), rowOf(GOOD, { pay_to: OWN, pay_tos: [OWN] })]);
  expect(await on.follower.refresh()).toBe(true);
  const { view } = on.follower;
  expect(view.hasPayeeTable).toBe(true);
  const anew = PayeeTable.build(view);
  for (const address of [OWN, POLYGON, EARLIER, LISTED, STRANGE, BASE58]) {
    expect(view.payees.get(address)).toEqual(anew.get(address));
  }
  on.clock.pass(60_000);
  expect((await asked()).payee).toMatchObject(anew.get(OWN));
});
