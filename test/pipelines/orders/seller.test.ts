import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { privateKeyToAccount } from "viem/accounts";
import { describe, expect, test } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress, EgressResult } from "../../../infra/egress/egress.ts";
import { ownLoop } from "../../../infra/loop-watch.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import { NoWallet } from "../../../infra/rails/rails.ts";
import { ControlCalls } from "../../../pipelines/1-observe/probe/exchange.ts";
import { processReader } from "../../../pipelines/1-observe/reading/reader.ts";
import { type SellerQuote, type SellerTools, sendLeg, signIntent } from "../../../pipelines/orders/seller.ts";
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

describe("whose fault it is that no answer came", () => {
  const listening = async (server: Server): Promise<string> => {
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  };
  const paid = (egress: Egress, url: string, controlUrls: string[]) => {
    const tools = { egress, reader: processReader, loop: ownLoop, control: new ControlCalls(egress, controlUrls) };
    const request = { url, method: "GET" as const, headers: {}, body: null, sha256: "0".repeat(64) };
    const want = { class: "any", known: null, schema: undefined, mime: null };
    const intent = { header_name: "PAYMENT-SIGNATURE", signed_bytes: "e30=", deadline_ms: 30_000 };
    return sendLeg(tools as unknown as SellerTools, intent, { request, want }, null);
  };

  /** What the seller does with a paid request, over a real connection. */
  const SELLERS = {
    breaks: createServer((request) => void request.socket.destroy()),
    cuts: createServer((_, answer) =>
      answer.writeHead(200, { "content-length": "9" }).write("{", () => answer.destroy()),
    ),
    fails: createServer((_, answer) => answer.writeHead(500).end()),
    pours: createServer((_, answer) => answer.end(Buffer.alloc(2 ** 21))),
  };
  test.each<[keyof typeof SELLERS, ("up" | "down")[], boolean, number]>([
    ["breaks", ["up"], false, 1],
    ["breaks", ["down"], true, 0],
    ["breaks", ["up", "down", "down"], true, 1],
    ["breaks", [], false, 0],
    ["cuts", ["down"], true, 0],
    // An answer came, so nothing is asked.
    ["fails", ["up"], false, 0],
    ["fails", ["down"], false, 0],
    ["pours", ["up"], false, 0],
  ])("the seller %s, and the control addresses are %j: ours is %s", async (kind, addresses, isOurs, asked) => {
    const server = SELLERS[kind];
    let calls = 0;
    const controlServer = createServer((_, answer) => {
      calls += 1;
      answer.end();
    });
    const egress = createEgress({ allowLoopback: true, userAgent: "touchstone (+https://touchstone.test)" });
    const up = await listening(controlServer);
    try {
      const urls = addresses.map((one) => (one === "up" ? up : NOWHERE));
      expect(await paid(egress, await listening(server), urls)).toMatchObject({ pass: false, ours: isOurs });
      expect(calls).toBe(asked);
    } finally {
      for (const one of [server, controlServer]) {
        one.closeAllConnections();
        one.close();
      }
      await egress.close();
    }
  });

  const lost = { says: "no", totalMs: 0, sent: true };
  const stalled = { stoodStill: true, atEnd: true };
  test.each<[string, EgressResult, boolean]>([
    ["our egress sent nothing", { ...lost, outcome: "refused", sent: false }, true],
    ["the seller's address is not permitted", { ...lost, outcome: "refused", sent: false, reason: "address" }, false],
    ["our event loop stalled at the deadline", { ...lost, outcome: "timeout", loop: stalled }, true],
    ["it stalled long before", { ...lost, outcome: "timeout", loop: { ...stalled, atEnd: false } }, false],
    ["more came than is taken, during a stall", { ...lost, outcome: "too_large", loop: stalled }, false],
  ])("%s", async (_, result, isOurs) => {
    const egress = { fetch: async () => result } as unknown as Egress;
    expect(await paid(egress, "https://seller.example/", [])).toMatchObject({ pass: false, ours: isOurs });
  });
});
