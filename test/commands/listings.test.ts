import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { EXIT, exitCodeOf } from "../../commands/exit.ts";
import { listListings, removeListing, showListing } from "../../commands/listed.ts";
import { addListings } from "../../commands/listings.ts";
import { loadConfig } from "../../infra/config.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { type Envelope, readRecord, sealEnvelope } from "../../pipelines/record/envelope.ts";
import { capId } from "../../pipelines/record/ids.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { refuseUnnamedExit } from "../helpers/exit-codes.ts";
import { runs } from "../helpers/programs.ts";
import { entry } from "../pipelines/1-observe/world.ts";
import { delisting, listing, urlOf } from "../pipelines/2-ingest/records.ts";

/** The commands as an operator runs them, on real sockets: every name leads to one stand-in on this machine. */
const ROOT = resolve(import.meta.dirname, "../..");
const b64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64");
const terms = b64({ x402Version: 2, accepts: [entry()] });

let dir: string;
let data: string;
let server: Server;
let port: number;
const seen: { host: string; method: string; url: string; accept: string; body: string }[] = [];

const bodyOf = async (request: IncomingMessage): Promise<string> => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
};

/** What each name does. */
const SHOPS: Record<string, RequestListener> = {
  "asks.example": (_request, response) => response.writeHead(402, { "payment-required": terms }).end("{}"),
  "post-only.example": (request, response) =>
    request.method === "POST"
      ? response.writeHead(402, { "payment-required": terms }).end("{}")
      : response.writeHead(405).end(),
  "paywall.example": (_request, response) =>
    response.writeHead(402, { "content-type": "text/html" }).end("<!doctype html><p>pay"),
  "free.example": (_request, response) => response.end("{}"),
  "gone.example": (_request, response) => response.writeHead(404).end(),
  "catalogue.example": (request, response) => {
    const offset = Number(new URL(request.url!, "http://x").searchParams.get("offset"));
    const items = Array.from({ length: 130 }, (_, i) => ({ resource: at("asks.example", `/c/${i}`), accepts: [] }));
    response.end(JSON.stringify({ items: items.slice(offset, offset + 50), pagination: { total: 130 } }));
  },
  "seller.example": (request, response) =>
    request.url === "/.well-known/x402"
      ? response.end(JSON.stringify({ version: 1, resources: ["GET /own", at("other.example", "/x")] }))
      : response.writeHead(404).end(),
};

const at = (host: string, path: string): string => `http://${host}:${port}${path}`;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "listings-"));
  data = join(dir, "data");
  server = createServer(async (request, response) => {
    const host = (request.headers.host ?? "").split(":")[0]!;
    const { method = "", url = "", headers } = request;
    seen.push({ host, method, url, accept: headers.accept ?? "", body: await bodyOf(request) });
    (SHOPS[host] ?? SHOPS["gone.example"]!)(request, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  port = (server.address() as AddressInfo).port;
});
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await rm(dir, { recursive: true, force: true });
});

const settings = (): Record<string, string> => ({
  TOUCHSTONE_DATA_DIR: data,
  TOUCHSTONE_ALLOW_LOOPBACK: "true",
  TOUCHSTONE_RESOLVE_TO: "127.0.0.1",
});

/** The command in a process of its own. */
async function touchstone(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const options = { cwd: ROOT, env: { ...process.env, ...settings() } };
  const ended = await new Promise<{ code: number; stdout: string; stderr: string }>((done) => {
    execFile(process.execPath, [...runs("touchstone.ts"), ...args], options, (error, stdout, stderr) =>
      done({ code: Number(error?.code ?? 0), stdout, stderr }),
    );
  });
  refuseUnnamedExit(args, ended.code);
  return ended;
}

/** `listings add` in this process: what it prints, and the code that the command would end with. */
async function add(source: string, json = true): Promise<{ code: number; stdout: string; says: string }> {
  let stdout = "";
  const write = vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    stdout += String(text);
    return true;
  });
  try {
    await addListings(loadConfig(undefined, settings()), source, { json });
    return { code: EXIT.ok, stdout, says: "" };
  } catch (error) {
    return { code: exitCodeOf(error), stdout, says: (error as Error).message };
  } finally {
    write.mockRestore();
  }
}

/** Every record of one topic, first copies only. */
async function records(topic: "listings" | "observations.free") {
  const log = await openEmbeddedLog(join(data, "log"), { topics: TOPICS, partitions: 2 });
  try {
    const all = await Promise.all([0, 1].map((partition) => log.read(topic, partition, 0)));
    return all.flat().map((record) => {
      const read = readRecord(record);
      if (!read.ok) throw new Error(read.reason);
      return read.envelope;
    });
  } finally {
    await log.close();
  }
}

describe("touchstone observe --once --listings", () => {
  test("probes each once with the listed verb and example, records it and says what it saw", async () => {
    const file = join(dir, "market.ndjson");
    const rows = [
      { url: at("asks.example", "/sum"), method: "GET", example: { query: { a: "1", b: "2" } } },
      { url: at("post-only.example", "/run"), method: "POST", example: { body: { q: "x" } } },
      { url: at("asks.example", "/t/:id"), method: "GET" },
      { url: at("paywall.example", "/") },
      { url: at("free.example", "/") },
      { url: at("gone.example", "/x") },
      { url: at("asks.example", "/mcp"), toolName: "add" },
      { url: "monopoly://x/y" },
      { url: at("asks.example", "/ws"), method: "WEBSOCKET" },
    ];
    await writeFile(file, `${rows.map((row) => JSON.stringify(row)).join("\n")}\n{"url":\n`);
    const rejectedFile = join(dir, "rejected.ndjson");
    const run = await touchstone("observe", "--once", "--listings", file, "--rejected", rejectedFile, "--json");
    expect(run, run.stderr).toMatchObject({ code: 0 });
    const told = JSON.parse(run.stdout);
    expect(told).toMatchObject({
      form: "ndjson",
      listings: 7,
      rejected: { not_json: 1, not_http: 1, verb: 1 },
      rejected_file: rejectedFile,
      states: { asked: 3, malformed: 1, free: 1, status: 1, skipped: 1 },
    });
    const ofUrl = (url: string) => told.endpoints.find((one: { url: string }) => one.url === url);
    expect(ofUrl(at("asks.example", "/sum"))).toMatchObject({
      ...{ capability_id: capId("GET", at("asks.example", "/sum")), state: "asked", status: 402, price: "0.010000" },
      ...{ protocols: ["x402"], defects: [] },
    });
    expect(ofUrl(at("paywall.example", "/"))).toMatchObject({ state: "malformed", defects: ["no_terms"] });
    const probes = seen.map(({ host, method, url, body }) => `${method} ${host}${url} ${body}`.trim());
    expect(probes.sort()).toEqual([
      "GET asks.example/sum?a=1&b=2",
      "GET asks.example/t/1",
      "GET free.example/",
      "GET gone.example/x",
      "GET paywall.example/",
      // A method that nobody named is looked for where GET meets no 402.
      ...["OPTIONS free.example/", "OPTIONS gone.example/x", "POST free.example/ {}", "POST gone.example/x {}"],
      'POST post-only.example/run {"q":"x"}',
    ]);
    expect(new Set(seen.map(({ accept }) => accept))).toEqual(new Set(["application/json"]));
    const handshakes = (await records("observations.free")).map((one) => one.event_id);
    const told_ids = told.endpoints.flatMap((one: { record_id: string | null }) => one.record_id ?? []);
    expect(handshakes.sort()).toEqual(told_ids.sort());
    const lines = (await readFile(rejectedFile, "utf8")).trim().split("\n");
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { reason: "not_json", row: '{"url":' },
      { reason: "not_http", row: { url: "monopoly://x/y" } },
      { reason: "verb", row: { method: "WEBSOCKET" } },
    ]);
  });
});

describe("touchstone listings add", () => {
  test("a catalogue's address is paged until stable; the second time everything is known", async () => {
    const url = at("catalogue.example", "/discovery/resources?limit=5");
    const first = await add(url);
    expect(first, first.says).toMatchObject({ code: 0 });
    expect(JSON.parse(first.stdout)).toMatchObject({ form: "catalogue", rows: 130, listings: 130, same: 0 });
    const again = await add(url, false);
    expect(again).toMatchObject({ code: 0 });
    expect(again.stdout).toMatch(/130 rows, 0 new listings, 130 same as known, rejected: none\nnext: /);
  });

  test("a seller's own document: only its own urls are under its control", async () => {
    const run = await add(at("seller.example", "/.well-known/x402"));
    expect(JSON.parse(run.stdout)).toMatchObject({ form: "list", listings: 2, rejected: {} });
    const own = (await records("listings")).flatMap(({ body }) => {
      const { source, normalised_url, seller_controlled } = body as Record<string, unknown>;
      return String(source).includes("seller.example") ? [[normalised_url, seller_controlled]] : [];
    });
    expect(Object.fromEntries(own)).toEqual({
      [at("seller.example", "/own")]: true,
      [at("other.example", "/x")]: false,
    });
  });

  test("a file that holds nothing to list: its rows are kept, and the exit code says so", async () => {
    const file = join(dir, "nothing.json");
    await writeFile(file, JSON.stringify({ name: "a shop window" }));
    const run = await touchstone("listings", "add", file);
    expect(run).toMatchObject({
      code: EXIT.unreadable,
      stderr: expect.stringContaining("nothing.json contains no valid listing"),
    });
    const kept = (await readdir(join(data, "rejected"))).filter((name) => name.endsWith(".ndjson"));
    const rows = await Promise.all(kept.map((name) => readFile(join(data, "rejected", name), "utf8")));
    expect(rows.map((row) => JSON.parse(row))).toContainEqual(
      expect.objectContaining({ reason: "no_list", row: { name: "a shop window" } }),
    );
  });

  test("an address that does not answer", async () => {
    const run = await add(at("gone.example", "/list.json"));
    expect(run).toMatchObject({ code: EXIT.unreachable, says: expect.stringContaining("status 404") });
  });

  test("names are led to one address in development only", async () => {
    const config = loadConfig(undefined, { TOUCHSTONE_DATA_DIR: data, TOUCHSTONE_RESOLVE_TO: "127.0.0.1" });
    const refused = addListings(config, at("asks.example", "/"), {});
    await expect(refused).rejects.toThrow(/resolve_to: only together with allow_loopback/);
    expect(await refused.catch(exitCodeOf)).toBe(EXIT.usage);
  });
});

describe("the list", () => {
  /** What one of the words prints, in this process. */
  async function printedBy(work: () => Promise<void>): Promise<string> {
    let stdout = "";
    const write = vi.spyOn(process.stdout, "write").mockImplementation((text) => {
      stdout += String(text);
      return true;
    });
    try {
      await work();
      return stdout;
    } finally {
      write.mockRestore();
    }
  }
  const config = () => loadConfig(undefined, settings());

  test("is shown, one endpoint with all that is said of it, and loses what an operator takes off", async () => {
    const url = at("asks.example", "/listed-by-hand");
    const file = join(dir, "by-hand.txt");
    await writeFile(file, `${url}\n`);
    expect((await add(file)).code).toBe(EXIT.ok);
    const listed = async () => {
      const text = await printedBy(() => listListings(config(), { json: true, host: new URL(url).host }));
      return (JSON.parse(text) as { endpoints: { url: string; capability_id: string }[] }).endpoints;
    };
    const one = (await listed()).find((each) => each.url === url)!;
    expect(one.capability_id).toBe(capId("GET", url));
    expect(await printedBy(() => showListing(config(), url, {}))).toMatch(
      /listed +by operator:by-hand\.txt since 20\d\d-/,
    );
    const removed = await printedBy(() =>
      removeListing(config(), one.capability_id, { json: true, says: "asked for" }),
    );
    expect(JSON.parse(removed)).toEqual({ removed: [one.capability_id], sources: 1 });
    expect((await listed()).map((each) => each.url)).not.toContain(url);
    expect(await printedBy(() => showListing(config(), url, {}))).toContain("delisted by operator:by-hand.txt");
    // Twice says that there is nothing to take off.
    expect(await printedBy(() => removeListing(config(), url, { says: "again" }))).toContain("nothing was changed");
  });

  test("a tool of an MCP server is taken off alone, by its name", async () => {
    const url = at("asks.example", "/tools");
    const file = join(dir, "tools.ndjson");
    await writeFile(file, ["sum", "mean"].map((toolName) => JSON.stringify({ url, toolName })).join("\n"));
    expect((await add(file)).code).toBe(EXIT.ok);
    const unknown = removeListing(config(), `${url}#max`, { says: "asked for" });
    expect(await unknown.then(() => 0, exitCodeOf)).toBe(EXIT.unknown);
    expect(await printedBy(() => showListing(config(), `${url}#mean`, {}))).not.toContain("#sum");
    const removed = await printedBy(() => removeListing(config(), `${url}#sum`, { json: true, says: "asked for" }));
    expect(JSON.parse(removed)).toEqual({ removed: [capId("POST", url, "sum")], sources: 1 });
    const shown = await printedBy(() => showListing(config(), url, {}));
    expect([shown.match(/ listed +by/g)?.length, shown.match(/ delisted by/g)?.length]).toEqual([1, 1]);
  });

  test("a listing whose id was used on an earlier day is in the list, and can be taken off", async () => {
    const name = "relisted";
    const [day1, day3, day4] = ["2026-11-10", "2026-11-12", "2026-11-13"].map((day) => `${day}T10:00:00.000Z`);
    const first = listing(name, day1!);
    const envelope = JSON.parse(Buffer.from(first.value).toString()) as Envelope<"listing">;
    const again = sealEnvelope({ ...envelope, observed_at: day4! }, 2);
    const log = await openEmbeddedLog(join(data, "log"), { topics: TOPICS, partitions: 2 });
    await log.append([first, delisting(name, day3!), again, again]);
    await log.close();
    const host = new URL(urlOf(name)).host;
    const listed = await printedBy(() => listListings(config(), { json: true, host }));
    const sources = [{ state: "listed", at: day4 }];
    expect(JSON.parse(listed)).toMatchObject({ endpoints: [{ url: urlOf(name), sources }] });
    const removed = await printedBy(() => removeListing(config(), urlOf(name), { json: true, says: "asked for" }));
    expect(JSON.parse(removed)).toMatchObject({ sources: 1 });
  });

  test("of an endpoint that its seller listed, its own 402 lists nothing", async () => {
    const name = "left";
    const [day1, day2] = ["2026-11-10T10:00:00.000Z", "2026-11-11T10:00:00.000Z"];
    const log = await openEmbeddedLog(join(data, "log"), { topics: TOPICS, partitions: 2 });
    const of402 = listing(name, day1, { source: "402" });
    await log.append([listing(name, day1, { seller_controlled: true }), of402, delisting(name, day2)]);
    await log.close();
    const host = new URL(urlOf(name)).host;
    const listed = await printedBy(() => listListings(config(), { json: true, host }));
    expect(JSON.parse(listed)).toMatchObject({ endpoints: [] });
  });

  test("an endpoint that was never listed is unknown, and a folder that is not there stays so", async () => {
    const unknown = showListing(config(), "https://nobody.example/x", {});
    expect(await unknown.then(() => 0, exitCodeOf)).toBe(EXIT.unknown);
    const nowhere = join(dir, "nowhere");
    const lost = listListings(loadConfig(undefined, { TOUCHSTONE_DATA_DIR: nowhere }), {});
    expect(await lost.then(() => 0, exitCodeOf)).toBe(EXIT.unreadable);
    expect(existsSync(nowhere)).toBe(false);
  });
});
