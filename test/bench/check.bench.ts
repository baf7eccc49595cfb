/**
 * Checks a second of one process over real sockets, with the clients in a process of their own: hits (answers of the
 * minute) beside a bare node:http server that sends the same bytes and headers, and misses (made and signed anew) beside
 * the signing rate of node:crypto. In turns, since a machine's minutes differ. Run: npx tsx test/bench/check.bench.ts [seconds]
 */

import { fork } from "node:child_process";
import { generateKeyPairSync, sign } from "node:crypto";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { fileURLToPath } from "node:url";
import { createService, type ServingDeps } from "../../serving/context.ts";
import { serve } from "../../serving/main.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver } from "../helpers/serving.ts";

const ENDPOINTS = 2000;
const CONNECTIONS = 32;
/** Requests of one connection under way at once: clients of HTTP/1.1 send the next when they have the answer. */
const PIPELINE = 1;
const TURNS = 3;

interface Load {
  port: number;
  paths: string[];
  seconds: number;
}

const specOf = (i: number) => ({ url: `https://seller${i % 500}.example/api/v1/resource/${i}` });

/** Sends the paths over pipelined connections and counts whole answers with status 200. */
function load({ port, paths, seconds }: Load): void {
  let answers = 0;
  let others = 0;
  let at = 0;
  const until = performance.now() + seconds * 1000;
  const ask = (): string => `GET ${paths[at++ % paths.length]} HTTP/1.1\r\nhost: bench\r\n\r\n`;
  for (let i = 0; i < CONNECTIONS; i++) {
    const socket = connect(port, "127.0.0.1");
    socket.setNoDelay(true);
    socket.on("error", () => process.exit(1));
    socket.write(Array.from({ length: PIPELINE }, ask).join(""));
    socket.on("data", (chunk) => {
      const text = chunk.toString("latin1");
      const seen = text.split("HTTP/1.1 ").length - 1;
      const good = text.split("HTTP/1.1 200").length - 1;
      answers += good;
      others += seen - good;
      if (performance.now() < until) socket.write(Array.from({ length: seen }, ask).join(""));
      else socket.destroy();
    });
  }
  setTimeout(() => process.send!({ answers, others }, () => process.exit(0)), seconds * 1000);
}

/** @returns answers a second */
async function measure(name: string, port: number, paths: string[], seconds: number): Promise<number> {
  const client = fork(fileURLToPath(import.meta.url), ["client"], { execArgv: ["--import", "tsx"] });
  const before = process.cpuUsage();
  client.send({ port, paths, seconds } satisfies Load);
  const { answers, others } = await new Promise<{ answers: number; others: number }>((resolve, reject) => {
    client.once("message", (message) => resolve(message as { answers: number; others: number }));
    client.once("error", reject);
  });
  const { user, system } = process.cpuUsage(before);
  const cpu = ((user + system) / (answers + others)).toFixed(1);
  process.stdout.write(
    `${name}: ${Math.round(answers / seconds)}/s, ${cpu} us of CPU each${others ? ` (${others} were no 200)` : ""}\n`,
  );
  return answers / seconds;
}

/** A server that does nothing but send what the service sent. */
async function bareServer(url: string): Promise<{ port: number; close(): Promise<void> }> {
  const response = await fetch(url);
  const body = Buffer.from(await response.arrayBuffer());
  const headers = Object.fromEntries([...response.headers].filter(([name]) => !HOP.has(name)));
  const server = createServer((_request, answer) => answer.writeHead(200, headers).end(body));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const close = () =>
    new Promise<void>((done) => {
      server.close(() => done());
      server.closeAllConnections();
    });
  return { port: (server.address() as AddressInfo).port, close };
}

const HOP = new Set(["date", "connection", "keep-alive", "transfer-encoding", "content-length"]);

/** Signatures a second of one core over a text as long as an answer. */
function signingRate(bytes: number, seconds: number): number {
  const { privateKey } = generateKeyPairSync("ed25519");
  const text = Buffer.alloc(bytes, "a");
  const until = performance.now() + seconds * 1000;
  let made = 0;
  for (; performance.now() < until; made++) sign(null, text, privateKey);
  process.stdout.write(`signing ${bytes} bytes: ${Math.round(made / seconds)}/s\n`);
  return made / seconds;
}

/** Time of a report of 200 dependencies, over that of 200 lookups one by one and one signature of as many bytes. */
async function exposure(deps: ServingDeps, urls: readonly string[]): Promise<number> {
  const service = createService({ ...deps, limits: { dependencies_per_minute: 1e9 } });
  const asked = urls.slice(0, 200);
  const dependencies = asked.map((url) => ({ url, calls_per_month: 100 }));
  const { text } = await service.exposures.report({ dependencies }, "client");
  const timed = async (run: () => unknown): Promise<number> => {
    const from = performance.now();
    for (let i = 0; i < 50; i++) await run();
    return (performance.now() - from) / 50;
  };
  const lookups = () => {
    for (const url of asked) service.checks.facts({ url, method: undefined, pay_to: undefined }, "client");
    deps.answers.sign(Buffer.from(text));
  };
  await timed(lookups);
  const [report, parts] = [
    await timed(() => service.exposures.report({ dependencies }, "client")),
    await timed(lookups),
  ];
  process.stdout.write(
    `exposure of 200: ${report.toFixed(2)} ms; 200 lookups and a signature: ${parts.toFixed(2)} ms\n`,
  );
  return report / parts;
}

const median = (all: number[]): string => all.sort((a, b) => a - b)[Math.floor(all.length / 2)]!.toFixed(2);

async function main(): Promise<void> {
  const seconds = Number(process.argv[2] ?? 5);
  const record = await PublicRecord.open();
  const specs = Array.from({ length: ENDPOINTS }, (_, i) => specOf(i));
  await record.publish(
    ...specs.flatMap((spec) => [[listingDraft(spec)], record.grades([cardOf(spec)], "B on OUTCOME.")]),
  );
  await record.live(specs.map((spec) => rowOf(spec)));
  const limits = { checks_per_minute: 1e9, reads_per_minute: 1e9 };
  const hits = await servingOver(record, { limits });
  // Nothing is kept: every check is a miss, as with a stream of different questions.
  const misses = await servingOver(record, { limits, cache: { ttlMs: 0, maxEntries: 1, maxBytes: 1e6 } });
  const paths = specs.map(({ url }) => checkPath({ url }));
  const hitting = await serve({ app: hits.app, port: 0, host: "127.0.0.1", graceMs: 100 });
  const missing = await serve({ app: misses.app, port: 0, host: "127.0.0.1", graceMs: 100 });
  const bare = await bareServer(`${hitting.url}${paths[0]}`);
  const bytes = (await (await fetch(`${hitting.url}${paths[0]}`)).arrayBuffer()).byteLength;
  for (const [name, port] of [
    ["hits", hitting.port],
    ["bare", bare.port],
    ["misses", missing.port],
  ] as const)
    await measure(`${name}, warming up`, port, paths, 2);
  const [ofBare, ofSigning, ofLookups]: [number[], number[], number[]] = [[], [], []];
  for (let turn = 0; turn < TURNS; turn++) {
    const rate = await measure("bare node:http", bare.port, paths, seconds);
    ofBare.push((await measure("hits", hitting.port, paths, seconds)) / rate);
    const signing = signingRate(bytes, seconds);
    ofSigning.push((await measure("misses", missing.port, paths, seconds)) / signing);
    ofLookups.push(
      await exposure(
        hits.deps,
        specs.map(({ url }) => url),
      ),
    );
  }
  process.stdout.write(
    `hits / bare node:http: ${median(ofBare)}; misses / signing: ${median(ofSigning)}; report / its parts: ${median(ofLookups)} (medians of ${TURNS})\n`,
  );
  await Promise.all([hitting.close(), missing.close(), bare.close()]);
  await record.close();
}

if (process.argv[2] === "client") process.once("message", (message) => load(message as Load));
else await main();
