import { request as httpRequest } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { WorldInfo } from "../../commands/world.ts";
import { createEvmRail } from "../../infra/rails/evm.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import type { CheckAnswer } from "../../serving/schemas/check.ts";
import { type OfficialBuyer, officialBuyer } from "../helpers/buying.ts";

/** Buyers of calls with the protocol's own client; each comes from a loopback address of its own. */

/** Fetch from one address: the service tells networks apart by it. */
export const fetchFrom =
  (localAddress: string): typeof fetch =>
  async (input, init) => {
    const request = new Request(input as Request, init);
    const body = Buffer.from(await request.arrayBuffer());
    const { hostname: host, port, pathname, search } = new URL(request.url);
    return new Promise((resolve, reject) => {
      const headers = Object.fromEntries(request.headers);
      const { method } = request;
      const sent = httpRequest({ host, port, path: pathname + search, method, headers, localAddress, agent: false });
      sent.setTimeout(120_000, () => sent.destroy(new Error("no answer within two minutes")));
      sent.on("error", reject);
      sent.on("response", (answer) => {
        const chunks: Buffer[] = [];
        answer.on("data", (chunk: Buffer) => chunks.push(chunk));
        answer.on("error", reject);
        answer.on("end", () => {
          const told = new Headers();
          for (const [name, value] of Object.entries(answer.headers)) told.set(name, String(value));
          resolve(new Response(Buffer.concat(chunks), { status: answer.statusCode!, headers: told }));
        });
      });
      sent.end(body);
    });
  };

/** Where a seller's call is bought, and its total in micro-units; null where it is not sold. */
export async function offered(service: string, url: string): Promise<{ via: string; total: bigint } | null> {
  const answer = (await (await fetch(`${service}/v1/check?url=${encodeURIComponent(url)}`)).json()) as CheckAnswer;
  if (!answer.buy) return null;
  const via = `${service}${new URL(answer.buy.url).pathname}?${new URLSearchParams({ a: "20", b: "22", topic: "stones" })}`;
  return { via, total: parseMoney(answer.buy.total) };
}

export interface Bought {
  /** Of each call that was bought, from its first request on. */
  ms: number[];
  statuses: Record<string, number>;
  /** Calls whose answer came only when the buyer sent the payment again. */
  sentAgain: number;
  /** Micro-units that were charged and brought nothing; null: its seller is not sold yet. */
  lost: bigint | null;
}

/** How often a payment is sent again whose outcome is open, two seconds apart: a service restarts within that time. */
const MOST_SENT_AGAIN = 60;
const PAYMENT_HEADERS = ["payment-signature", "x-payment"];
/** Statuses that leave the outcome of a payment open. */
const OPEN = new Set([202, 429, 503]);

/**
 * One honest buyer: a call every two seconds of one seller. After a 429 or 503 it waits as long as the service asks. While
 * the outcome of a payment is open (202, no answer), it sends the same payment again, as docs/pay-on-delivery.md says.
 */
export class HonestBuyer {
  readonly #from = fetchFrom("127.4.0.1");

  private constructor(
    private readonly service: string,
    private readonly world: WorldInfo,
    private readonly buyer: OfficialBuyer,
  ) {}

  static async open(service: string, world: WorldInfo): Promise<HonestBuyer> {
    return new HonestBuyer(service, world, await officialBuyer(world));
  }

  async buy(seller: string, signal: AbortSignal): Promise<Bought> {
    const { rpcUrl, asset, chainId } = this.world;
    const rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
    const offer = await offered(this.service, seller);
    if (!offer) return { ms: [], statuses: {}, sentAgain: 0, lost: null };
    const { value: before } = await rail.balance(this.buyer.address);
    const ms: number[] = [];
    const statuses: Record<string, number> = {};
    let sentAgain = 0;
    const fetching = this.buyer.over(async (input, init) => {
      const request = new Request(input as Request, init);
      if (!PAYMENT_HEADERS.some((name) => request.headers.has(name))) return this.#from(request);
      const send = () => this.#from(request.clone()).catch(() => null);
      let answer = await send();
      let times = 0;
      for (; (answer === null || OPEN.has(answer.status)) && times < MOST_SENT_AGAIN; times++) {
        await sleep(2_000);
        answer = await send();
      }
      if (answer === null) throw new Error("no answer to a payment, however often it was sent");
      if (times > 0 && answer.status === 200) sentAgain++;
      return answer;
    });
    for (let began = performance.now(); !signal.aborted; ) {
      const answer = await fetching(offer.via).catch(() => null);
      const status = answer === null ? "none" : String(answer.status);
      statuses[status] = (statuses[status] ?? 0) + 1;
      const again = status === "429" || status === "503";
      if (status === "200") ms.push(performance.now() - began);
      await sleep(again ? 1_000 * Number(answer!.headers.get("retry-after") ?? 1) : 2_000);
      if (!again) began = performance.now();
    }
    const charged = before - (await rail.balance(this.buyer.address)).value;
    return { ms, statuses, sentAgain, lost: charged - BigInt(ms.length) * offer.total };
  }
}
