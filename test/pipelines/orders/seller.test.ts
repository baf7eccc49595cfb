import { privateKeyToAccount } from "viem/accounts";
import { expect, test } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import { NoWallet } from "../../../infra/rails/rails.ts";
import { type SellerQuote, type SellerTools, signIntent } from "../../../pipelines/orders/seller.ts";
import type { StepOf } from "../../../pipelines/record/order-step.ts";
import { entryV2 } from "../../infra/rails/harness.ts";

/** Nothing listens there. */
const NOWHERE = "http://127.0.0.1:1";
const KEY = `0x${"07".repeat(32)}` as const;
const entry = entryV2(10_000n);
const { network, asset } = entry;
const quote = { entry, cap: "cap_x", context: {}, priceMicro: 10_000n, want: {} } as unknown as SellerQuote;

/** The intent of a leg that is paid out of this float. */
const intent = (float: SellerTools["float"]) => {
  const rail = createEvmRail({ rpcUrl: NOWHERE, asset, network, confirmations: 1 });
  return signIntent(
    { float, rail: { ...rail, head: async () => ({ number: 1 }) } } as unknown as SellerTools,
    quote,
    0,
  );
};

test.each([
  ["its own offer", { raw: { note: "x".repeat(9_000) } }, {}],
  ["extensions of its answer", {}, { extensions: { note: "x".repeat(9_000) } }],
  ["letters of three bytes", {}, { resource: { note: "€".repeat(3_000) } }],
])("a seller that wants much echoed (%s) is refused before anything is signed", async (_, more, context) => {
  const float = async () => {
    throw new Error("a wallet was asked for");
  };
  const wants = { ...quote, entry: { ...entry, ...more }, context } as unknown as SellerQuote;
  const tools = { float, rail: {} } as unknown as SellerTools;
  expect(await signIntent(tools, wants, 0)).toEqual({
    says: "The seller wants more echoed in the payment than is kept.",
  });
});

test("what is signed for a seller that wants little echoed is kept, with the hashes of body and schema", async () => {
  const rail = createEvmRail({ rpcUrl: NOWHERE, asset, network, confirmations: 1 });
  const body = Buffer.from("{}");
  const request = {
    url: "https://seller.example/",
    method: "POST" as const,
    headers: {},
    sha256: "0".repeat(64),
    body,
  };
  const want = { class: "any", known: null, mime: null, schema: { type: "object" } };
  const priced = { ...quote, request, want, entry: { ...entry, raw: { note: "x".repeat(5_000) } } };
  const tools = {
    float: async () => ({ address: privateKeyToAccount(KEY).address, privateKey: KEY }),
    rail: { ...rail, head: async () => ({ number: 1 }) },
  } as unknown as SellerTools;
  const made = (await signIntent(tools, priced, 0)) as StepOf<"seller_intent">;
  expect(made.signed_bytes.length).toBeLessThan(12_288);
  expect(made.request).toEqual({
    ...{ url: request.url, method: "POST", headers: {}, sha256: request.sha256 },
    ...{ body_sha256: sha256hex(body), body_bytes: 2 },
  });
  const schema_sha256 = sha256hex('{"type":"object"}');
  expect(made.want).toEqual({ class: "any", mime: null, judged_by: "schema", schema_sha256 });
});

test("an outside signer that is down is told apart from a float without money", async () => {
  const outside = { address: `0x${"a1".repeat(20)}`, signer: NOWHERE };
  expect(await intent(async () => outside)).toEqual({
    says: "The signer of our wallet did not sign the payment to this seller.",
  });
  const poor = async () => {
    throw new NoWallet("the known wallet has nothing left");
  };
  expect(await intent(poor)).toEqual({ says: "We have not enough money to pay this seller with now." });
});
