import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { encodePaymentRequiredHeader } from "@x402/core/http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { loadConfig } from "../../../infra/config.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { ownLoop } from "../../../infra/loop-watch.ts";
import { configuredNetworks, railOn } from "../../../infra/rails/networks.ts";
import { ControlCalls } from "../../../pipelines/1-observe/probe/exchange.ts";
import { egressLimits, VIA_AT_ONCE } from "../../../pipelines/1-observe/queue.ts";
import { processReader } from "../../../pipelines/1-observe/reading/reader.ts";
import { askForQuote, sendLeg } from "../../../pipelines/orders/seller.ts";

/** A seller that names its price at once, and keeps whoever pays waiting. */
let seller: Server;
let egress: Egress;
const held: ServerResponse[] = [];

beforeAll(async () => {
  const accepts = [
    {
      ...{ scheme: "exact", network: "eip155:84532" as const, asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e" },
      ...{ amount: "10000", payTo: "0x00000000000000000000000000000000000000b2", maxTimeoutSeconds: 60 },
      extra: { name: "USDC", version: "2" },
    },
  ];
  const terms = encodePaymentRequiredHeader({ x402Version: 2, error: "pay", resource: { url: "/" }, accepts } as never);
  seller = createServer((request, answer) => {
    if (request.headers["payment-signature"]) held.push(answer);
    else answer.writeHead(402, { "payment-required": terms }).end("{}");
  });
  await new Promise<void>((done) => seller.listen(0, "127.0.0.1", done));
  egress = createEgress({
    ...{ allowLoopback: true, userAgent: "touchstone (+https://touchstone.test)" },
    ...egressLimits(16, 6),
  });
});
afterAll(async () => {
  seller.closeAllConnections();
  seller.close();
  await egress.close();
});

test("a price is told at once while every place for calls is held by a slow seller", async () => {
  const rail = railOn(configuredNetworks(loadConfig(undefined, {})));
  const tools = { egress, reader: processReader, loop: ownLoop, rail, control: new ControlCalls(egress, []) };
  const url = `http://127.0.0.1:${(seller.address() as AddressInfo).port}/`;
  const request = { url, method: "GET" as const, headers: {}, body: null, sha256: "0".repeat(64) };
  const intent = { header_name: "PAYMENT-SIGNATURE", signed_bytes: "e30=", deadline_ms: 60_000 };
  const calls = Array.from({ length: VIA_AT_ONCE + 1 }, () =>
    sendLeg(tools, intent, { request, want: { class: "any", known: null, schema: undefined, mime: null } }, null),
  );
  await expect.poll(() => held.length).toBe(VIA_AT_ONCE);
  expect(await askForQuote(tools, { cap: "cap_x", lettered: true }, request, systemClock)).toMatchObject({
    priceMicro: 10_000n,
  });
  // All places for calls were taken meanwhile: the one that was too many has not come.
  expect(held).toHaveLength(VIA_AT_ONCE);
  for (const answer of held.splice(0)) answer.end("{}");
  await expect.poll(() => held.length).toBe(1);
  held[0]!.end("{}");
  expect((await Promise.all(calls)).map(({ evaluation }) => evaluation.status)).toEqual(calls.map(() => 200));
});
