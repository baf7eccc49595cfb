import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import { readView } from "../../../pipelines/4-publish/view.ts";
import { HistoryFile } from "../../../pipelines/record/history-arrow.ts";
import { bucketOf } from "../../../pipelines/record/ids.ts";
import type { GradeLeaf, Leaf } from "../../../pipelines/record/leaf.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { readVolatileRows } from "../../../pipelines/record/volatile-arrow.ts";
import type { Pipeline } from "../../../pipelines/roles/pipeline.ts";
import type { Owner } from "../../../pipelines/roles/protocol/owner.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { later } from "../2-ingest/records.ts";
import { TRUST } from "../4-publish/world.ts";
import { Deployment, sayings } from "./deployment.ts";
import { capOf, corrected, dayOf, PARTITIONS, SELLERS } from "./records.ts";

/** The same input, told by one process as `touchstone start` is, by one owner and by four: the same record. */
const START = "2026-10-05T00:00:00.000Z";
const DAYS = 8;
/** Days on which a round is graded, the last one a week after everything: then every card is signed again. */
const ROUNDS = [1, 5, 6, 7, 15];

let dir: string;
let log: Log;
const clock = new FixedClock(START);
const told: Record<"start" | "one" | "four", Leaf[]> = { start: [], one: [], four: [] };
const deployments: Deployment[] = [];

/** Owners say, the publisher publishes; then what they made of the closed days, and the tables of the present. */
async function round(at: Deployment, owners: readonly Owner[], now: Date): Promise<void> {
  const publishing = at.publishing();
  await Promise.all(owners.map((owner) => owner.grade(now)));
  await publishing.takeRuns();
  // A turn makes seven days at most, so that a long pause is caught up with in steps.
  for (let turn = 0; turn < 2; turn++) {
    for (const owner of owners) await owner.makeEvidence(now);
    await publishing.publishEvidence();
  }
  for (const owner of owners) await owner.writeVolatile();
  await publishing.nameTables();
  for (const owner of owners) await owner.writeHistory(now);
  await publishing.nameTables();
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "owners-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  const open = async (name: string): Promise<Deployment> => {
    const one = await Deployment.open(join(dir, name), log, clock);
    deployments.push(one);
    return one;
  };
  const [start, one, four] = [await open("start"), await open("one"), await open("four")];
  const pipeline: Pipeline = await start.pipeline();
  const single = [await one.owner([0, 1, 2, 3])];
  const quarters = await Promise.all([0, 1, 2, 3].map((partition) => four.owner([partition])));
  let day = 0;
  for (const until of ROUNDS) {
    for (; day <= until && day < DAYS; day++) await log.append(dayOf(START, day));
    // A correction of everything so far, and what the seller earned after it.
    if (until === 6) await log.append([corrected(SELLERS[0]!.name, later(START, 6 * 86_400_000 + 1_000))]);
    const now = new Date(later(START, (until + 1) * 86_400_000 - 1));
    clock.set(now);
    await pipeline.grade(now);
    await pipeline.publishEvidence(now);
    await pipeline.writeVolatile();
    await pipeline.writeHistory(now);
    await round(one, single, now);
    await round(four, quarters, now);
  }
  told.start = await start.leaves();
  told.one = await one.leaves();
  told.four = await four.leaves();
});

afterAll(async () => {
  for (const one of deployments) await one.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

/** What serving would read: rows of the volatile tables, chart days, and the positions behind them. */
async function shownBy(deployment: Deployment) {
  const { publicStore } = deployment;
  const leaves = await deployment.leaves();
  const view = (await readView(publicStore))!;
  const bytesOf = async (key: string): Promise<Uint8Array> => (await publicStore.get(key))!.bytes;
  const rows = (await Promise.all(view.live.map(async (key) => [...readVolatileRows(await bytesOf(key))]))).flat();
  const charts = await Promise.all(
    SELLERS.map(async ({ name }) => {
      const file = new HistoryFile(await bytesOf(view.history!.files[String(bucketOf(capOf(name)))]!));
      return { name, days: file.daysOf(capOf(name)) };
    }),
  );
  rows.sort((a, b) => (a.capability_id < b.capability_id ? -1 : 1));
  // The leaves of equal cards have other positions in each record, so each row is shown with the card that it names.
  const shownRows = rows.map(({ card_leaf, ...row }) => ({
    ...row,
    card: card_leaf == null ? null : (leaves[card_leaf] as GradeLeaf).card.signature,
  }));
  return { rows: shownRows, charts, positions: view.positions };
}

const cardsOf = (leaves: readonly Leaf[], name: string): GradeLeaf[] =>
  leaves.filter((leaf): leaf is GradeLeaf => leaf.kind === "grade" && leaf.card.capability_id === capOf(name));

describe("one owner or four", () => {
  test("say the same of every endpoint: cards with signatures, digests, kin and positions, listings, corrections", () => {
    const start = sayings(told.start);
    expect([...start.keys()].sort()).toEqual(SELLERS.map(({ name }) => capOf(name)).sort());
    // By endpoint, so that a difference is told and not everything beside it.
    for (const others of [sayings(told.one), sayings(told.four)]) {
      expect([...others.keys()]).toEqual([...start.keys()]);
      for (const [cap, said] of start) {
        const own = others.get(cap)!;
        const first = said.findIndex((text, i) => own[i] !== text);
        expect([cap, first, own[first]]).toEqual([cap, first, said[first]]);
        expect(own.length).toBe(said.length);
      }
    }
  });

  test("publish the same tables of payees and domains", () => {
    const tables = (leaves: readonly Leaf[]) => leaves.flatMap((leaf) => (leaf.kind === "kin" ? [leaf.kin] : []));
    expect(tables(told.start).length).toBeGreaterThan(0);
    expect(tables(told.one)).toEqual(tables(told.start));
    expect(tables(told.four)).toEqual(tables(told.start));
  });

  test("positions are those of the endpoint's own partition", async () => {
    for (const { name } of SELLERS) {
      const newest = cardsOf(told.four, name).at(-1)!;
      expect(Object.keys(newest.inputs.positions)).toContain("observations.paid");
    }
    const some = new Set(
      told.four.flatMap((leaf) => (leaf.kind === "grade" ? [JSON.stringify(leaf.inputs.positions)] : [])),
    );
    expect(some.size).toBeGreaterThan(PARTITIONS);
  });

  test("a thief's payee is known to whoever shares it in another partition, and to nobody else", () => {
    const flagged = SELLERS.filter(({ name }) =>
      cardsOf(told.four, name).at(-1)!.card.flags?.includes("payee_took_the_money"),
    ).map(({ name }) => name);
    const thief = SELLERS.find(({ stealsFrom }) => stealsFrom !== null)!;
    const kin = SELLERS.filter(({ name, payTo }) => payTo === thief.payTo && name !== thief.name);
    expect(kin.length).toBeGreaterThan(1);
    expect(flagged.sort()).toEqual(kin.map(({ name }) => name).sort());
  });

  test("the evidence holds the same lines, in files of the same names", () => {
    const files = (leaves: readonly Leaf[]): unknown[] =>
      leaves
        .flatMap((leaf) =>
          leaf.kind === "evidence" ? [[leaf.day, leaf.freeze, leaf.part, leaf.key, leaf.positions]] : [],
        )
        .sort();
    expect(files(told.start).length).toBeGreaterThan(DAYS);
    expect(files(told.one)).toEqual(files(told.start));
    expect(files(told.four)).toEqual(files(told.start));
  });

  test("the view names tables with the same rows, and charts with the same days", async () => {
    const shown = await Promise.all(deployments.map(shownBy));
    expect(shown[0]!.rows.length).toBe(SELLERS.length);
    expect(shown[0]!.charts.length).toBe(SELLERS.length);
    expect(shown[1]).toEqual(shown[0]);
    expect(shown[2]).toEqual(shown[0]);
  });

  test("each record is proven from its first leaf", async () => {
    for (const one of deployments) await proveRecord(one.publicStore, { trust: TRUST });
  });
});
