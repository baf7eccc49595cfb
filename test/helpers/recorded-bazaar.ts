import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { encodePaymentResponseHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequirements, SettleResponse } from "@x402/core/types";
import { safeBase64Decode } from "@x402/core/utils";
import { knownUsdc } from "../../infra/rails/charge.ts";
import type { Facilitator } from "../../infra/rails/facilitator.ts";
import { parseUrl } from "../../infra/url.ts";
import { wildLines } from "./outside.ts";

/**
 * The recorded catalogue of real sellers, served as a Bazaar with pages, and a stand-in for each of its hosts that asks
 * what was recorded of it and takes the money on a local chain. All of them are one server on this machine, told apart
 * by the Host header; every name has to lead there.
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
/** A path as it is listed, templates included, what is asked of whoever comes, and what is answered once it is paid. */
interface Path {
  listed: string;
  method: unknown;
  asks: (url: string) => Asks;
  accepts: readonly Json[];
  answer: string;
}

/** A payment that a stand-in took, as it knows it. */
export interface Taken {
  host: string;
  network: string;
  payTo: string;
  amount: bigint;
  tx: string;
}

export interface RecordedBazaar {
  /** Of the catalogue. */
  url: string;
  /** An address that is up. */
  control: string;
  served: { sites: number; sellers: number; rows: number };
  /** How often each status was answered. */
  said: Readonly<Record<number, number>>;
  /** What was asked of whoever came without a payment, and at which url. */
  sent: readonly (Asks & { url: string })[];
  taken: readonly Taken[];
  /** Payments that a stand-in did not take, and why. */
  refused: readonly string[];
  close(): Promise<void>;
}

type Facilitators = Readonly<Record<string, Pick<Facilitator, "settle">>>;

const MARKET = "bazaar.example";
const CONTROL = "control.example";
/** Where a payment comes, and where its receipt goes: the second version of the protocol and the first. */
const RECEIPTS = [
  ["payment-signature", "payment-response"],
  ["x-payment", "x-payment-response"],
] as const;
const PAGE = 75;
const CAIP2: Readonly<Record<string, string>> = { base: "eip155:8453", polygon: "eip155:137" };

const placeOf = (row: Row): URL | null => {
  const named = row.resource ?? row.url;
  const text = typeof named === "string" ? named : (named as Json | undefined)?.url;
  return typeof text === "string" && /^https?:/.test(text) ? parseUrl(text) : null;
};

/** The tool that made the large dump did not copy `amount`: that says nothing of a seller, so it asks for something. */
const withAmount = (entry: Json): Json =>
  entry.amount === undefined ? { ...entry, amount: entry.maxAmountRequired ?? "1000" } : entry;

/** What is asked, in every version: entries with an amount where the version has one. */
const entriesOf = (row: Row): Json[] => (row.accepts ?? []).map(row.x402Version === 2 ? withAmount : (one) => one);

/** As sellers' packages do it, what is asked names the url that was called. */
function asksOf(row: Row, url: string): Asks {
  const accepts = entriesOf(row).map((one) => (one.resource === undefined ? one : { ...one, resource: url }));
  if (row.x402Version !== 2) return { headers: {}, body: JSON.stringify({ x402Version: 1, error: "", accepts }) };
  const terms = { x402Version: 2, resource: { url }, accepts };
  return { headers: { "payment-required": Buffer.from(JSON.stringify(terms)).toString("base64") }, body: "{}" };
}

const inside = (from: unknown, ...path: string[]): unknown =>
  path.reduce<unknown>((at, name) => (at as Json | undefined)?.[name], from);

/** The verb that a row names, in the places where rows of the dumps have it. */
const methodOf = (row: Row): unknown =>
  inside(row.accepts?.[0], "outputSchema", "input", "method") ??
  inside(row, "extensions", "bazaar", "info", "input", "method");

const SAMPLES: Readonly<Record<string, unknown>> = {
  string: "a text",
  number: 1.5,
  integer: 1,
  boolean: true,
  array: [],
};

/** An answer as a row describes its own: its example, or something that its schema allows. */
function sampleOf(schema: unknown): unknown {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return { ok: true };
  const { example, properties, type, enum: allowed } = schema as Json;
  if (example !== undefined) return example;
  if (Array.isArray(allowed)) return allowed[0];
  if (typeof properties === "object" && properties !== null)
    return Object.fromEntries(Object.entries(properties).map(([name, of]) => [name, sampleOf(of)]));
  return typeof type === "string" && Object.hasOwn(SAMPLES, type) ? SAMPLES[type] : { ok: true };
}

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
    const accepts = row.accepts?.map((one) => ({ ...one, resource: url }));
    const at = { ...row, resource: url, url: undefined, accepts };
    catalogue.push(at);
    const site = siteOf(place.hostname);
    site.rows.push(row.x402Version === 2 ? { ...at, accepts: at.accepts?.map(withAmount) } : at);
    site.paths.push({
      ...{ listed: `${place.pathname}${place.search}`, method: methodOf(row), accepts: entriesOf(row) },
      asks: (asked) => asksOf(row, asked),
      answer: JSON.stringify(sampleOf(inside(row.accepts?.[0], "outputSchema", "output"))),
    });
  }
  for (const { id, header } of challenges) {
    // Where somebody wrote an ellipsis in its place it was no header.
    if (!/^[\x20-\x7e]+$/.test(header)) continue;
    const host = `${id}.mpp.example`;
    catalogue.push({ resource: `http://${host}:${port}/call`, type: "http", accepts: [] });
    const asks = () => ({ headers: { "www-authenticate": header }, body: "{}" });
    siteOf(host).paths.push({ listed: "/call", method: undefined, asks, accepts: [], answer: "{}" });
  }
  return { sites, catalogue };
}

/** What a payment was signed for; null where it is no signed authorization. */
function readPayment(header: string) {
  const { payload } = JSON.parse(safeBase64Decode(header)) as { payload: PaymentPayload["payload"] };
  const { to, value } = (payload.authorization ?? {}) as Record<string, string | undefined>;
  return to && value ? { payload, payTo: to.toLowerCase(), amount: BigInt(value) } : null;
}

/** The entry that a payment is for, as a facilitator is told of it; its token's domain is the token's own. */
function requirementOf(accepts: readonly Json[], paid: { payTo: string; amount: bigint }): PaymentRequirements | null {
  for (const entry of accepts) {
    const network = CAIP2[String(entry.network)] ?? String(entry.network);
    const usdc = knownUsdc(network);
    const asset = String(entry.asset);
    if (entry.scheme !== "exact" || usdc?.address.toLowerCase() !== asset.toLowerCase()) continue;
    const amount = String(entry.amount ?? entry.maxAmountRequired);
    if (String(entry.payTo).toLowerCase() !== paid.payTo || amount !== paid.amount.toString()) continue;
    const extra = { name: usdc.name, version: usdc.version };
    const rest = { amount, asset, payTo: String(entry.payTo), maxTimeoutSeconds: 60, extra };
    return { scheme: "exact", network: network as PaymentRequirements["network"], ...rest };
  }
  return null;
}

/** The stand-ins, and what they saw. */
class StandIns {
  readonly said: Record<number, number> = {};
  readonly sent: (Asks & { url: string })[] = [];
  readonly taken: Taken[] = [];
  readonly refused: string[] = [];
  /** Payments that were taken: shown once more they are refused, as by any seller that settles each time. */
  readonly #had = new Set<string>();

  constructor(
    private readonly at: ReturnType<typeof sitesOf>,
    private readonly facilitators: Facilitators,
  ) {}

  answer(request: IncomingMessage, response: ServerResponse): void {
    const asked = new URL(request.url!, `http://${request.headers.host}`);
    if (asked.hostname === MARKET) this.#page(asked, response);
    else if (asked.hostname === CONTROL) this.#end(response, 200, {}, "{}");
    else
      this.#answerAs(this.at.sites.get(asked.hostname), request, asked, response).catch((error: Error) => {
        this.refused.push(`${asked.host}: ${error.message}`);
        this.#end(response, 500, {}, "{}");
      });
  }

  #end(response: ServerResponse, status: number, headers: Record<string, string>, body: string): void {
    this.said[status] = (this.said[status] ?? 0) + 1;
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(body);
  }

  #page(asked: URL, response: ServerResponse): void {
    const { catalogue } = this.at;
    const [offset, limit] = [Number(asked.searchParams.get("offset")), Number(asked.searchParams.get("limit"))];
    // Busy once, in the middle of the first pass.
    const busy = offset === 4 * PAGE && (this.said[429] ?? 0) === 0;
    const items = catalogue.slice(offset, offset + Math.min(limit, PAGE));
    const pagination = { offset, limit: PAGE, total: catalogue.length };
    this.#end(response, busy ? 429 : 200, busy ? { "retry-after": "2" } : {}, JSON.stringify({ items, pagination }));
  }

  async #answerAs(site: Site | undefined, request: IncomingMessage, asked: URL, response: ServerResponse) {
    const path = site && pathOf(site, request.method!, asked);
    if (asked.pathname === "/.well-known/x402" && site && site.rows.length > 0)
      return this.#end(response, 200, {}, JSON.stringify({ version: 1, items: site.rows }));
    if (!path) return this.#end(response, 404, {}, "{}");
    for (const [name, receipt] of RECEIPTS) {
      const header = request.headers[name];
      const done = typeof header === "string" ? await this.#settled(path, header, asked.host) : null;
      if (done) return this.#end(response, 200, { [receipt]: encodePaymentResponseHeader(done) }, path.answer);
    }
    const { headers, body } = path.asks(asked.href);
    if (RECEIPTS.every(([name]) => request.headers[name] === undefined))
      this.sent.push({ url: asked.href, headers, body });
    return this.#end(response, 402, headers, body);
  }

  async #settled({ accepts }: Path, header: string, host: string): Promise<SettleResponse | null> {
    const paid = readPayment(header);
    const wanted = paid && requirementOf(accepts, paid);
    const facilitator = wanted && this.facilitators[wanted.network];
    if (!facilitator) {
      this.refused.push(`${host}: not what was asked`);
      return null;
    }
    const done = await facilitator.settle({ x402Version: 2, accepted: wanted, payload: paid.payload }, wanted);
    if (done.success) {
      const { payTo, amount } = paid;
      this.taken.push({ host, network: wanted.network, payTo, amount, tx: done.transaction });
      this.#had.add(header);
      return done;
    }
    if (!this.#had.has(header)) this.refused.push(`${host}: ${done.errorReason}`);
    return null;
  }
}

/**
 * Start it. @param facilitators by CAIP-2, who settles there
 * @returns null where the corpus is not on this machine, which was said loudly
 */
export async function openBazaar(facilitators: Facilitators): Promise<RecordedBazaar | null> {
  const rows = wildLines("bazaar-rows.ndjson") as { row: Row }[] | null;
  const challenges = wildLines("mpp-mended.ndjson") as { id: string; header: string }[] | null;
  if (rows === null || challenges === null) return null;
  const server = createServer((request, response) => standIns.answer(request, response)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const listed = rows.map(({ row }) => row);
  const at = sitesOf(listed, challenges, port);
  const standIns = new StandIns(at, facilitators);
  const { said, sent, taken, refused } = standIns;
  const sellers = [...at.sites.values()].filter((site) => site.rows.length > 0).length;
  return {
    ...{ said, sent, taken, refused, served: { sites: at.sites.size, sellers, rows: at.catalogue.length } },
    ...{ url: `http://${MARKET}:${port}`, control: `http://${CONTROL}:${port}/ok` },
    async close() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}
