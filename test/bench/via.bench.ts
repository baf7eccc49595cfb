/**
 * What a purchase through the service costs beside its seller and its chain, and what 200 of them at once weigh. One
 * official client buys of the market's honest seller, in turns straight and through `via`; of each purchase the time
 * is taken apart: while a request of ours is at the seller, while the chain has a question or a transaction of ours,
 * and the rest, which is ours, HTTP to the buyer and the log's syncs included; `cpu` is of this process, the client's
 * signing and its HTTP too, and is the only one of them that other work on the machine leaves as it is. Run: npx tsx
 * test/bench/via.bench.ts [purchases] [open at once]
 */
import { createServer, request as forward, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { encodePaymentSignatureHeader } from "@x402/core/http";
import type { EgressRequest } from "../../infra/egress/egress.ts";
import type { OrderCaps } from "../../pipelines/orders/caps.ts";
import { isEnded } from "../../pipelines/orders/order.ts";
import { marketBeside, officialBuyer, type Replica, type SoldSpec, sellingOver } from "../helpers/buying.ts";
import { ORDER_CAPS } from "../helpers/caps.ts";
import { dearSeller } from "../helpers/dear-seller.ts";
import { capOf } from "../helpers/public-record.ts";
import { ratio } from "./ratio.ts";

const PURCHASES = Number(process.argv[2] ?? 60);
const WARMING = 10;
const OPEN = Number(process.argv[3] ?? 200);
const BUYERS = 4;
/** How long a seller takes over each of them. */
const SLOW_MS = 500;
const AIM_MS = 40;

type Span = [from: number, to: number];

/** Milliseconds that at least one of the spans covers, within [from, to]. */
function covered(spans: readonly Span[], [from, to]: Span): number {
  let sum = 0;
  let end = from;
  for (const [a, b] of [...spans].sort((x, y) => x[0] - y[0])) {
    const start = Math.max(a, end);
    const stop = Math.min(b, to);
    if (stop <= start) continue;
    sum += stop - start;
    end = stop;
  }
  return sum;
}

/** Where the time of this process's purchases is spent outside of it. */
class Elsewhere {
  seller: Span[] = [];
  chain: Span[] = [];
  #sentAt = 0;

  /** Questions to the chain, and the wait from a transaction's sending to its receipt. */
  watchChain(rpcUrl: string): void {
    const { fetch } = globalThis;
    globalThis.fetch = async (input, init) => {
      const url = input instanceof Request ? input.url : String(input);
      if (!url.startsWith(rpcUrl)) return fetch(input, init);
      const from = performance.now();
      const asked = String(init?.body ?? "");
      if (asked.includes("eth_sendRawTransaction")) this.#sentAt = from;
      const answer = await fetch(input, init);
      const text = await answer.text();
      const mined = asked.includes("eth_getTransactionReceipt") && !text.includes('"result":null');
      this.chain.push([mined && this.#sentAt > 0 ? this.#sentAt : from, performance.now()]);
      return new Response(text, answer);
    };
  }

  watchSeller({ sales }: Replica): void {
    const { egress } = sales.seller;
    const fetch = egress.fetch.bind(egress);
    egress.fetch = async (asked: EgressRequest) => {
      const from = performance.now();
      try {
        return await fetch(asked);
      } finally {
        this.seller.push([from, performance.now()]);
      }
    };
  }

  clear(): void {
    this.seller = [];
    this.chain = [];
  }
}

const median = (all: readonly number[]): number => [...all].sort((a, b) => a - b)[Math.floor(all.length / 2)]!;
const p95 = (all: readonly number[]): number => [...all].sort((a, b) => a - b)[Math.floor(all.length * 0.95)]!;
const ms = (all: readonly number[]): string => `${median(all).toFixed(1)} ms (95%: ${p95(all).toFixed(1)})`;

/** The requests of one purchase as the client sent them, without its own signing between them. */
async function bought(buyer: Awaited<ReturnType<typeof officialBuyer>>, url: string): Promise<Span[]> {
  const spans: Span[] = [];
  const inner: typeof fetch = async (input, init) => {
    const from = performance.now();
    const answer = await fetch(input, init);
    const body = await answer.arrayBuffer();
    spans.push([from, performance.now()]);
    return new Response(body, answer);
  };
  const answer = await buyer.over(inner)(url);
  if (answer.status !== 200) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
  return spans;
}

async function purchases(service: Replica, spec: SoldSpec, world: Awaited<ReturnType<typeof marketBeside>>) {
  const elsewhere = new Elsewhere();
  elsewhere.watchChain(world.rpcUrl);
  elsewhere.watchSeller(service);
  const buyer = await officialBuyer(world);
  const query = "?a=20&b=22";
  const all = { straight: [], total: [], seller: [], chain: [], ours: [], cpu: [] } as Record<string, number[]>;
  for (let n = 0; n < PURCHASES + WARMING; n++) {
    const straight = await bought(buyer, `${spec.url}${query}`);
    elsewhere.clear();
    const before = process.cpuUsage();
    const spans = await bought(buyer, `${service.url}/v1/via/${capOf(spec)}${query}`);
    const { user, system } = process.cpuUsage(before);
    if (n < WARMING) continue;
    all.cpu!.push((user + system) / 1000);
    const sum = (of: (span: Span) => number) => spans.reduce((so, span) => so + of(span), 0);
    const { seller, chain } = elsewhere;
    const total = sum(([from, to]) => to - from);
    all.straight!.push(straight.reduce((so, [from, to]) => so + to - from, 0));
    all.total!.push(total);
    all.seller!.push(sum((span) => covered(seller, span)));
    all.chain!.push(sum((span) => covered(chain, span)));
    all.ours!.push(total - sum((span) => covered([...seller, ...chain], span)));
  }
  for (const [name, times] of Object.entries(all)) console.log(`${name.padEnd(9)} ${ms(times)}`);
  const { straight, total, ours } = all;
  ratio("via, ours beside seller and chain", `${median(ours!).toFixed(1)} ms`, `at most ${AIM_MS} ms`);
  ratio("via over straight from the seller", (median(total!) / median(straight!)).toFixed(2), "");
}

/** In front of another seller: what is paid for takes its time. */
async function slowed(origin: string) {
  const pass = (asked: IncomingMessage, answer: ServerResponse) => {
    const on = forward(`${origin}${asked.url}`, { method: asked.method, headers: asked.headers }, (came) => {
      answer.writeHead(came.statusCode!, came.headers);
      came.pipe(answer);
    });
    on.on("error", () => answer.destroy());
    asked.pipe(on);
  };
  const server = createServer((asked, answer) => {
    if (asked.headers["payment-signature"] === undefined) return pass(asked, answer);
    setTimeout(() => pass(asked, answer), SLOW_MS);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => void server.close(() => {}).closeAllConnections(),
  };
}

const pause = (time: number) => new Promise((done) => setTimeout(done, time));

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** What is held: without a collection the garbage of 200 orders, some 150 MB, would look like it. */
function memory(): { heap: number; rss: number } {
  collect();
  const { heapUsed, rss } = process.memoryUsage();
  return { heap: heapUsed / 1e6, rss: rss / 1e6 };
}

async function manyOpen(
  service: Replica,
  spec: SoldSpec,

  world: Awaited<ReturnType<typeof marketBeside>>,
) {
  const url = `${service.url}/v1/via/${capOf(spec)}`;
  const buyers = await Promise.all(Array.from({ length: BUYERS }, () => officialBuyer(world)));
  const terms = JSON.parse(Buffer.from((await fetch(url)).headers.get("payment-required")!, "base64").toString());
  const headers: string[] = [];
  for (let n = 0; n < OPEN; n++) {
    headers.push(encodePaymentSignatureHeader(await buyers[n % BUYERS]!.client.createPaymentPayload(terms)));
  }
  const before = memory();
  const from = performance.now();
  const answers = headers.map(async (header) => {
    for (;;) {
      // A lost answer is asked for again with the same payment, as every buyer may.
      const answer = await fetch(url, { headers: { "payment-signature": header } }).catch(() => null);
      if (answer && ![202, 429, 503].includes(answer.status)) return answer.status;
      await pause(100);
    }
  });
  const { table } = service.sales.buying.orders;
  const theirs = () => [...table.all()].filter(({ legs }) => legs[0]?.payTo === spec.payTo.toLowerCase());
  let isOver = false;
  const told = Promise.all(answers).finally(() => {
    isOver = true;
  });
  const most = { orders: 0, heap: 0, rss: 0 };
  while (!isOver) {
    const { heapUsed, rss } = process.memoryUsage();
    most.orders = Math.max(most.orders, theirs().filter((order) => !isEnded(order)).length);
    Object.assign(most, { heap: Math.max(most.heap, heapUsed / 1e6), rss: Math.max(most.rss, rss / 1e6) });
    await pause(50);
  }
  const statuses = await told;
  const seconds = (performance.now() - from) / 1000;
  const after = memory();
  const good = statuses.filter((status) => status === 200).length;
  const others = statuses.filter((status) => status !== 200).join(" ");
  const live = theirs().filter((order) => !isEnded(order)).length;
  console.log(
    `${OPEN} asked for at once, of a seller that takes ${SLOW_MS} ms: all told after ${seconds.toFixed(1)} s, ` +
      `${good} delivered and charged (others: ${others || "none"}), ${live} not ended, ` +
      `at most ${most.orders} open at once`,
  );
  const shown = (name: string, { heap, rss }: typeof before) =>
    `${name}: heap ${heap.toFixed(0)} MB, rss ${rss.toFixed(0)} MB`;
  console.log([shown("before", before), shown("most", most), shown("after", after)].join("; "));
  ratio(`via, heap that ${OPEN} orders at once leave`, `${(after.heap - before.heap).toFixed(0)} MB`, "bounded");
  if (live !== 0) throw new Error("an order of them has not ended");
}

const world = await marketBeside();
const dear = await dearSeller(world);
const slow = dear.spec(10_000, "honest", "slow");
const held = await slowed(new URL(slow.url).origin);
const { urls, payTo } = world.sellers.find(({ name }) => name === "honest-v2")!;
const honest: SoldSpec = { url: urls[0]!, payTo, price: "0.010000" };
const behind: SoldSpec = { ...slow, url: slow.url.replace(new URL(slow.url).origin, held.origin) };
const { leastPrice, ...most } = ORDER_CAPS;
const caps = { leastPrice, ...Object.fromEntries(Object.entries(most).map(([name, micro]) => [name, micro * 1_000n])) };
const limits = { buys_per_minute: 1e6, quotes_per_domain_minute: 1e6, reads_per_minute: 1e6 };
const service = await sellingOver(world, [honest, behind], {
  money: () => ({ caps: caps as unknown as OrderCaps }),
  deps: { limits },
});
try {
  await purchases(service, honest, world);
  await manyOpen(service, behind, world);
} finally {
  await service.close();
  held.close();
  await dear.close();
  await world.close();
}
