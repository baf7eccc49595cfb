import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { OrderTable } from "../../pipelines/orders/order-table.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { Sales } from "../../serving/buy/checkout.ts";
import { salePolicyOf } from "../../serving/buy/eligible.ts";
import type { CheckAnswer } from "../../serving/schemas/check.ts";
import type { SearchAnswer } from "../../serving/schemas/search.ts";
import { ORDER_CAPS } from "../helpers/caps.ts";
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
  beside?: string;
}
const at = (name: string): EndpointSpec => ({ url: `https://${name}.example/x` });
const BOTH = "Networks offered eip155:84532 Networks listed eip155:84532";
/** Before the sentence that says why it is not bought, on the page as in check and search. */
const NOT = "not: ";
const NO_OFFER = "Sellers are paid on eip155:84532 here, and its newest 402 has no offer there that we can pay.";
const SHOWN: Record<string, Shown> = {
  "one that is sold": {
    ...{ spec: at("sold"), band: "B", networks: BOTH },
    buy: "Seller's price 0.02 USDC Fee 0.002 USDC Total, about 0.022 USDC",
  },
  "a failing one": {
    spec: at("failed"),
    band: "F",
    networks: BOTH,
    buy: `${NOT}Its letter is F: its calls are not sold by this service.`,
  },
  "one that costs more than may be lost at a seller in a day": {
    ...{ spec: at("dear"), band: "B", networks: BOTH, row: { price: "1.000001" } },
    buy: `${NOT}At most 1.000000 USDC are paid for one call.`,
  },
  "one without a letter": {
    ...{ spec: at("new"), networks: BOTH },
    buy: `${NOT}It has no letter, and 0 of the 5 calls of ours that have to pass first.`,
  },
  "a tool": {
    ...{ spec: { ...at("tool"), method: "POST", tool: "sum" }, band: "B", networks: BOTH },
    buy: "Seller's price 0.02 USDC",
    beside: "Body the arguments of the tool sum , as JSON",
  },
  "a tool of a template": {
    ...{ spec: { ...at("{tenant}"), url: "https://t.example/{tenant}/mcp", tool: "sum" }, band: "B", networks: BOTH },
    buy: `${NOT}The address of its MCP server is a template, which calls of tools do not fill.`,
  },
  "a template": {
    ...{ spec: { url: "https://template.example/x/{id}/:day" }, band: "B", networks: BOTH },
    buy: "Seller's price 0.02 USDC",
    beside: "Query id, day: the variables of its url",
  },
  "one that is called with PUT": {
    ...{ spec: { ...at("put"), method: "PUT" }, band: "B", networks: BOTH },
    buy: `${NOT}Calls with PUT are not bought through this service.`,
  },
  "one whose listing names no network": {
    ...{ spec: at("quiet"), band: "B", row: { networks_listed: [] } },
    ...{ networks: "Networks offered eip155:84532 Networks listed its listing names none" },
    buy: "Seller's price 0.02 USDC",
  },
  "one on another network": {
    ...{ spec: at("elsewhere"), band: "B", row: { networks: ["eip155:1"], pay_to: null } },
    ...{ networks: "Networks offered eip155:1 Networks listed eip155:84532", buy: NOT + NO_OFFER },
  },
  "one whose 402 cannot be read": {
    ...{ spec: at("garbled"), band: "B", row: { networks: [], price: null, asset: null, unit: null } },
    networks: "Networks offered its newest 402 names none Networks listed eip155:84532",
    buy: `${NOT}Its newest 402 names no price.`,
  },
  "one in another asset": {
    ...{ spec: at("euro"), band: "B", row: { unit: null }, networks: BOTH },
    buy: `${NOT}Its price is in an asset of which we do not know what a unit is worth.`,
  },
  "one that never asked for a payment": {
    ...{
      spec: at("free"),
      listed: false,
      row: { asked_for_payment: 0, networks: [], networks_listed: [], price: null },
    },
    networks: "Networks offered not known: no 402 of it was seen Networks listed it is not listed",
    buy: `${NOT}No handshake of ours was answered with a price yet.`,
  },
};

/** What the pages show of an endpoint whose observations are in no table of the present yet. */
const UNREAD = at("unread");

const sales = () =>
  ({
    policy: salePolicyOf(ORDER_CAPS),
    receivingAccount: { network: "eip155:84532" },
    buying: { orders: { table: new OrderTable() }, cancelling: {} },
  }) as unknown as Sales;

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  const all = Object.values(SHOWN);
  await record.publish(
    ...all.filter(({ listed }) => listed !== false).map(({ spec }) => [listingDraft(spec)]),
    [listingDraft(UNREAD)],
    record.grades([cardOf(UNREAD, { band: "A" })], "A."),
    ...all.flatMap(({ spec, band }) => (band ? [record.grades([cardOf(spec, { band })], `${band}.`)] : [])),
  );
  await record.live(all.map(({ spec, row }) => rowOf(spec, row)));
  serving = await servingOver(record, {
    sales: sales(),
  });
});
afterAll(() => record.close());

const pageOf = async (of: TestServing, spec: EndpointSpec): Promise<string> =>
  (await (await of.get(`/endpoint/${capOf(spec)}`)).text())
    .replace(/<[^>]+>/g, " ")
    .replaceAll("&#39;", "'")
    .replace(/\s+/g, " ");

describe.each(Object.entries(SHOWN))("%s", (_, { spec, networks, buy, beside = "", listed }) => {
  test("has its networks and its terms, or why there are none: the page, the check and the search agree", async () => {
    const text = await pageOf(serving, spec);
    const why = buy.startsWith(NOT) ? buy.slice(NOT.length) : undefined;
    expect(text).toContain(networks);
    expect(text).toContain(`Buy ${why ?? buy}`);
    expect(text).toContain(beside);
    const cap = capOf(spec);
    const check = (await (await serving.get(`/v1/check?url=${cap}`)).json()) as CheckAnswer;
    expect([check.buy === undefined, check.not_bought]).toEqual([why !== undefined, why]);
    if (listed === false) return;
    const { capabilities } = (await (await serving.get("/v1/search?limit=50")).json()) as SearchAnswer;
    const found = capabilities.find(({ capability_id }) => capability_id === cap)!;
    expect([found.buy, found.not_bought]).toEqual([check.buy ?? null, why ?? null]);
  });
});

test("while sales are closed the page, the check and the search say why, and of a bad letter they say that", async () => {
  const { buying, ...others } = sales();
  const whyClosed = "Gas costs too much now.";
  const closed = await servingOver(record, { sales: { ...others, buying: { ...buying, whyClosed } } as Sales });
  const checkOf = async (spec: EndpointSpec) =>
    (await (await closed.get(`/v1/check?url=${capOf(spec)}`)).json()) as CheckAnswer;
  const { spec } = SHOWN["one that is sold"]!;
  expect(await checkOf(spec)).toMatchObject({ not_bought: whyClosed });
  expect((await checkOf(spec)).buy).toBeUndefined();
  expect(await pageOf(closed, spec)).toContain(`Buy ${whyClosed}`);
  expect((await checkOf(at("failed"))).not_bought).toMatch(/^Its letter is F/);
});

test("the tool of an endpoint that is in no listing is the one of our handshakes, where they name it", async () => {
  const spec = { ...at("unlisted"), method: "POST" as const, tool: "sum" };
  const buyOf = async (row: Partial<VolatileRow>) => {
    await record.live([rowOf(spec, row)]);
    const one = await servingOver(record, { sales: sales() });
    return (await (await one.get(`/v1/check?url=${capOf(spec)}`)).json()) as CheckAnswer;
  };
  for (const request of [null, "", "{}"])
    expect((await buyOf({ request })).not_bought).toBe("The record does not name the tool that is called there.");
  const named = await buyOf({ request: JSON.stringify({ tool: "sum", arguments: {} }) });
  expect(named.not_bought).toMatch(/^It has no letter/);
});

test("while nothing of an endpoint has been read, nothing is said of what it answered", async () => {
  const says = "No handshake of ours with it has been read yet.";
  const text = await pageOf(serving, UNREAD);
  expect(text).toContain(`Buy ${says}`);
  expect(text).toContain("Networks offered not known: no 402 of it has been read yet Networks listed not read yet Buy");
  const check = (await (await serving.get(`/v1/check?url=${capOf(UNREAD)}`)).json()) as CheckAnswer;
  expect([check.band, check.not_bought]).toEqual(["A", says]);
});

test("where nothing is sold the page says so", async () => {
  const text = await pageOf(await servingOver(record), SHOWN["one that is sold"]!.spec);
  expect(text).toContain("Buy Nothing is sold here.");
});
