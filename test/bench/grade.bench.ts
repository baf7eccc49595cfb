/**
 * A grade run over made-up observations against the prototype of the design folder, on the same rows, and how it grows
 * with the endpoints. Data, runs and prototype are processes of their own, so that each one's peak memory is its own.
 * Run: npx tsx test/bench/grade.bench.ts [--quick] [endpoints] [rows of each]
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gradeChunks } from "../../pipelines/3-grade/grade.ts";
import { makeData, NOW, openData, PROTOTYPE, preparePrototype } from "./grade-data.ts";
import { against, type Cost, peakGb, ratio, shown, timed } from "./ratio.ts";

type Result = Cost & { caps: number; rows: number; lines: number; peakGb: number };

/** `published`: every line goes into the run, with its digest; else none does, as when no card changed. */
async function grade(dir: string, which: "all" | "few", published: boolean): Promise<Result> {
  const { conn, close } = await openData(dir);
  const caps =
    which === "all"
      ? which
      : (await (await conn.run("SELECT cap FROM kind_of WHERE ep % 20 = 7")).getRows()).map(([cap]) => String(cap));
  let lines = 0;
  let read = { caps: 0, rows: 0 };
  const cost = await timed(async () => {
    const chunks = gradeChunks(conn, { now: NOW, endpointIds: caps, leaveOut: () => !published });
    for (let next = await chunks.next(); ; next = await chunks.next()) {
      if (next.done) {
        read = next.value.read;
        break;
      }
      lines += next.value.length;
    }
  });
  close();
  return { ...cost, ...read, lines, peakGb: peakGb() };
}

async function prototype(dir: string): Promise<Cost & { peakGb: number }> {
  const { conn, close } = await openData(dir);
  const text = await preparePrototype(conn);
  const cost = await timed(() => conn.run(text));
  await conn.run("USE main; DROP SCHEMA prototype CASCADE;");
  close();
  return { ...cost, peakGb: peakGb() };
}

async function make(dir: string, endpoints: number, rows: number): Promise<Cost> {
  const { conn, close } = await openData(dir);
  const cost = await timed(() => makeData(conn, endpoints, rows));
  close();
  return cost;
}

/** One step in a process of its own. */
function step<T>(name: string, ...args: (string | number)[]): T {
  const argv = ["--import", "tsx", fileURLToPath(import.meta.url), `--step=${name}`, ...args.map(String)];
  const { stdout, stderr, status } = spawnSync(process.execPath, argv, { encoding: "utf8", maxBuffer: 1 << 24 });
  if (status !== 0) throw new Error(`${name}: ${stderr.slice(-2_000)}`);
  return JSON.parse(stdout.trimEnd().split("\n").at(-1)!) as T;
}

async function inFolder<T>(endpoints: number, rows: number, work: (dir: string) => T): Promise<T> {
  const dir = await mkdtemp(join(tmpdir(), "grade-bench-"));
  try {
    console.log(
      `${(endpoints * rows).toLocaleString("en")} rows made: ${shown(step<Cost>("make", dir, endpoints, rows))}`,
    );
    return work(dir);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

function compare(dir: string): void {
  const whole = step<Result>("grade", dir, "all", "published");
  const silent = step<Result>("grade", dir, "all", "unchanged");
  const few = step<Result>("grade", dir, "few", "published");
  const say = (what: string, cost: Result) =>
    console.log(
      `${what.padEnd(48)} ${shown(cost)}, ${cost.caps} endpoints and ${cost.rows} rows read, ${cost.lines} lines`,
    );
  say("a whole run, every card published", whole);
  say("a whole run, no card changed", silent);
  say("a run of 5 % of the endpoints, all published", few);
  ratio("grade: 5 % dirty against a whole run", against(few, whole), "0.10 or less");
  ratio("grade: peak memory of a whole run", `${whole.peakGb.toFixed(1)} GB`, "below 6 GB");
  if (!existsSync(PROTOTYPE)) {
    console.log(`NO PROTOTYPE to compare with: ${PROTOTYPE} is not there`);
    return;
  }
  const base = step<Cost & { peakGb: number }>("prototype", dir);
  console.log(`${"the prototype: letters alone".padEnd(48)} ${shown(base)}, peak ${base.peakGb.toFixed(1)} GB`);
  ratio("grade: whole run, every card published, of prototype", against(whole, base), "1.00 or less, aim 0.50");
  ratio("grade: whole run, no card changed, of prototype", against(silent, base), "1.00 or less, aim 0.50");
}

/** Slope of log time over log endpoints, least squares. */
function exponent(points: readonly { n: number; s: number }[]): number {
  const logs = points.map(({ n, s }) => ({ x: Math.log(n), y: Math.log(s) }));
  const mean = (pick: (p: { x: number; y: number }) => number) =>
    logs.reduce((sum, p) => sum + pick(p), 0) / logs.length;
  const [x, y] = [mean((p) => p.x), mean((p) => p.y)];
  return mean((p) => (p.x - x) * (p.y - y)) / mean((p) => (p.x - x) ** 2);
}

async function growth(sizes: readonly number[], rows: number): Promise<void> {
  const points: { n: number; wall: number; cpu: number }[] = [];
  for (const n of sizes) {
    const run = await inFolder(n, rows, (dir) => step<Result>("grade", dir, "all", "published"));
    console.log(`${n.toLocaleString("en")} endpoints of ${rows} rows: ${shown(run)}, peak ${run.peakGb.toFixed(1)} GB`);
    points.push({ n, wall: run.wall, cpu: run.cpu });
  }
  const [wall, cpu] = (["wall", "cpu"] as const).map((of) =>
    exponent(points.map((p) => ({ n: p.n, s: p[of] }))).toFixed(2),
  );
  const range = `${sizes[0]!.toLocaleString("en")} to ${sizes.at(-1)!.toLocaleString("en")}`;
  ratio(`grade: growth exponent, ${range} endpoints`, `${wall} wall, ${cpu} CPU`, "about 1");
}

const args = process.argv.slice(2);
const asked = args.find((arg) => arg.startsWith("--step="))?.slice(7);
const [first, second, third] = args.filter((arg) => !arg.startsWith("--"));
if (asked) {
  const result =
    asked === "make"
      ? await make(first!, Number(second), Number(third))
      : asked === "prototype"
        ? await prototype(first!)
        : await grade(first!, second === "few" ? "few" : "all", third === "published");
  console.log(JSON.stringify(result));
} else {
  const quick = args.includes("--quick");
  await inFolder(Number(first ?? (quick ? 5_000 : 100_000)), Number(second ?? 300), compare);
  await growth(quick ? [1_000, 10_000, 50_000] : [10_000, 100_000, 1_000_000], 30);
}
