/**
 * Checks a second of one process: hits (answers of the minute) and misses (made and signed anew), over real sockets,
 * with the clients in a process of their own. Run: npx tsx test/bench/check.bench.ts [seconds]
 */

import { fork } from "node:child_process";
import { connect } from "node:net";
import { fileURLToPath } from "node:url";
import { serve } from "../../serving/main.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver } from "../helpers/serving.ts";

const ENDPOINTS = 2000;
const CONNECTIONS = 16;
const PIPELINE = 16;

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

async function measure(name: string, port: number, paths: string[], seconds: number): Promise<void> {
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
}

async function main(): Promise<void> {
  const seconds = Number(process.argv[2] ?? 5);
  const record = await PublicRecord.open();
  const specs = Array.from({ length: ENDPOINTS }, (_, i) => specOf(i));
  await record.publish(
    ...specs.flatMap((spec) => [[listingDraft(spec)], record.grades([cardOf(spec)], "B on OUTCOME.")]),
  );
  await record.live(specs.map((spec) => rowOf(spec)));
  const limits = { checksPerMinute: 1e9, readsPerMinute: 1e9 };
  const hits = await servingOver(record, { limits });
  // Nothing is kept: every check is a miss, as with a stream of different questions.
  const misses = await servingOver(record, { limits, cache: { ttlMs: 0, maxEntries: 1, maxChars: 1e6 } });
  const paths = specs.map(({ url }) => checkPath({ url }));
  for (const [name, { app }] of [
    ["hits", hits],
    ["misses", misses],
  ] as const) {
    const server = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 100 });
    await measure(`${name}, warming up`, server.port, paths, 2);
    await measure(name, server.port, paths, seconds);
    await server.close();
  }
  await record.close();
}

if (process.argv[2] === "client") process.once("message", (message) => load(message as Load));
else await main();
