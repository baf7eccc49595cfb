/**
 * Every benchmark of this folder, one after the other, and one table of what they compared. Says no more than it saw: it
 * fails when a benchmark breaks, never because of a time.
 * Run: npx tsx test/bench/run.ts [--quick] [words of names]
 */
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { loadavg } from "node:os";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { MARK } from "./ratio.ts";

const FOLDER = fileURLToPath(new URL(".", import.meta.url));
/** What a quick run gives a benchmark instead of its own sizes. */
const QUICK: Readonly<Record<string, readonly string[]>> = {
  "archive.bench.ts": ["100000"],
  "audit.bench.ts": ["50", "2000"],
  "companies.bench.ts": ["50000"],
  "grade.bench.ts": ["--quick"],
  "ingest.bench.ts": ["250000", "2"],
  "million.bench.ts": ["1000"],
  "mirror.bench.ts": ["5000"],
  "publish.bench.ts": ["20000"],
  "replica.bench.ts": ["5000", "1000"],
  "sign.bench.ts": ["4000"],
  "store.bench.ts": ["2000", "500"],
  "stream.bench.ts": ["200000"],
  "tree.bench.ts": ["300000"],
  "via.bench.ts": ["20", "50"],
  "volatile.bench.ts": ["5000"],
  "work.bench.ts": ["20000", "200"],
};
/** What a benchmark is run with once more: a mirror's source is seldom on its own machine. */
const AGAIN: Readonly<Record<string, readonly string[]>> = {
  "mirror.bench.ts": ["--rtt=30", "--signatures=no"],
};

const args = process.argv.slice(2);
const quick = args.includes("--quick");
const words = args.filter((arg) => !arg.startsWith("--"));
const files = readdirSync(FOLDER)
  .filter((file) => file.endsWith(".bench.ts") && (words.length === 0 || words.some((word) => file.includes(word))))
  .sort();

/** Output as it comes; the marked lines are given back. */
async function run(file: string, more: readonly string[] = []): Promise<{ rows: string[][]; code: number | null }> {
  const argv = ["--import", "tsx", `${FOLDER}${file}`, ...(quick ? (QUICK[file] ?? []) : []), ...more];
  const child = spawn(process.execPath, argv, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<number | null>((resolve) => child.on("close", resolve));
  const rows: string[][] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    const [mark, ...row] = line.split("\t");
    if (mark === MARK) rows.push(row);
    else console.log(`  ${line}`);
  }
  return { rows, code: await ended };
}

const table: string[][] = [];
for (const file of files) {
  for (const more of AGAIN[file] ? [[], AGAIN[file]] : [[]]) {
    const what = [file, ...more].join(" ");
    console.log(`\n${what} (load of the machine before: ${loadavg()[0]!.toFixed(1)})`);
    const { rows, code } = await run(file, more);
    table.push(...rows);
    if (code !== 0) {
      console.log(`  ended with ${code}`);
      process.exitCode = 1;
    }
  }
}
console.log(`\n${"compared".padEnd(58)} ${"seen".padEnd(28)} aimed for`);
for (const [what = "", seen = "", aim = ""] of table) console.log(`${what.padEnd(58)} ${seen.padEnd(28)} ${aim}`);
