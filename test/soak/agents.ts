import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { bucketOf, type Latencies } from "./measures.ts";

/**
 * Agents that use a service, in a process of their own, over connections that they keep. First it measures how many
 * requests a second the service answers when sixteen clients ask without a pause; then it sends a third of that, evenly. At
 * the end of each window it prints a line `{"window", "operations": {name: {"buckets": {bucket: n}, "statuses": {..}}}}`; the
 * first line is `{"limit", "rate"}`. It ends when its stdin does.
 *
 * Usage: agents.ts <service> <file of urls, one a line> <ms of a window> [requests a second, instead of a third]
 */
const [service = "", urlsFile = "", windowMs, given] = process.argv.slice(2);
const base = new URL(service);
const urls = readFileSync(urlsFile, "utf8").trim().split("\n");

interface Asking {
  name: string;
  /** Of a hundred requests. */
  share: number;
  path(n: number): string;
  body?(n: number): unknown;
}

const urlOf = (n: number): string => urls[n % urls.length]!;
const ids: string[] = [];
let cursor = "";

const OPERATIONS: readonly Asking[] = [
  { name: "check", share: 78, path: (n) => `/v1/check?${new URLSearchParams({ url: urlOf(n) })}` },
  { name: "check of an unknown url", share: 1, path: (n) => `/v1/check?url=http%3A%2F%2F127.31.0.1%3A9%2F${n % 500}` },
  {
    name: "trust",
    share: 6,
    path: (n) => (ids.length > 0 ? `/v1/trust/${ids[n % ids.length]}` : "/v1/archive"),
  },
  {
    name: "exposure",
    share: 5,
    path: () => "/v1/exposure",
    body: (n) => ({ dependencies: Array.from({ length: 20 }, (_, i) => urlOf(n + i)) }),
  },
  { name: "feed", share: 4, path: () => `/v1/trust/feed${cursor && `?cursor=${cursor}`}` },
  { name: "search", share: 3, path: (n) => `/v1/search?q=${["sum", "hash", "block", "whole+numbers"][n % 4]}` },
  { name: "checkpoint", share: 2, path: () => "/checkpoint" },
  { name: "page", share: 1, path: () => "/" },
];
const DECK = OPERATIONS.flatMap((one) => Array<Asking>(one.share).fill(one));

let kept = new Map<string, Latencies>();
let open = 0;
/** Requests that are under way at most: more than that are counted as not sent. */
const MOST_OPEN = 400;
/** A connection that is idle for two seconds is closed here, before the service closes it while a request is on its way. */
const agent = new Agent({ keepAlive: true, maxSockets: 100, maxFreeSockets: 100, timeout: 2_000 });

function note(name: string, status: string, ms: number): void {
  const of = kept.get(name) ?? { buckets: {}, statuses: {} };
  kept.set(name, of);
  of.statuses[status] = (of.statuses[status] ?? 0) + 1;
  if (!/^[23]/.test(status)) return;
  const bucket = bucketOf(ms);
  of.buckets[bucket] = (of.buckets[bucket] ?? 0) + 1;
}

/** Keeps the ids of endpoints that later requests name. */
function learnId(text: string): void {
  const id = /"capabilityId":"(cap_[^"]+)"/.exec(text)?.[1];
  if (id) ids.push(id);
}

function send(operation: Asking, n: number): Promise<void> {
  const began = performance.now();
  const body = operation.body ? JSON.stringify(operation.body(n)) : undefined;
  const method = body === undefined ? "GET" : "POST";
  const headers =
    body === undefined ? {} : { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
  open++;
  return new Promise((done) => {
    const end = (status: string): void => {
      open--;
      note(operation.name, status, performance.now() - began);
      done();
    };
    const path = operation.path(n);
    const sent = request({ agent, method, headers, path, host: base.hostname, port: base.port }, (answer) => {
      let text = "";
      const learns = operation.name === "check" && ids.length < 500;
      answer.on("data", (chunk: Buffer) => {
        if (learns) text += chunk.toString("latin1");
      });
      answer.on("close", () => {
        if (learns) learnId(text);
        // A reader of the feed goes on where the last answer ended.
        if (operation.name === "feed") cursor = /[?&]cursor=([^>&]+)/.exec(String(answer.headers.link))?.[1] ?? cursor;
        end(answer.complete ? String(answer.statusCode) : "cut");
      });
    });
    sent.setTimeout(30_000, () => sent.destroy(new Error("timeout")));
    sent.on("error", (error: NodeJS.ErrnoException) => end(error.code ?? error.message));
    sent.end(body);
  });
}

/** Answers a second with sixteen clients that do not pause. */
async function limitOf(seconds: number): Promise<number> {
  const until = performance.now() + seconds * 1_000;
  let n = 0;
  const client = async (): Promise<void> => {
    while (performance.now() < until) await send(DECK[(37 * n) % DECK.length]!, n++);
  };
  await Promise.all(Array.from({ length: 16 }, client));
  return n / seconds;
}

process.stdin.resume().once("end", () => process.exit(0));
await limitOf(3);
const limit = await limitOf(8);
const rate = given === undefined ? limit / 3 : Number(given);
process.stdout.write(`${JSON.stringify({ limit: Math.round(limit), rate: Math.round(rate) })}\n`);
kept = new Map();
setInterval(() => {
  process.stdout.write(`${JSON.stringify({ operations: Object.fromEntries(kept) })}\n`);
  kept = new Map();
}, Number(windowMs));
const began = performance.now();
for (let n = 0; ; ) {
  const due = ((performance.now() - began) / 1_000) * rate;
  for (; n < due; n++) {
    const operation = DECK[(37 * n) % DECK.length]!;
    if (open < MOST_OPEN) void send(operation, n);
    else note(operation.name, "not sent", 0);
  }
  await sleep(5);
}
