import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { rfc3339 } from "../../../pipelines/record/time.ts";
import { ordersText } from "../../../serving/operations/via.ts";
import { BuyerOrders } from "../../../serving/schemas/orders.ts";
import { marketBeside, type OfficialBuyer, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { capOf } from "../../helpers/public-record.ts";

const SERVICE = "https://touchstone.test";
let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let buyer: OfficialBuyer;
let ids: string[];

beforeAll(async () => {
  world = await marketBeside();
  const { urls, payTo } = world.sellers.find(({ name }) => name === "honest-v2")!;
  const spec = { url: urls[0]!, payTo, price: "0.010000" };
  service = await sellingOver(world, [spec]);
  buyer = await officialBuyer(world);
  ids = [];
  for (const b of [1, 2, 3]) {
    const answer = await buyer.fetch(`${service.url}/v1/via/${capOf(spec)}?a=1&b=${b}`);
    ids.unshift(answer.headers.get("touchstone-order")!);
  }
});
afterAll(async () => {
  await service?.close();
  await world?.close();
});

interface CredentialParts {
  address?: string;
  at?: string;
  of?: string;
  by?: OfficialBuyer;
}
async function credential({
  address = buyer.address,
  at,
  of = SERVICE,
  by = buyer,
}: CredentialParts = {}): Promise<string> {
  const moment = at ?? rfc3339(systemClock.now());
  const signature = await by.sign(ordersText(of, address, moment));
  return Buffer.from(JSON.stringify({ address, at: moment, signature })).toString("base64url");
}
const read = (authorization: string | null, query = "", address = buyer.address): Promise<Response> =>
  fetch(
    `${service.url}/v1/buyers/${address}/orders${query}`,
    authorization === null ? {} : { headers: { authorization } },
  );

describe("orders of a wallet", () => {
  test("the wallet reads them, newest first, without the answers", async () => {
    const answer = await read(`Wallet ${await credential()}`);
    expect([answer.status, answer.headers.get("cache-control")]).toEqual([200, "no-store"]);
    const said = BuyerOrders.parse(await answer.json());
    expect(said.orders.map(({ order_id }) => order_id)).toEqual(ids);
    expect(said.orders.map(({ state, answer: bytes }) => [state, bytes])).toEqual(ids.map(() => ["settled", null]));
    expect(said.next).toBeNull();
  });

  test("the page's own snippet makes the header", async () => {
    const page = await readFile(join(import.meta.dirname, "../../../docs/pay-on-delivery.md"), "utf8");
    const script = /^```js\n(.*?)\n```$/ms.exec(page)![1]!;
    const { walletHeader } = (await import(`data:text/javascript,${encodeURIComponent(script)}`)) as {
      walletHeader(account: object, service: string): Promise<string>;
    };
    const signMessage = ({ message }: { message: string }) => buyer.sign(message);
    expect((await read(await walletHeader({ address: buyer.address, signMessage }, SERVICE))).status).toBe(200);
  });

  test("the status page counts them and names nobody", async () => {
    const page = await (await fetch(`${service.url}/status`)).text();
    expect(page).toContain("<dt>Orders</dt><dd>3 settled</dd>");
    expect(page).not.toContain(buyer.address);
  });

  test("a page at a time, from its cursor on", async () => {
    const authorization = `Wallet ${await credential()}`;
    const first = BuyerOrders.parse(await (await read(authorization, "?limit=2")).json());
    expect([first.orders.map(({ order_id }) => order_id), first.next]).toEqual([ids.slice(0, 2), ids[1]]);
    const second = BuyerOrders.parse(await (await read(authorization, `?limit=2&cursor=${first.next}`)).json());
    expect([second.orders.map(({ order_id }) => order_id), second.next]).toEqual([ids.slice(2), null]);
    expect((await read(authorization, `?cursor=ord_${"0".repeat(26)}`)).status).toBe(400);
    expect((await read(authorization, "?limit=101")).status).toBe(400);
  });

  test("the address may be written with its checksum", async () => {
    const upper = `0x${buyer.address.slice(2).toUpperCase()}`;
    expect((await read(`Wallet ${await credential()}`, "", upper)).status).toBe(200);
  });

  test("who cannot sign with it reads nothing, and is told why", async () => {
    const other = await officialBuyer(world);
    const ago = (ms: number) => rfc3339(new Date(systemClock.now().getTime() - ms));
    const cases: [string | null, string][] = [
      [null, "send Authorization: Wallet"],
      ["Bearer x", "must be Wallet"],
      ["Wallet !", "must be Wallet"],
      [`Wallet ${Buffer.from("{}").toString("base64url")}`, "is no base64url of JSON"],
      [`Wallet ${await credential({ by: other })}`, "signature is not"],
      [`Wallet ${await credential({ address: other.address, by: other })}`, "another wallet's"],
      [`Wallet ${await credential({ of: "https://elsewhere.test" })}`, "signature is not"],
      [`Wallet ${await credential({ at: ago(300_001) })}`, "more than 5 minutes ago"],
      [`Wallet ${await credential({ at: ago(-400_000) })}`, "still to come"],
      [`Wallet ${await credential({ at: "now" })}`, "is no time"],
    ];
    for (const [authorization, words] of cases) {
      const answer = await read(authorization);
      expect([words, answer.status, answer.headers.get("www-authenticate")]).toEqual([words, 401, "Wallet"]);
      expect(await answer.json()).toMatchObject({
        type: "/docs/api#not-the-wallet",
        detail: expect.stringContaining(words),
      });
    }
  });
});
