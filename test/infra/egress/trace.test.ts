import { X509Certificate } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { createEgress } from "../../../infra/egress/create.ts";
import { certificate, type Stranger, say, stranger } from "./stranger.ts";

const shop = certificate("DNS:shop.test");
const closing: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  for (const close of closing) await close();
});
const serve = async (...of: Parameters<typeof stranger>): Promise<Stranger> => {
  const server = await stranger(...of);
  closing.push(() => server.close());
  return server;
};

test("a trace names every hop, and the certificates of those that are secured; without being asked there is none", async () => {
  const end = await serve(say("200 OK", "there"), { tls: shop });
  const target = `https://shop.test:${end.port}/end`;
  const start = await serve((socket, request) => say(`302 Found\r\nlocation: ${target}`, "on")(socket, request));
  const egress = createEgress({
    ...{ allowLoopback: true, userAgent: "touchstone-test", ca: shop.cert, resolve: async () => ["127.0.0.1"] },
  });
  closing.push(() => egress.close());
  const ask = { url: `${start.origin}/`, method: "GET", profile: "evidence" } as const;
  const of = new X509Certificate(shop.cert);
  const result = await egress.fetch({ ...ask, trace: true });
  expect(result).toMatchObject({
    outcome: "answered",
    trace: [
      { url: `${start.origin}/`, status: 302, location: target, address: "127.0.0.1", tls: null },
      {
        ...{ url: target, status: 200, location: null, address: "127.0.0.1" },
        tls: {
          protocol: "TLSv1.3",
          chain: [
            {
              sha256: of.fingerprint256.replaceAll(":", "").toLowerCase(),
              valid_from: new Date(of.validFrom).toISOString(),
              valid_to: new Date(of.validTo).toISOString(),
            },
          ],
        },
      },
    ],
  });
  expect(result).toHaveProperty("trace.1.tls.chain.length", 1);
  expect(await egress.fetch(ask)).not.toHaveProperty("trace");
});
