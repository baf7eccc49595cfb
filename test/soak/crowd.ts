import { createHmac, randomBytes } from "node:crypto";
import type { Server } from "node:http";
import type { Socket } from "node:net";
import { parseArgs } from "node:util";
import { createAdaptorServer } from "@hono/node-server";
import type { Hono } from "hono";
import type { Hex } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { catalogueApp } from "../../fixtures/market/catalogue.ts";
import type { Shop, ShopEnv } from "../../fixtures/market/shop.ts";
import { rightAnswer, type SumSeller, sumSeller } from "../../fixtures/market/sums.ts";
import { createFacilitator } from "../../infra/rails/facilitator.ts";
import { giveLocalGas } from "../../infra/rails/wallets.ts";

/**
 * The many sellers of the soak, in a process of their own: one endpoint for each address of 127.16.0.0/12, all on one port,
 * and a catalogue of them on the next. They sell sums by real x402 and settle on the market's chain. The number of a seller
 * decides how it behaves. Prints `{"catalogue": url, "sellers": [{"url", "honest"}]}` once it listens.
 *
 * Usage: crowd.ts --rpc URL --network ID --asset ADDRESS --endpoints N --port N
 */
const { values } = parseArgs({
  options: {
    rpc: { type: "string", default: "" },
    network: { type: "string", default: "" },
    asset: { type: "string", default: "" },
    endpoints: { type: "string", default: "2000" },
    port: { type: "string", default: "0" },
  },
});
const ENDPOINTS = Number(values.endpoints);
const PORT = Number(values.port);
/** Price of a call, atomic units: half a thousandth of a dollar. */
const PRICE = "500";

/** How the sellers of each score of twenty behave; those that are not listed are honest. */
const DEVIATING: Readonly<Record<number, NonNullable<SumSeller["behave"]>>> = {
  3: () => ({ answer: async (asked) => ({ ...rightAnswer(asked), body: { sum: asked.a + asked.b + 1 } }) }),
  7: () => ({ answer: async (asked) => ({ ...rightAnswer(asked), body: { total: asked.a + asked.b } }) }),
  11: () => {
    let calls = 0;
    return {
      answer: async (asked) => (++calls % 4 === 0 ? { status: 500, body: { error: "later" } } : rightAnswer(asked)),
    };
  },
  15: () => ({ beforeTerms: async (c) => c.text("closed", 503) }),
};

const hostOf = (n: number): string => `127.${16 + (n >> 14)}.${(n >> 7) & 127}.${1 + (n & 127)}`;
const isHonest = (n: number): boolean => DEVIATING[n % 20] === undefined;

const secret = randomBytes(32);
const keyOf = (role: string): Hex => `0x${createHmac("sha256", secret).update(role).digest("hex")}`;
const network = values.network as Shop["network"];
const facilitator = createFacilitator({ rpcUrl: values.rpc, network, sender: keyOf("facilitator") });
await giveLocalGas(values.rpc, facilitator.address);

/** What the sellers did is in the record and on the chain: they keep no books. */
const ledger: Shop["ledger"] = { path: "", count: () => 0, append() {}, watch() {}, close() {} };

interface Seller {
  shop: Shop;
  kind: ReturnType<typeof sumSeller>;
  /** Made at its first request: a server of the protocol's package for each. */
  app?: Hono<ShopEnv> | null;
}

function sellerOf(n: number): Seller {
  const payTo = privateKeyToAddress(keyOf(`payee/${n}`)).toLowerCase();
  const shop: Shop = {
    ...{ name: `crowd-${n}`, origin: `http://${hostOf(n)}:${PORT}`, payTo, otherPayTo: payTo, network },
    ...{ asset: values.asset, domain: { name: "USDC", version: "2" }, rpcUrl: values.rpc, facilitator, ledger },
    // No seller of the crowd is paid on the other chain.
    tempo: null as unknown as Shop["tempo"],
    isRegular: () => false,
    payBack: () => Promise.reject(new Error("no seller of the crowd pays back")),
  };
  const behave = DEVIATING[n % 20];
  return { shop, kind: sumSeller({ name: shop.name, price: PRICE, ...(behave ? { behave } : {}) }) };
}

/** Only this machine is answered: the port is bound on every address, since a range cannot be. */
function onLoopback(server: Server): Server {
  server.on("connection", (socket: Socket) => {
    if (!socket.localAddress?.replace("::ffff:", "").startsWith("127.")) socket.destroy();
  });
  return server;
}

const sellers = new Map(Array.from({ length: ENDPOINTS }, (_, n) => [hostOf(n), sellerOf(n)]));
const fetchSeller = async (request: Request, env: unknown): Promise<Response> => {
  const seller = sellers.get(new URL(request.url).hostname);
  if (!seller) return new Response("nobody", { status: 404 });
  seller.app ??= seller.kind.app(seller.shop);
  return seller.app!.fetch(request, env as ShopEnv["Bindings"]);
};
const listen = (server: Server, port: number, host: string): Promise<void> =>
  new Promise((done, failed) => server.once("error", failed).listen(port, host, done));

const rows = [...sellers.values()].map(({ shop, kind }) => kind.listing(shop));
const catalogue = catalogueApp(new Map([[null, rows]]), () => 0, { routes: [] } as unknown as Hono);
await listen(onLoopback(createAdaptorServer({ fetch: fetchSeller }) as Server), PORT, "0.0.0.0");
await listen(createAdaptorServer({ fetch: catalogue.fetch }) as Server, PORT + 1, "127.0.0.1");
const told = [...sellers.values()].map(({ shop, kind }, n) => ({
  url: shop.origin + kind.paths[0]!,
  honest: isHonest(n),
}));
process.stdout.write(`${JSON.stringify({ catalogue: `http://127.0.0.1:${PORT + 1}`, sellers: told })}\n`);
for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => process.exit(0));
