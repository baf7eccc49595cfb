import { expect, test } from "vitest";
import { checkSignedOffers, checkSignedReceipt } from "../../../../pipelines/1-observe/terms/signed.ts";
import type { BodyOf } from "../../../../pipelines/record/bodies.ts";
import { payOnce } from "../day.ts";
import { readTerms } from "../readings.ts";
import { ASSET, answer, entry, FakeRail, fakeWorld, NETWORK, paying, sumOf, terms402 } from "../world.ts";

/** Signed once by `@x402/extensions` 2.27.0 with the key 0x11..11, whose address is the payee. */
const PAYEE = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A";
const URL_ = "https://seller.example/sum";
const OFFER = {
  format: "eip712",
  acceptIndex: 0,
  payload: {
    ...{ version: 1, resourceUrl: URL_, scheme: "exact", network: NETWORK, asset: ASSET },
    ...{ payTo: PAYEE, amount: "10000", validUntil: 2_095_437_429 },
  },
  signature:
    "0xe1ea5069d016c6bb0b0ace394f170a1ddba46b0f8c38f3fff9041bb41de33eb50c6cdd6c57d31076334039cea3c8d3d6474290158b1c003fcb59bc80b3480d8a1c",
};
const WALLET = "0x1111111111111111111111111111111111111111";
const RECEIPT = {
  format: "eip712",
  payload: {
    ...{ version: 1, network: NETWORK, resourceUrl: URL_, payer: WALLET },
    ...{ issuedAt: 1_795_437_429, transaction: "" },
  },
  signature:
    "0x7e6010747adc9186db78494c25bdd6ea7b37c98a98a5d5892b71a300829eabb0445b8d5e5d9a25a68c705442b0c9c81f907ef1de4e31f22416c9b2848706b7be1b",
};
const NOW = 1_795_437_500;

const extension = (info: unknown) => ({ "offer-receipt": { info } });

/** What is recorded of a 402 with these signed offers, whose own offer is this. */
function offersOf(offers: unknown, change: Record<string, unknown> = {}, url = URL_, now = NOW) {
  const said = terms402([entry({ payTo: PAYEE, ...change })], { extensions: extension({ offers }) });
  if (said.outcome !== "answered") throw new Error("a 402 is an answer");
  const { terms, context } = readTerms({ headers: said.headers, body: Buffer.from(said.body) }, new FakeRail(), url);
  return checkSignedOffers({ terms, extensions: context.extensions }, url, now);
}

const FORGED = { ...OFFER, payload: { ...OFFER.payload, amount: "9000" } };

test.each<[string, ReturnType<typeof offersOf>, unknown]>([
  ["none", offersOf([]), null],
  ["no list", offersOf("many"), null],
  ["one by the payee", offersOf([OFFER]), { present: 1, unread: 0, valid: 1, authorised: 1 }],
  ["at another url", offersOf([OFFER], {}, "https://other.example/sum"), { present: 1, valid: 0, authorised: 0 }],
  ["of another amount than is asked", offersOf([OFFER], { amount: "20000" }), { present: 1, valid: 0, authorised: 0 }],
  ["another amount put under the signature", offersOf([FORGED], { amount: "9000" }), { valid: 1, authorised: 0 }],
  ["run out", offersOf([OFFER], {}, URL_, 2_095_437_430), { present: 1, valid: 0, authorised: 0 }],
  ["a JWS", offersOf([{ format: "jws", signature: "a.b.c" }]), { present: 1, unread: 1, valid: 0, authorised: 0 }],
  ["nonsense", offersOf([7, null, { format: "eip712", payload: {} }]), { present: 3, unread: 2, valid: 0 }],
  ["more than are looked at", offersOf(Array(9).fill(OFFER)), { present: 9, unread: 5, valid: 4, authorised: 4 }],
])("signed offers: %s", async (_name, came, wanted) => {
  const seen = await came;
  if (!wanted) expect(seen).toBeNull();
  else expect(seen).toMatchObject(wanted as object);
});

const INTENT = {
  url: `${URL_}?a=1`,
  wallet: WALLET,
  quote: { pay_to: PAYEE, network: NETWORK } as BodyOf<"paid.intent">["quote"],
};
const headersOf = (receipt: unknown) => ({
  "payment-response": Buffer.from(JSON.stringify({ success: true, extensions: extension({ receipt }) })).toString(
    "base64",
  ),
});

test("signed receipts: over this call, and by the payee", async () => {
  expect(await checkSignedReceipt(headersOf(RECEIPT), INTENT)).toEqual({ read: true, valid: true, authorised: true });
  const others = { ...INTENT, quote: { ...INTENT.quote, pay_to: WALLET } };
  expect(await checkSignedReceipt(headersOf(RECEIPT), others)).toEqual({ read: true, valid: true, authorised: false });
  const stolen = { ...INTENT, wallet: PAYEE };
  expect(await checkSignedReceipt(headersOf(RECEIPT), stolen)).toEqual({ read: true, valid: false, authorised: false });
  expect(await checkSignedReceipt(headersOf({ format: "jws", signature: "a.b.c" }), INTENT)).toMatchObject({
    read: false,
  });
  for (const headers of [undefined, {}, { "payment-response": "e30=" }, { "payment-response": "{" }, headersOf(7)]) {
    expect(await checkSignedReceipt(headers, INTENT)).toBeNull();
  }
});

test("they stand beside a call in the record, and change nothing of it", async () => {
  const plain = fakeWorld();
  const signed = fakeWorld();
  const answered = (world: typeof plain, headers: Record<string, string>) =>
    paying(world.rail, (asked) => {
      world.rail.settle(asked.payment!);
      return answer(200, { sum: sumOf(asked.url) }, headers);
    });
  await payOnce(plain, answered(plain, {}));
  await payOnce(signed, answered(signed, headersOf(RECEIPT)));
  const [without] = plain.log.bodies("paid.result");
  const [beside] = signed.log.bodies("paid.result");
  expect(without).not.toHaveProperty("signed_receipt");
  expect(beside?.signed_receipt).toMatchObject({ read: true });
  const { signed_receipt: _, receipt, ...rest } = beside!;
  // Real time goes on between the two.
  const { intent, answered_time, ...same } = without!;
  expect(rest).toMatchObject({ ...same, response_sha256: expect.any(String) });
  expect(receipt).toBeDefined();
});
