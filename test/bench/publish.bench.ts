/**
 * What a publication costs: all cards of a log, then one in a hundred of them changed, and what does not follow the
 * change. Cards are signed and go through the real publisher onto a directory store.
 * `npx tsx test/bench/publish.bench.ts [cards] [folder]` (default 100,000; the folder should lie on the disk to measure).
 */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../infra/clock.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { createPublisher } from "../../pipelines/4-publish/publisher.ts";
import type { Band } from "../../pipelines/record/vocabulary.ts";
import { publishListings } from "../helpers/publishing.ts";
import { header, JWKS, line, listing, ORIGIN, PARTITIONS, SIGNERS } from "../pipelines/4-publish/world.ts";
import { against, type Cost, peakGb, ratio, shown, timed } from "./ratio.ts";

const cards = Number(process.argv[2] ?? 100_000);
const dir = await mkdtemp(join(process.argv[3] ?? tmpdir(), "publish-bench-"));
const privateStore = await openDirectoryStore(join(dir, "private"));
const publicStore = await openDirectoryStore(join(dir, "public"));
const open = () =>
  createPublisher({
    privateStore,
    publicStore,
    signers: SIGNERS,
    clock: systemClock,
    origin: ORIGIN,
    partitions: PARTITIONS,
    logger: createLogger("silent"),
    metrics: createMetrics(),
  });
const publisher = open();

let runs = 0;
/** A run as a grader hands it over: `count` endpoints from number `first` on, all with this letter. */
async function run(first: number, count: number, band: Band, now: string): Promise<void> {
  const lines = Array.from({ length: count }, (_, i) => line(`s-${first + i}`, now, [band]));
  const { cards: published } = await publisher.takeRun({ header: header(now, ++runs), lines });
  if (published !== count) throw new Error(`${published} cards were published instead of ${count}`);
}
const day = (n: number): string => `2026-11-${String(n).padStart(2, "0")}T01:00:00.000Z`;
const perCard = (cost: Cost, count: number): string => `${((cost.cpu / count) * 1e6).toFixed(0)} us CPU each`;

await publisher.publishKeys(JWKS);
console.log(`${cards.toLocaleString("en")} cards`);
const SLICE = 10_000;
const listed = await timed(async () => {
  for (let i = 0; i < cards; i += SLICE) {
    const count = Math.min(SLICE, cards - i);
    await publishListings(
      publisher,
      Array.from({ length: count }, (_, j) => listing(`s-${i + j}`)),
    );
  }
});
console.log(`listings                 ${shown(listed)}  ${perCard(listed, cards)}`);
const all = await timed(() => run(0, cards, "B", day(1)));
console.log(`all cards                ${shown(all)}  ${perCard(all, cards)}`);

const changed = Math.ceil(cards / 100);
// A worse letter is published on its day, whatever was published before; once unmeasured, so that both sides are warm.
await run(0, changed, "C", day(2));
const few = await timed(() => run(changed, changed, "C", day(2)));
console.log(`one in a hundred changed ${shown(few)}  ${perCard(few, changed)}`);
const one = await timed(() => run(2 * changed, 1, "C", day(2)));
console.log(`one card changed         ${shown(one)}`);
const index = await timed(() => publisher.buildIndex());
console.log(`the index, hourly        ${shown(index)}  ${perCard(index, cards)}`);
let late = 0;
const ticking = setInterval(() => {}, 1_000);
const started = performance.now();
const again = await timed(async () => {
  // How long others wait while it is made: the longest time between two turns of the loop.
  let before = started;
  let going = true;
  const turn = () => {
    const now = performance.now();
    late = Math.max(late, now - before);
    before = now;
    if (going) setImmediate(turn);
  };
  before = performance.now();
  turn();
  await publisher.publishSchedule({ day: "2026-12-01", salt_hash: "00", covered_root: "00", covered: 0 });
  await publisher.buildIndex();
  going = false;
});
clearInterval(ticking);
console.log(
  `the index, nothing new   ${shown(again)}  longest stall ${late.toFixed(0)} ms, peak ${peakGb().toFixed(1)} GB`,
);
const recovered = await timed(() => open().start());
console.log(`a start, from the leaves ${shown(recovered)}`);
ratio(`publish: 1 % of ${cards.toLocaleString("en")} cards changed against all`, against(few, all), "at most 0.03");
await privateStore.close();
await publicStore.close();
await rm(dir, { recursive: true });
