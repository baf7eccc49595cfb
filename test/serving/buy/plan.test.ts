import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { OrderTable } from "../../../pipelines/orders/order-table.ts";
import type { VolatileRow } from "../../../pipelines/record/volatile.ts";
import type { Sales } from "../../../serving/buy/checkout.ts";
import { SALE_POLICY } from "../../../serving/buy/eligible.ts";
import { RULE } from "../../../serving/buy/plan.ts";
import { PlanAnswer } from "../../../serving/schemas/route.ts";
import {
  capOf,
  cardOf,
  componentsOf,
  type EndpointSpec,
  listingDraft,
  PublicRecord,
  rowOf,
} from "../../helpers/public-record.ts";
import { servingOver, type TestServing } from "../../helpers/serving.ts";

interface Spec extends EndpointSpec {
  band?: "A" | "B" | "D" | "F" | "UNRATED";
  composite?: number;
  price?: string;
  p95_ms?: number;
  pay_to?: null;
  row?: Partial<VolatileRow>;
}
/** What a replica's clock says, and looks at a retry before that. */
const NOW = Date.parse("2026-11-21T12:00:00.000Z");
const looked = (retried: string, days: number) => ({ row: { retried, retried_at: NOW - days * 86_400_000 } });
const at = (name: string, more: Omit<Spec, "url"> = {}): Spec => ({ url: `https://${name}.example/weather`, ...more });
/** In the order of the rule. */
const RANKED: Spec[] = [
  at("top", { band: "A", composite: 0.9, price: "5.000000", ...looked("answered", 6) }),
  at("high", { band: "B", composite: 0.8, price: "4.000000", ...looked("asked_again", 0) }),
  at("cheap", { band: "B", composite: 0.7, price: "0.010000", p95_ms: 900, ...looked("answered", 36) }),
  at("quick", { band: "B", composite: 0.7, price: "0.020000", p95_ms: 200 }),
  at("lazy", { band: "B", composite: 0.7, price: "0.020000", p95_ms: 800 }),
  at("silent-a", { band: "B", composite: 0.7, price: "0.020000" }),
  at("silent-b", { band: "B", composite: 0.7, price: "0.020000" }),
  at("posted", { band: "D", composite: 0.4, method: "POST" }),
  at("unknown", { band: "UNRATED", composite: 0.3, price: "0.050000" }),
];
const NEVER: Spec[] = [
  at("failing", { band: "F", composite: 0.2 }),
  at("unpayable", { band: "A", composite: 0.95, pay_to: null }),
  at("elsewhere", { band: "A", composite: 0.98, row: { networks: ["eip155:137"] } }),
  at("too-dear-for-us", { band: "A", composite: 0.99, price: "10.000001" }),
  at("dust", { band: "A", composite: 0.97, price: "0.000099" }),
];
const OTHER = { url: "https://other.example/sums", band: "A" as const };

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  // Published in another order than they are ranked in.
  const specs: Spec[] = [...RANKED, ...NEVER, OTHER].reverse();
  const groups = specs.flatMap((spec) => {
    const parts = componentsOf(43);
    const method = `lines4/1;a=0.05;stratum=paid;p95_ms=${spec.p95_ms};p95_ms_hi=9999`;
    const components = { ...parts, ...(spec.p95_ms ? { latency_p95: { ...parts.latency_p95, method } } : {}) };
    const { band = "B", composite = 0.5 } = spec;
    return [[listingDraft(spec)], record.grades([cardOf(spec, { band, composite, components })], `${band}: so it is.`)];
  });
  await record.publish(...groups);
  await record.live(specs.map((spec) => rowOf(spec, { price: spec.price ?? "0.020000", ...spec.row }, spec.pay_to)));
  // Nobody is asked anything: of what sells only the policy is there.
  serving = await servingOver(record, {
    sales: {
      policy: { ...SALE_POLICY, leastPrice: 100n },
      receivingAccount: { network: "eip155:84532" },
      buying: { orders: { table: new OrderTable() }, cancelling: {} },
    } as unknown as Sales,
  });
});
afterAll(() => record.close());

async function plan(body: object): Promise<PlanAnswer> {
  const answer = await serving.get("/v1/route/plan", { method: "POST", body: JSON.stringify(body) });
  expect(answer.status).toBe(200);
  return PlanAnswer.parse(await answer.json());
}
const namesOf = ({ candidates }: PlanAnswer): string[] =>
  candidates.map(({ url }) => new URL(url).hostname.split(".")[0]!);
const countsOf = ({ passed_over }: PlanAnswer) =>
  Object.fromEntries(passed_over.map(({ reason, count }) => [reason, count]));

describe("the rule", () => {
  test("letter, then composite, then price, then latency, then url; what via would not take is no candidate", async () => {
    const all = await plan({ need: "weather", limit: 20 });
    expect(namesOf(all)).toEqual(RANKED.map(({ url }) => new URL(url).hostname.split(".")[0]));
    expect([countsOf(all), all.looked_at, all.more, all.rule]).toEqual([{ not_sold: 5 }, 14, false, RULE]);
  });

  test("each says why it stands where it stands, and what a call costs", async () => {
    const { candidates } = await plan({ need: "weather", limit: 20 });
    const [top, high, cheap, quick, lazy, silentA, silentB] = candidates;
    expect(top!.reasons).toEqual(["First of 9 that fit.", "A: so it is."]);
    const behind = [high, cheap, quick, lazy, silentA, silentB].map((one) => one!.reasons[0]!.split(": ")[1]);
    expect(behind).toEqual([
      ...["its letter is better.", "its composite is higher.", "it costs less.", "its latency is shorter, or known."],
      ...["its latency is shorter, or known.", "its url is first in the alphabet."],
    ]);
    expect(high!.reasons[0]).toContain(top!.capability_id);
    expect(cheap).toMatchObject({ price: "0.010000", fee: "0.002000", total: "0.012000", latency_p95_ms: 900 });
    expect(cheap!.buy).toBe(`https://touchstone.test/v1/via/${capOf(RANKED[2]!)}`);
  });
});

test("whether a retry is safe is said beside the rule, which it plays no part in", async () => {
  const { candidates } = await plan({ need: "weather", limit: 20 });
  const said = candidates.map(({ retry }) => retry);
  expect(said).toEqual(["safe", "unsafe", ...Array(7).fill("unknown")]);
  expect(RULE).not.toMatch(/retry/i);
});

describe("what is asked for", () => {
  test.each([
    [{ min_band: "B" }, 7, { below_band: 3, not_sold: 4 }],
    [{ method: "POST" }, 1, { other_method: 13 }],
    [{ max_price: "0.02" }, 6, { not_sold: 5, too_dear: 3 }],
    [{ max_latency_ms: 800 }, 2, { not_sold: 5, latency_unknown: 6, too_slow: 1 }],
    [{ class: "arithmetic" }, 0, {}],
  ])("%j", async (more, fit, passed) => {
    const answer = await plan({ need: "weather", limit: 20, ...more });
    expect([answer.candidates.length, countsOf(answer)]).toEqual([fit, passed]);
  });

  test("five are named where nothing else is said, and that there are more", async () => {
    const answer = await plan({ need: "example WEATHER" });
    expect([answer.candidates.length, answer.more]).toEqual([5, true]);
  });

  test.each([
    [{}, "/need"],
    [{ need: " " }, "/need"],
    [{ need: "x".repeat(201) }, "/need"],
    [{ need: "x", limit: 21 }, "/limit"],
    [{ need: "x", min_band: "F" }, "/min_band"],
    [{ need: "x", max_price: "1" }, "/max_price"],
  ])("%j is refused at %s", async (body, pointer) => {
    const answer = await serving.get("/v1/route/plan", { method: "POST", body: JSON.stringify(body) });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ errors: [expect.objectContaining({ pointer })] });
  });

  test("where nothing is sold nobody is named", async () => {
    const other = await servingOver(record);
    const answer = await other.get("/v1/route/plan", { method: "POST", body: '{"need":"weather"}' });
    expect(answer.status).toBe(503);
  });
});

test("the endpoint's page has the terms of a purchase", async () => {
  const page = await (await serving.get(`/endpoint/${capOf(RANKED[2]!)}`)).text();
  const buy = /<h2 id="buy">Buy<\/h2>(.*?)<\/section>/s.exec(page)![1]!;
  for (const part of ["0.01", "0.002", "0.012", `/v1/via/${capOf(RANKED[2]!)}`, "Touchstone-Publish: true"])
    expect(buy).toContain(part);
  const never = await (await serving.get(`/endpoint/${capOf(NEVER[0]!)}`)).text();
  expect(never).toContain("<p>Its letter is F: its calls are not sold by this service.</p>");
});
