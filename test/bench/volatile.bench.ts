/**
 * A turn of the volatile tables with a hundredth of the endpoints touched against one that writes all rows, with what
 * serving does to follow. CPU of the whole process, bytes written, and what a replica's rows take of memory.
 * Run: npx tsx --expose-gc test/bench/volatile.bench.ts [--quick] [--rows=30] [endpoints ..]
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openLake } from "../../infra/lake/duckdb.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { PUBLISHED_PROJECTION } from "../../pipelines/published/caps.ts";
import { PublishedFold } from "../../pipelines/published/fold.ts";
import { LiveTables } from "../../pipelines/roles/protocol/live-tables.ts";
import { NO_VOLATILE_ROWS, type VolatileRows } from "../../serving/tables/view.ts";
import { loadVolatile } from "../../serving/tables/volatile.ts";
import { type Cost, ratio, shown, timed } from "./ratio.ts";
import { END, fillLake } from "./volatile-data.ts";

const args = process.argv.slice(2);
/** Samples of each endpoint. */
const ROWS = Number(args.find((arg) => arg.startsWith("--rows="))?.slice(7) ?? 30);
const TURNS = 5;

/** Objects in memory, with what went through. */
class Objects {
  readonly held = new Map<string, Uint8Array>();
  bytes = 0;
  views = 0;

  readonly put = async (key: string, bytes: Uint8Array): Promise<string> => {
    this.held.set(key, bytes);
    this.bytes += bytes.length;
    return key;
  };

  readonly get = async (key: string) => {
    const bytes = this.held.get(key);
    return bytes ? { key, bytes, size: bytes.length, etag: `${key} ${this.views}`, modifiedAt: END } : null;
  };

  name(live: readonly string[]): void {
    this.views++;
    const positions = { "observations.free": { "0": this.views } };
    const view = { v: 1, at: END.toISOString(), index: null, tree_size: 0, live, positions };
    this.held.set("live/view.json", Buffer.from(JSON.stringify(view)));
  }
}

/** A fold as a tree of so many cards would have left it: each computed within the day before the last record, one in a hundred
 * before it had read what was said. */
function foldOf(caps: readonly string[]): PublishedFold {
  const fold = new PublishedFold();
  const read = { "observations.free": 1e12, "observations.paid": 1e12 };
  const why = {
    why: "",
    sample_count: 0,
    measured: true,
    text: "",
    leaf: 0,
    tier: "DELIVERY_VERIFIED",
    band: "B",
    raw_band: "B",
  } as const;
  caps.forEach((cap, i) => {
    const computedAt = new Date(END.getTime() - (i % 1440) * 60_000).toISOString();
    fold.caps.set(cap, {
      ...PUBLISHED_PROJECTION.createEndpoint(cap),
      cards: [{ ...why, headline: true, compared: "" }],
      computedAt,
      positions: { ...read, corrections: i % 100 },
    });
  });
  return fold;
}

const each = (cost: Cost, turns: number): Cost => ({ wall: cost.wall / turns, cpu: cost.cpu / turns });
const heap = (): number => {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed;
};

async function measure(endpoints: number): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), "volatile-bench-"));
  const lake = await openLake(join(dir, "lake.duckdb"), { memoryLimit: "3GB", threads: 2, init: INGEST_TABLES });
  try {
    const made = await timed(() => fillLake(lake, endpoints, ROWS));
    console.log(`${endpoints.toLocaleString("en")} endpoints of ${ROWS} rows made: ${shown(made)}`);
    const caps = (await lake.all<{ cap: string }>("SELECT cap FROM endpoint ORDER BY cap")).map(({ cap }) => cap);
    const objects = new Objects();
    let files = 0;
    const live = new LiveTables({
      ...{ lake, now: () => END, tableOf: () => 0 },
      write: (table, bytes) => objects.put(`live/${table}.${files++}.arrow`, bytes),
    });
    const fold = foldOf(caps);
    let held: VolatileRows = NO_VOLATILE_ROWS;
    const look = async () => {
      held = (await loadVolatile(objects, held)).volatile;
    };
    const turn = async () => {
      await live.writeChanges(fold, [0]);
      live.markNamed();
      objects.name(live.keysOf(0));
    };
    const whole = await timed(turn);
    const before = { bytes: objects.bytes, heap: heap() };
    console.log(
      `${"a turn with all rows".padEnd(48)} ${shown(whole)}, ${(before.bytes / 1e6).toFixed(1)} MB in ${files} files`,
    );
    const first = await timed(look);
    const perRow = (heap() - before.heap) / endpoints;
    console.log(`${"a replica's start".padEnd(48)} ${shown(first)}, ${perRow.toFixed(0)} B of heap an endpoint`);
    const some = { wall: 0, cpu: 0 };
    const following = { wall: 0, cpu: 0 };
    for (let i = 0; i < TURNS; i++) {
      await lake.run("INSERT INTO stale SELECT cap FROM made WHERE e % 100 = $i", { i });
      for (const [sum, work] of [
        [some, turn],
        [following, look],
      ] as const) {
        const { wall, cpu } = await timed(work);
        sum.wall += wall;
        sum.cpu += cpu;
      }
    }
    const mb = ((objects.bytes - before.bytes) / 1e6 / TURNS).toFixed(2);
    console.log(`${"a turn with 1 % touched".padEnd(48)} ${shown(each(some, TURNS))}, ${mb} MB`);
    console.log(`${"a replica that follows it".padEnd(48)} ${shown(each(following, TURNS))}`);
    const idle = await timed(turn);
    console.log(`${"a turn with nothing touched".padEnd(48)} ${shown(idle)}`);
    const share = (part: Cost, of: Cost) =>
      `${(part.wall / of.wall).toFixed(3)} wall, ${(part.cpu / of.cpu).toFixed(3)} CPU`;
    const name = `${endpoints.toLocaleString("en")} endpoints`;
    ratio(`volatile, ${name}: 1 % touched against all rows`, share(each(some, TURNS), whole), "0.05 or less");
    ratio(`volatile, ${name}: following 1 % against a start`, share(each(following, TURNS), first), "0.05 or less");
    ratio(
      `volatile, ${name}: CPU of a turn of 10 s, 1 % touched`,
      `${each(some, TURNS).cpu.toFixed(2)} s`,
      "below 2 s",
    );
  } finally {
    await lake.close();
    await rm(dir, { recursive: true, force: true });
  }
}

const sizes = args.filter((arg) => !arg.startsWith("--")).map(Number);
for (const size of sizes.length > 0 ? sizes : args.includes("--quick") ? [5_000] : [10_000, 100_000])
  await measure(size);
