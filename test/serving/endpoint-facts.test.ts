import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { OrderTable } from "../../pipelines/orders/order-table.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { Sales } from "../../serving/buy/checkout.ts";
import { SALE_POLICY } from "../../serving/buy/eligible.ts";
import { capOf, cardOf, type EndpointSpec, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";

/** What the page of an endpoint tells of networks and of buying, and what it tells where there is nothing to tell. */
interface Shown {
  spec: EndpointSpec;
  row?: Partial<VolatileRow>;
  band?: "B" | "F";
  listed?: false;
  networks: string;
  buy: string;
}
const at = (name: string): EndpointSpec => ({ url: `https://${name}.example/x` });
const BOTH = "Networks offered eip155:84532 Networks listed eip155:84532";
const NOT = "It cannot be bought through this service.";
const NO_OFFER = "Sellers are paid on eip155:84532 here, and its newest 402 has no offer there that we can pay.";
const SHOWN: Record<string, Shown> = {
  "one that is sold": {
    ...{ spec: at("sold"), band: "B", networks: BOTH },
    buy: "Seller's price 0.02 USDC Fee 0.002 USDC Total, about 0.022 USDC",
  },
  "a failing one": { spec: at("failed"), band: "F", networks: BOTH, buy: `${NOT} Its letter is F` },
  "one without a letter": {
    ...{ spec: at("new"), networks: BOTH },
    buy: `${NOT} It has no letter, and 0 of the 5 calls of ours that have to pass first.`,
  },
  "a tool": {
    ...{ spec: { ...at("tool"), tool: "sum" }, band: "B", networks: BOTH },
    buy: `${NOT} Tools of MCP servers are not bought through this service.`,
  },
  "a template": {
    ...{ spec: { url: "https://template.example/x/{id}" }, band: "B", networks: BOTH },
    buy: `${NOT} Its url is a template; ask for an endpoint with a complete url.`,
  },
  "one whose listing names no network": {
    ...{ spec: at("quiet"), band: "B", row: { networks_listed: [] } },
    ...{ networks: "Networks offered eip155:84532 Networks listed its listing names none" },
    buy: "Seller's price 0.02 USDC",
  },
  "one on another network": {
    ...{ spec: at("elsewhere"), band: "B", row: { networks: ["eip155:1"], pay_to: null } },
    ...{ networks: "Networks offered eip155:1 Networks listed eip155:84532", buy: `${NOT} ${NO_OFFER}` },
  },
  "one whose 402 cannot be read": {
    ...{ spec: at("garbled"), band: "B", row: { networks: [], price: null, asset: null, unit: null } },
    networks: "Networks offered its newest 402 names none Networks listed eip155:84532",
    buy: `${NOT} Its newest 402 names no price.`,
  },
  "one in another asset": {
    ...{ spec: at("euro"), band: "B", row: { unit: null }, networks: BOTH },
    buy: `${NOT} Its price is in an asset of which we do not know what a unit is worth.`,
  },
  "one that never asked for a payment": {
    ...{
      spec: at("free"),
      listed: false,
      row: { asked_for_payment: 0, networks: [], networks_listed: [], price: null },
    },
    networks: "Networks offered not known: no 402 of it was seen Networks listed it is not listed",
    buy: `${NOT} No handshake of ours was answered with a price yet.`,
  },
};

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  const all = Object.values(SHOWN);
  await record.publish(
    ...all.filter(({ listed }) => listed !== false).map(({ spec }) => [listingDraft(spec)]),
    ...all.flatMap(({ spec, band }) => (band ? [record.grades([cardOf(spec, { band })], `${band}.`)] : [])),
  );
  await record.live(all.map(({ spec, row }) => rowOf(spec, row)));
  serving = await servingOver(record, {
    sales: {
      policy: { ...SALE_POLICY, leastPrice: 100n },
      cashier: { network: "eip155:84532" },
      buying: { orders: { table: new OrderTable() }, cancelling: {} },
    } as unknown as Sales,
  });
});
afterAll(() => record.close());

const pageOf = async (of: TestServing, spec: EndpointSpec): Promise<string> =>
  (await (await of.get(`/endpoint/${capOf(spec)}`)).text())
    .replace(/<[^>]+>/g, " ")
    .replaceAll("&#39;", "'")
    .replace(/\s+/g, " ");

describe.each(Object.entries(SHOWN))("%s", (_, { spec, networks, buy }) => {
  test("has its networks and its terms, or why there are none", async () => {
    const text = await pageOf(serving, spec);
    expect(text).toContain(networks);
    expect(text).toContain(`Buy ${buy}`);
    // The page and the check agree.
    const check = (await (await serving.get(`/v1/check?url=${capOf(spec)}`)).json()) as { buy?: object };
    expect(check.buy !== undefined).toBe(!buy.startsWith(NOT));
  });
});

test("where nothing is sold the page says so", async () => {
  const text = await pageOf(await servingOver(record), SHOWN["one that is sold"]!.spec);
  expect(text).toContain(`Buy ${NOT} This service sells no calls of others.`);
});
