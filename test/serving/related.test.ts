import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FixedClock } from "../../infra/clock.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import type { Log, NewRecord } from "../../infra/log/log.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { USDC } from "../../pipelines/record/networks.ts";
import { readOffer } from "../../pipelines/record/terms/offers.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import type { Owner } from "../../pipelines/roles/protocol/owner.ts";
import { guard } from "../../serving/client/index.ts";
import { CheckAnswer } from "../../serving/schemas/check.ts";
import { ExposureReport } from "../../serving/schemas/exposure.ts";
import { type LiveService, liveService } from "../helpers/client.ts";
import { NOW, type PublicRecord } from "../helpers/public-record.ts";
import { checkPath } from "../helpers/serving.ts";
import * as records from "../pipelines/2-ingest/records.ts";
import { JWKS, SIGNERS, TRUST } from "../pipelines/4-publish/world.ts";
import { Deployment, gradeAll } from "../pipelines/roles/deployment.ts";
import { PARTITIONS, placed } from "../pipelines/roles/records.ts";

const { capOf, later, NOTHING, TERMS, urlOf } = records;
const HOUR = 3_600_000;
const address = (n: number): string => `0x${"AbCd".repeat(9)}${String(n).padStart(4, "0")}`;
const BASE58 = "DRpbCBMxVnDK7maPM5tGv6MvB3v1sRMC86PZ8okm21hy";
/** A name whose url lies under another host than `<name>.example`. */
const under = (host: string): string => `${host}/x?at=`;

/**
 * The record as its owner folds it from the log and its publisher names it, and the service over both: who took money is
 * told of urls with a card, without one, and never seen.
 */
let dir: string;
let log: Log;
let at: Deployment;
let owner: Owner;
let live: LiveService;
const clock = new FixedClock(NOW);

/** Everything that happens in the pipeline, and what serving then has. */
async function turn(...entries: NewRecord[]): Promise<void> {
  if (entries.length > 0) await log.append(entries.map(placed));
  clock.set(new Date(clock.now().getTime() + 10_000));
  await gradeAll([owner], clock.now());
  await at.publishing().takeRuns();
  await owner.writeVolatile();
  await at.publishing().nameTables();
  await live?.follower.refresh();
  // Answers are kept for a minute.
  live?.clock.pass(61_000);
}

const ago = (hours: number): string => later(NOW, -hours * HOUR);
const termsOf = (payTo: string) => ({ ...TERMS, offers: [{ ...records.OFFER, pay_to: payTo }] });
const seen = (name: string, payTo: string, hours = 12): NewRecord[] => [
  records.listing(name, ago(24 * 30)),
  records.handshake(name, ago(hours), { pay_to: payTo, terms: termsOf(payTo) }),
];

/** A payment of ours that settled, and for which nothing came, not even when its proof was shown again. */
function lost(name: string, payTo: string, hours: number, more: { settled?: boolean } = {}) {
  const [t, end] = [ago(hours), later(ago(hours), 60_000)];
  const quote = { price: "0.020000", amount_atomic: "20000", asset: "0xasset", network: "eip155:8453", pay_to: payTo };
  const sent = records.intent(name, t, {
    quote: { ...quote, max_timeout_s: 60, x402_version: 1 },
    first_leg: { honest: true, latency_ms: 90, terms: termsOf(payTo), differs: [] },
  });
  const again = { kind: "shown_again" as const, shown_again: { ...NOTHING, watched: true } };
  const said = [
    sent,
    records.result(name, sent.eventId, end, NOTHING),
    ...(more.settled === false ? [] : [records.settlement(name, sent.eventId, end, { to: payTo })]),
    records.followup(name, sent.eventId, later(end, 60_000), again as never),
  ];
  return { id: sent.eventId, said };
}
const refund = (name: string, of: string): NewRecord =>
  records.followup(name, of, ago(1), { kind: "refund", refund: { tx: "0x1", amount_atomic: "20000" } as never });

const THIEF = lost("pay.evil", address(1), 30);
const PAID_BACK = lost("fair", address(3), 50);
const WITHDRAWN = lost("ours", address(4), 50);
const UNSETTLED = lost("slow", address(5), 50, { settled: false });
const TENANT = lost(under("mallory.vercel.app"), address(6), 50);
const SOLANA = lost("sol", BASE58, 50);
const LONG_AGO = lost("old", address(7), 24 * 95);
const PENDING = lost("late", address(8), 23);
const MOVED = lost("moved", address(9), 60);

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "related-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  at = await Deployment.open(join(dir, "stores"), log, clock);
  owner = await at.owner([0, 1, 2, 3]);
  await turn(
    ...[THIEF, PAID_BACK, WITHDRAWN, UNSETTLED, TENANT, SOLANA, LONG_AGO, PENDING, MOVED].flatMap(({ said }) => said),
    ...[under("mallory.vercel.app"), "pay.evil", "fair", "ours", "slow", "sol", "old", "late"].map((name) =>
      records.listing(name, ago(24 * 90)),
    ),
    // Other endpoints of the thief: of the same address, of the same domain, and of both.
    ...seen("twin", address(1).toLowerCase()),
    ...seen("api.evil", address(20)),
    // The newest 402 of one that took money names the address of somebody else.
    ...seen("moved", address(21)),
    ...seen("victim", address(21)),
    records.listing("listed", ago(48), {
      seller_controlled: true,
      source: "https://listed.example",
      claims: {
        ...{ url: urlOf("listed"), method: null, tool: null, description: null, class: "any", fixed_price: false },
        ...{ offers: [{ ...records.OFFER, pay_to: address(1) }], example: null, output_mime: null },
      } as never,
    }),
  );
  const record = {
    ...{ store: at.publicStore, trust: TRUST, jwks: JWKS, logger: createLogger("silent"), metrics: createMetrics() },
    keys: { answers: SIGNERS.answers },
  };
  live = await liveService(record as unknown as PublicRecord);
});
afterAll(async () => {
  await live.close();
  await at.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

async function ask(url: string, pay_to?: string): Promise<CheckAnswer> {
  const response = await live.get(checkPath({ url, ...(pay_to === undefined ? {} : { pay_to }) }));
  expect(response.status).toBe(200);
  return CheckAnswer.parse(await response.json());
}
const TOOK = ["took_the_money", "payee_took_the_money", "domain_took_the_money"];
const tookOf = ({ flags = [] }: CheckAnswer): string[] => flags.filter((flag) => TOOK.includes(flag));

const [PAYEE, DOMAIN, OWN] = ["payee_took_the_money", "domain_took_the_money", "took_the_money"];
const NEVER = "https://never-seen.example/pay";
type Case = [what: string, url: string, payTo: string | undefined, flags: string[]];
const CASES: Case[] = [
  ["a url never seen, and an address that took money", NEVER, address(1), [PAYEE]],
  ["the same in another case", NEVER, address(1).toLowerCase(), [PAYEE]],
  ["the same in capitals", NEVER, `0x${address(1).slice(2).toUpperCase()}`, [PAYEE]],
  ["a base58 address that took money", NEVER, BASE58, [PAYEE]],
  ["a base58 address in another case is another", NEVER, BASE58.replace("DRp", "dRp"), []],
  ["a url never seen under a domain that took money", "https://new.evil.example/x", undefined, [DOMAIN]],
  ["the same host, written with its final dot", "https://pay.evil.example./x", undefined, [DOMAIN]],
  ["the same with http and an odd port, which is never probed", "http://evil.example:8081/x", address(30), [DOMAIN]],
  ["both", "https://new.evil.example/x", address(1), [PAYEE, DOMAIN]],
  ["a private address, never probed", "http://10.0.0.1/pay", address(1), [PAYEE]],
  ["an id that is in no record", "cap_00000000000000000000000000", address(1), [PAYEE]],
  ["a known url, without an address in hand", urlOf("twin"), undefined, [PAYEE]],
  ["a known url of the domain", urlOf("api.evil"), undefined, [DOMAIN]],
  ["a known url, through its path", `${urlOf("api.evil")}?q=1`, address(1), [PAYEE, DOMAIN]],
  ["listed alone, and its own listing names the address", urlOf("listed"), undefined, [PAYEE]],
  ["the endpoint itself", urlOf("pay.evil"), undefined, [OWN]],
  ["the endpoint itself, through its path", `${urlOf("pay.evil")}?q=1`, address(1), [OWN]],
  ["another tenant of the platform", "https://alice.vercel.app/x", undefined, []],
  ["the platform itself", "https://vercel.app/x", undefined, []],
  ["the tenant that took money", "https://mallory.vercel.app/other", undefined, [DOMAIN]],
  ["an address that nobody knows", NEVER, address(99), []],
  ["no address", NEVER, undefined, []],
  ["an address that paid it back", NEVER, address(3), [PAYEE]],
  ["an address whose only record was not settled", NEVER, address(5), []],
  ["an address that took money before the window", NEVER, address(7), []],
  ["an address that may still pay it back", NEVER, address(8), []],
  ["an address that had the money and is named no more", NEVER, address(9), [PAYEE]],
  ["an address that a thief names since", NEVER, address(21), []],
  ["an endpoint whose address a thief names since", urlOf("victim"), undefined, []],
];

describe("what payee and domain are known for", () => {
  test.each(CASES)("%s", async (_what, url, payTo, flags) => {
    const answer = await ask(url, payTo);
    expect(tookOf(answer)).toEqual(flags);
    const [payee, domain] = [flags.includes(PAYEE!), flags.includes(DOMAIN!)];
    expect(answer.why.includes("Do not pay yet: ") || answer.why.includes("Besides, ")).toBe(payee || domain);
    if (payee && payTo !== undefined) expect(answer.why).toContain(`payments to ${payTo} settled on the chain`);
    if (domain) expect(answer.why).toMatch(/payments to endpoints of (evil\.example|mallory\.vercel\.app) settled/);
    if (answer.matched === "none" && flags.length === 0)
      expect(answer.why).toBe("UNRATED: not in the record; unknown, not bad.");
  });

  test("the words say what happened, where and when, and what is not known", async () => {
    const { why, payee } = await ask(NEVER, address(1));
    expect(why).toBe(
      `Do not pay yet: payments to ${address(1)} settled on the chain, brought nothing and were not paid back (at ` +
        `${capOf("pay.evil")}; last on ${ago(30).slice(0, 10)}). UNRATED: this url itself is not in the record.`,
    );
    expect(payee).toMatchObject({ address: address(1), listed: 2 });
  });

  test("a day after the payment it counts, with nothing new in the record", async () => {
    live.clock.pass(2 * HOUR);
    expect(tookOf(await ask(NEVER, address(8)))).toEqual([PAYEE]);
    expect(tookOf(await ask(urlOf("late")))).toEqual([OWN]);
  });

  test("no longer once it was paid back, or the record withdrawn; a reinstatement brings it back", async () => {
    expect(tookOf(await ask(NEVER, address(3)))).toEqual([PAYEE]);
    expect(tookOf(await ask(NEVER, address(4)))).toEqual([PAYEE]);
    await turn(
      refund("fair", PAID_BACK.id),
      records.correction("ours", ago(1), { id: "mistaken", record_id: WITHDRAWN.id }),
    );
    expect(tookOf(await ask(NEVER, address(3)))).toEqual([]);
    expect(tookOf(await ask(NEVER, address(4)))).toEqual([]);
    expect(tookOf(await ask("https://other.ours.example/"))).toEqual([]);
    await turn(records.reinstated("ours", ago(0.5), "mistaken"));
    expect(tookOf(await ask(NEVER, address(4)))).toEqual([PAYEE]);
  });

  test("the flag of a card goes with the record that it stood on, before the card is made anew", async () => {
    const leaves = async () => (await at.leaves()).flatMap((leaf) => (leaf.kind === "grade" ? [leaf.card] : []));
    const twin = async () => (await leaves()).findLast((card) => card.capability_id === capOf("twin"));
    await turn();
    expect((await twin())?.flags).toContain(PAYEE);
    // Only the live tables are brought on: no run of grading is made.
    await log.append([placed(records.correction("pay.evil", ago(0.4), { id: "all", record_id: THIEF.id }))]);
    await owner.writeVolatile();
    await at.publishing().nameTables();
    await live.follower.refresh();
    live.clock.pass(61_000);
    expect((await twin())?.flags).toContain(PAYEE);
    expect(tookOf(await ask(urlOf("twin")))).toEqual([]);
    // Nor does a signed answer call the endpoint itself a thief on the word of its old card.
    const own = async () => (await leaves()).findLast((card) => card.capability_id === capOf("pay.evil"));
    expect((await own())?.flags).toContain(OWN);
    expect(tookOf(await ask(urlOf("pay.evil")))).toEqual([]);
    await turn(records.reinstated("pay.evil", ago(0.3), "all"));
    expect(tookOf(await ask(urlOf("twin")))).toEqual([PAYEE]);
    expect(tookOf(await ask(urlOf("pay.evil")))).toEqual([OWN]);
  });
});

describe("a replica without live tables tells it from the leaves", () => {
  let bare: LiveService;
  beforeAll(async () => {
    const { publicStore } = at;
    const get: typeof publicStore.get = async (key, options) =>
      key.startsWith("live/") ? null : publicStore.get(key, options);
    const record = {
      ...{ store: { get }, trust: TRUST, jwks: JWKS, logger: createLogger("silent"), metrics: createMetrics() },
      keys: { answers: SIGNERS.answers },
    };
    bare = await liveService(record as unknown as PublicRecord);
  });
  afterAll(() => bare.close());

  const askBare = async (url: string, payTo?: string): Promise<CheckAnswer> => {
    bare.clock.pass(61_000);
    const path = checkPath({ url, ...(payTo === undefined ? {} : { pay_to: payTo }) });
    return CheckAnswer.parse(await (await bare.get(path)).json());
  };

  test.each<[string, string, string | undefined, string[]]>([
    ["a url never seen, and an address that a thief names", NEVER, address(1), [PAYEE!]],
    ["the same in another case", NEVER, address(1).toLowerCase(), [PAYEE!]],
    ["a url never seen under a domain that took money", "https://new.evil.example/x", undefined, [DOMAIN!]],
    ["both", "https://new.evil.example/x", address(1), [PAYEE!, DOMAIN!]],
    ["another tenant of the platform", "https://alice.vercel.app/x", undefined, []],
    ["an address that nobody knows", NEVER, address(99), []],
    ["the endpoint itself, by its card", urlOf("pay.evil"), undefined, [OWN!]],
  ])("%s", async (_what, url, payTo, flags) => {
    const answer = await askBare(url, payTo);
    expect(tookOf(answer)).toEqual(flags);
    const warns = flags.includes(PAYEE!) || flags.includes(DOMAIN!);
    expect(answer.why.startsWith("Do not pay yet: payments to endpoints ")).toBe(warns);
  });

  test("with the head that names the thief, before any other card is made anew", async () => {
    const { said } = lost("new-thief.sibling", address(50), 30);
    await turn(...seen("new-thief.sibling", address(50)), ...seen("calm.sibling", address(51)));
    await turn(...said);
    const cards = (await at.leaves()).flatMap((leaf) => (leaf.kind === "grade" ? [leaf.card] : []));
    const calm = cards.findLast((card) => card.capability_id === capOf("calm.sibling"));
    expect(calm?.flags ?? []).not.toContain(DOMAIN);
    await bare.follower.refresh();
    expect(tookOf(await askBare(urlOf("calm.sibling")))).toEqual([DOMAIN]);
    expect(tookOf(await askBare(NEVER, address(50)))).toEqual([PAYEE]);
    // Paid back: the leaves take the row out again.
    await turn(refund("new-thief.sibling", said[0]!.eventId));
    await bare.follower.refresh();
    expect(tookOf(await askBare(NEVER, address(50)))).toEqual([]);
  });
});

describe("who acts on it", () => {
  const offer = (payTo: string) =>
    readOffer(
      {
        ...{ scheme: "exact", network: "eip155:8453", asset: USDC["eip155:8453"], amount: "20000", payTo },
        ...{ maxTimeoutSeconds: 60, extra: { name: "USD Coin", version: "2" } },
      },
      2,
    );
  const decided = (url: string, payTo: string) => {
    const asks = guard(live.client({ now: () => live.clock.now().getTime() }));
    return asks({ url, method: "GET", offers: [offer(payTo)] });
  };

  test.each([
    [NEVER, address(1), "refused"],
    [urlOf("twin"), address(1), "refused"],
    ["http://10.0.0.1/pay", address(1), "refused"],
    ["https://new.evil.example/x", address(99), "refused"],
    [NEVER, address(99), "allowed"],
    ["https://alice.vercel.app/x", address(99), "allowed"],
  ])("the guard, asked about %s and %s: %s", async (url, payTo, outcome) => {
    const decision = await decided(url, payTo);
    expect(decision.outcome).toBe(outcome);
    if (outcome === "refused") expect(decision.says).toContain("settled on the chain, brought nothing");
  });

  test("the tools of /mcp, search and the pages for people", async () => {
    const call = async (name: string, given: object) => {
      const params = { name, arguments: given, _meta: {} };
      const response = await live.get("/mcp", {
        ...{ method: "POST", body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }) },
        headers: {
          ...{ "content-type": "application/json", accept: "application/json, text/event-stream" },
          ...{ host: "touchstone.test", "mcp-protocol-version": "2025-06-18" },
        },
      });
      return response.text();
    };
    expect(await call("check_grade", { url: NEVER, pay_to: address(1) })).toContain(PAYEE);
    expect(await call("check_exposure", { dependencies: [{ url: NEVER, pay_to: address(1) }] })).toContain(PAYEE);
    expect(await call("search_capabilities", { q: "twin" })).toContain("Do not pay yet: payments to ");
    expect(await (await live.get(`/endpoint/${capOf("twin")}`)).text()).toContain(PAYEE);
    const form = new URLSearchParams({ dependencies: `${NEVER} ${address(1)}\nhttps://new.evil.example/x` });
    const page = await (await live.get("/exposure/report", { method: "POST", body: form })).text();
    expect(page).toContain("its address took money elsewhere");
    expect(page).toContain("its domain took money elsewhere");
    expect(page).toContain("settled on the chain, brought nothing");
    expect(page).toContain("1 by their address, 1 by their domain");
  });

  test("exposure says it of each line, and sums up what goes to such an address", async () => {
    const dependencies = [
      { url: NEVER, pay_to: address(1), calls_per_month: 10 },
      { url: urlOf("twin"), calls_per_month: 10 },
      { url: urlOf("api.evil"), calls_per_month: 100 },
      { url: urlOf("victim"), calls_per_month: 1000 },
    ];
    const response = await live.get("/v1/exposure", { method: "POST", body: JSON.stringify({ dependencies }) });
    const { lines, payees, totals } = ExposureReport.parse(await response.json());
    expect(lines.map(({ standing, flags }) => [standing, flags.filter((flag) => TOOK.includes(flag))])).toEqual([
      ["not_in_record", [PAYEE]],
      ["listing_mismatch", [PAYEE]],
      ["listing_mismatch", [DOMAIN]],
      ["listing_mismatch", []],
    ]);
    for (const line of lines.slice(0, 3)) expect(line.why).toContain("Do not pay yet: ");
    expect(totals.related).toEqual({
      payee_took_the_money: 2,
      domain_took_the_money: 1,
      monthly_spend: "2.200000",
    });
    expect(payees.find(({ address: one }) => one?.toLowerCase() === address(1).toLowerCase())?.related).toMatchObject({
      payee_took_the_money: 2,
    });
    expect(payees.find(({ address: one }) => one === address(21))).not.toHaveProperty("related");
  });
});
