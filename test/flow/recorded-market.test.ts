import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { resolveTo } from "../../infra/egress/address.ts";
import { createEgress } from "../../infra/egress/create.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { ownLoop } from "../../infra/loop-watch.ts";
import { parseUrl } from "../../infra/url.ts";
import type { IntakeReport } from "../../pipelines/1-observe/observer.ts";
import { planDay } from "../../pipelines/1-observe/plan/plan.ts";
import { POOLS, placesFor } from "../../pipelines/1-observe/queue.ts";
import type { BodyOf } from "../../pipelines/record/bodies.ts";
import { wildLines } from "../helpers/outside.ts";
import { END, firstProbeOnly, START, salt } from "../pipelines/1-observe/day.ts";
import { readTerms } from "../pipelines/1-observe/readings.ts";
import { CAPS, DAY, type FakeWorld, fakeWorld } from "../pipelines/1-observe/world.ts";

/**
 * The recorded catalogue of real sellers, served as a Bazaar with pages, and a stand-in for each of its hosts that asks what
 * was recorded of it. All of them are one server on this machine, told apart by the Host header; every name leads there.
 */

type Json = Record<string, unknown>;
interface Row extends Json {
  accepts?: Json[];
  x402Version?: number;
}

/** A 402 as it goes over the wire. */
interface Asks {
  headers: Record<string, string>;
  body: string;
}
interface Site {
  rows: Row[];
  paths: Path[];
}
/** A path as it is listed, templates included, and what whoever comes there is asked for. */
interface Path {
  listed: string;
  method: unknown;
  asks: (url: string) => Asks;
}

const MARKET = "bazaar.example";
const PAGE = 75;
/** Endpoints of one host that are probed: some list hundreds that differ in one word. */
const A_HOST = 2;

const placeOf = (row: Row): URL | null => {
  const named = row.resource ?? row.url;
  const text = typeof named === "string" ? named : (named as Json | undefined)?.url;
  return typeof text === "string" && /^https?:/.test(text) ? parseUrl(text) : null;
};

/** The tool that made the large dump did not copy `amount`: that says nothing of a seller, so it asks for something. */
const withAmount = (entry: Json): Json =>
  entry.amount === undefined ? { ...entry, amount: entry.maxAmountRequired ?? "1000" } : entry;

/** As sellers' packages do it, what is asked names the url that was called. */
function asksOf(row: Row, url: string): Asks {
  const here = (one: Json): Json => (one.resource === undefined ? one : { ...one, resource: url });
  const accepts = (row.accepts ?? []).map(here);
  if (row.x402Version !== 2) return { headers: {}, body: JSON.stringify({ x402Version: 1, error: "", accepts }) };
  const terms = { x402Version: 2, resource: { url }, accepts: accepts.map(withAmount) };
  return { headers: { "payment-required": Buffer.from(JSON.stringify(terms)).toString("base64") }, body: "{}" };
}

const inside = (from: unknown, ...path: string[]): unknown =>
  path.reduce<unknown>((at, name) => (at as Json | undefined)?.[name], from);

/** The verb that a row names, in the places where rows of the dumps have it. */
const methodOf = (row: Row): unknown =>
  inside(row.accepts?.[0], "outputSchema", "input", "method") ??
  inside(row, "extensions", "bazaar", "info", "input", "method");

/** Is it the listed path, its templates filled? */
function meets(listed: string, path: string): boolean {
  const [theirs, ours] = [listed.split("/"), path.split("/")];
  const isRest = theirs.at(-1)?.includes("*") ?? false;
  if (isRest ? ours.length < theirs.length : ours.length !== theirs.length) return false;
  return theirs.every((part, n) => /^:|[{*]|%7B/i.test(part) || part === ours[n]);
}

/** The path that a request means: its own verb before any other, a literal one before a template. */
function pathOf({ paths }: Site, method: string, { pathname, search }: URL): Path | undefined {
  const ranked = (one: Path): number =>
    (one.listed === `${pathname}${search}` ? 4 : 0) +
    (one.listed.split("?")[0] === pathname ? 2 : 0) +
    (one.method === method ? 1 : 0);
  const fitting = paths.filter(({ listed }) => meets(listed.split("?")[0]!, pathname));
  return fitting.sort((a, b) => ranked(b) - ranked(a))[0];
}

/** Everything that is served, on the port that is known by then. */
function sitesOf(rows: readonly Row[], challenges: readonly { id: string; header: string }[], port: number) {
  const sites = new Map<string, Site>();
  const catalogue: Row[] = [];
  const siteOf = (host: string): Site => {
    const site = sites.get(host) ?? { rows: [], paths: [] };
    sites.set(host, site);
    return site;
  };
  for (const row of rows) {
    const place = placeOf(row);
    if (place === null) {
      catalogue.push(row);
      continue;
    }
    const url = `http://${place.hostname}:${port}${place.pathname}${place.search}`;
    const site = siteOf(place.hostname);
    const at = {
      ...row,
      resource: url,
      url: undefined,
      accepts: row.accepts?.map((one) => ({ ...one, resource: url })),
    };
    catalogue.push(at);
    site.rows.push(row.x402Version === 2 ? { ...at, accepts: at.accepts?.map(withAmount) } : at);
    const listed = `${place.pathname}${place.search}`;
    site.paths.push({ listed, method: methodOf(row), asks: (asked) => asksOf(row, asked) });
  }
  for (const { id, header } of challenges) {
    // Where somebody wrote an ellipsis in its place it was no header.
    if (!/^[\x20-\x7e]+$/.test(header)) continue;
    const host = `${id}.mpp.example`;
    const url = `http://${host}:${port}/call`;
    catalogue.push({ resource: url, type: "http", accepts: [] });
    const asks = () => ({ headers: { "www-authenticate": header }, body: "{}" });
    siteOf(host).paths.push({ listed: "/call", method: undefined, asks });
  }
  return { sites, catalogue };
}

let world: FakeWorld;
let egress: Egress;
let close: () => Promise<void> = async () => undefined;
let report: IntakeReport;
let served: ReturnType<typeof sitesOf>;
/** What the server was asked, by what it said. */
const said: Record<number, number> = {};
const sent: (Asks & { url: string })[] = [];
const tookMs = { intake: 0, all: 0 };

function pageOf(asked: URL, response: ServerResponse): void {
  const [offset, limit] = [Number(asked.searchParams.get("offset")), Number(asked.searchParams.get("limit"))];
  // Busy once, in the middle of the first pass.
  const busy = offset === 4 * PAGE && (said[429] ?? 0) === 0;
  const items = served.catalogue.slice(offset, offset + Math.min(limit, PAGE));
  const pagination = { offset, limit: PAGE, total: served.catalogue.length };
  answerWith(response, busy ? 429 : 200, busy ? { "retry-after": "2" } : {}, JSON.stringify({ items, pagination }));
}

function answerWith(response: ServerResponse, status: number, headers: Record<string, string>, body: string): void {
  said[status] = (said[status] ?? 0) + 1;
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(body);
}

function answerTo(request: IncomingMessage, response: ServerResponse): void {
  const asked = new URL(request.url!, `http://${request.headers.host}`);
  if (asked.hostname === MARKET) pageOf(asked, response);
  else if (asked.hostname === "control.example") answerWith(response, 200, {}, "{}");
  else answerAs(served.sites.get(asked.hostname), request.method!, asked, response);
}

function answerAs(site: Site | undefined, method: string, asked: URL, response: ServerResponse): void {
  const path = site && pathOf(site, method, asked);
  if (asked.pathname === "/.well-known/x402" && site && site.rows.length > 0) {
    answerWith(response, 200, {}, JSON.stringify({ version: 1, items: site.rows }));
  } else if (!path) {
    answerWith(response, 404, {}, "{}");
  } else {
    const { headers, body } = path.asks(asked.href);
    sent.push({ url: asked.href, headers, body });
    answerWith(response, 402, headers, body);
  }
}

const rows = wildLines("bazaar-rows.ndjson") as { row: Row }[] | null;
const challenges = wildLines("mpp-mended.ndjson") as { id: string; header: string }[] | null;

beforeAll(async () => {
  if (rows === null || challenges === null) return;
  const server = createServer(answerTo).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  served = sitesOf(
    rows.map(({ row }) => row),
    challenges,
    port,
  );
  egress = createEgress({
    ...{ allowLoopback: true, resolve: resolveTo("127.0.0.1"), userAgent: "touchstone-test" },
    ...{ pools: POOLS, maxConcurrent: placesFor(16) },
  });
  close = async () => {
    await egress.close();
    server.closeAllConnections();
    server.close();
  };
  world = fakeWorld();
  // No source has said anything before; the memory of the fake world would read its whole log to know that, for each.
  world.memory.listingsOf = async () => [];
  const parts = { egress, loop: ownLoop };
  const observer = world.restart({ controlUrls: [`http://control.example:${port}/ok`], hostsAtOnce: 16 }, parts);
  const began = performance.now();
  report = await observer.intakeCatalogue(`http://${MARKET}:${port}`);
  tookMs.intake = Math.round(performance.now() - began);
  const listed = await world.memory.listed();
  const plan = await planDay({ day: DAY, salt, listed, caps: CAPS, now: START });
  const met = new Map<string, number>();
  const lines = firstProbeOnly(plan).lines.filter(({ host }) => {
    met.set(host, (met.get(host) ?? 0) + 1);
    return met.get(host)! <= A_HOST;
  });
  await observer.observeSpan({ ...plan, lines }, START, END);
  tookMs.all = Math.round(performance.now() - began);
}, 180_000);
afterAll(() => close());

/** The loader has said so loudly. */
const isAbsent = rows === null || challenges === null;
const probes = (): BodyOf<"handshake">[] => world.log.bodies("handshake");
const counted = (words: readonly string[]): Record<string, number> => {
  const sum: Record<string, number> = {};
  for (const word of [...words].sort()) sum[word] = (sum[word] ?? 0) + 1;
  return sum;
};

describe("the recorded catalogue over HTTP", () => {
  test("is read whole, page by page, through a 429", () => {
    if (isAbsent) return;
    const sellers = [...served.sites.values()].filter((site) => site.rows.length > 0).length;
    console.info(
      `recorded market: ${served.sites.size} stand-in sellers, ${served.catalogue.length} rows, ${probes().length} ` +
        `probes in ${tookMs.all} ms, of which the intake took ${tookMs.intake}; ${JSON.stringify(said)}`,
    );
    expect({ sites: served.sites.size, sellers, rows: served.catalogue.length }).toEqual(COUNTS.served);
    expect(said[429]).toBe(1);
    expect(report.says).toBeUndefined();
    expect(counted(report.rejected.map(({ reason }) => reason))).toEqual(COUNTS.rejected);
  });

  test("every stand-in that asks is live, is read with its protocol, and is accused of nothing", () => {
    if (isAbsent) return;
    const all = probes();
    // What else there is are rows without entries, or none with an amount: nobody's word can be read there.
    expect([...new Set(all.map(({ state }) => state))].sort()).toEqual(["asked", "malformed"]);
    expect(all.filter(({ state }) => state === "malformed").length).toBeLessThan(all.length * 0.08);
    const protocols = all.flatMap(({ terms }) => (terms ? [terms.protocols.join("+") || "none"] : []));
    expect(counted(protocols)).toEqual({ mpp: COUNTS.mpp, x402: all.length - COUNTS.mpp });
    const accused = all.filter(({ live, honest, state, wall, fault }) => {
      const asks = state === "asked";
      return wall || fault !== null || (asks && (!live || honest === false));
    });
    expect(accused.map(({ terms, differs, says }) => ({ offers: terms?.offers, differs, says }))).toEqual([]);
  });

  test("defects of a 402 that came over the wire are those of the same bytes read at once", () => {
    if (isAbsent) return;
    const codes = (defects: readonly { defect: string }[]) => defects.map(({ defect }) => defect);
    const direct = sent.map(({ url, headers, body }) =>
      codes(readTerms({ headers, body: Buffer.from(body) }, world.rail, url).terms.defects),
    );
    const found = probes().map(({ terms }) => codes(terms?.defects ?? []));
    const asTexts = (all: string[][]): string[] => all.map((one) => one.join()).sort();
    expect(asTexts(found)).toEqual(asTexts(direct));
    const sum = counted(found.flat());
    console.info(`recorded market: defects ${JSON.stringify(sum)}`);
    expect(Object.keys(sum)).toEqual(expect.arrayContaining(COUNTS.defects));
    // Which of a large host's endpoints are listed is a matter of who was read first; what cannot be is that one is new.
    expect(COUNTS.defects).toEqual(expect.arrayContaining(Object.keys(sum)));
  });
});

/** Of the half of the corpus that stands beside the tree. */
const COUNTS = {
  served: { sites: 249, sellers: 234, rows: 1_313 },
  // One host lists 434 endpoints, and in its own document again.
  rejected: { domain_full: 468, not_http: 7 },
  mpp: 15,
  defects: [
    ...["bad_asset", "bad_entry", "bad_pay_to", "bad_timeout", "malformed_terms", "missing_amount", "missing_domain"],
    ...["network_form", "no_payable_entry", "no_terms"],
  ],
};
