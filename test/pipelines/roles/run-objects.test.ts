import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import type { Store } from "../../../infra/store/store.ts";
import { readRun } from "../../../pipelines/4-publish/runs.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { boundTo } from "../../helpers/bound.ts";
import { later } from "../2-ingest/records.ts";
import { Deployment, sayings } from "./deployment.ts";
import { dayOf, PARTITIONS, SELLERS } from "./records.ts";

/** What an owner graded goes into several objects where it is too much for one. */
const START = "2026-10-05T00:00:00.000Z";
/** Until a thief has stolen and nobody has paid back. */
const DAYS = 7;
const ALL = [0, 1, 2, 3];

let dir: string;
let log: Log;
const clock = new FixedClock(START);
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "run-objects-"));
  clock.set(new Date(later(START, DAYS * 86_400_000 - 60_000)));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  for (let day = 0; day < DAYS; day++) await log.append(dayOf(START, day));
});
afterEach(async () => {
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

/** Whatever the owner writes, published: what is said of each endpoint, and the table of related parties. */
async function published(at: Deployment) {
  await at.publishing().takeRuns();
  const { table, sha256 } = at.publisher.fold.relatedParties;
  return { said: sayings(await at.leaves()), table, sha256 };
}

async function runsOf({ privateStore }: Deployment) {
  const runs = [];
  for (let run = await readRun(privateStore, 0); run; run = await readRun(privateStore, runs.length)) runs.push(run);
  return runs;
}

test("a run of several objects publishes the leaves of a run of one", async () => {
  const [one, several] = [
    await Deployment.open(join(dir, "one"), log, clock),
    await Deployment.open(join(dir, "several"), log, clock),
  ];
  try {
    const whole = await one.owner(ALL);
    expect(await whole.grade(clock.now())).toMatchObject({ lines: SELLERS.length, run: 0 });
    const cut = await several.owner(ALL, { runLines: 2 });
    const objects = Math.ceil(SELLERS.length / 2);
    expect(await cut.grade(clock.now())).toMatchObject({ lines: SELLERS.length, run: objects - 1 });
    const runs = await runsOf(several);
    expect(runs.map(({ lines }) => lines.length)).toEqual([2, 2, 2, 2, 1]);
    // A listing goes with the card of its endpoint.
    for (const { lines, drafts = [] } of runs) {
      const caps = new Set(lines.map(({ cap }) => cap));
      for (const draft of drafts) if (draft.kind === "listing") expect(caps).toContain(draft.capability_id);
    }
    expect(runs.map(({ header }) => header.thieves?.length)).toEqual([...Array(objects - 1).fill(undefined), 1]);
    const [expected, seen] = [await published(one), await published(several)];
    expect(expected.table).toHaveLength(1);
    expect(seen).toEqual(expected);
  } finally {
    await one.close();
    await several.close();
  }
});

test("an owner whose store fails between two objects says the rest on its next turn, and nothing twice", async () => {
  const [one, torn] = [
    await Deployment.open(join(dir, "one"), log, clock),
    await Deployment.open(join(dir, "torn"), log, clock),
  ];
  try {
    await (await one.owner(ALL)).grade(clock.now());
    const expected = await published(one);
    let written = 0;
    const { privateStore } = torn;
    const create: Store["create"] = async (key, ...of) => {
      if (key.startsWith("runs/") && ++written === 3) throw new Error("the disk is full");
      return privateStore.create(key, ...of);
    };
    const owner = await torn.owner(ALL, { runLines: 2, privateStore: boundTo(privateStore, { create }) });
    await expect(owner.grade(clock.now())).rejects.toThrow("the disk is full");
    const part = await published(torn);
    expect(part.table).toEqual([]);
    for (const [cap, said] of part.said) expect(said).toEqual(expected.said.get(cap));
    clock.set(new Date(clock.now().getTime() + 1_000));
    await owner.grade(clock.now());
    const seen = await published(torn);
    const kinds = (all: Map<string, string[]>) =>
      [...all].map(([cap, said]) => [cap, said.map((text) => (JSON.parse(text) as { kind: string }).kind)]);
    expect(kinds(seen.said)).toEqual(kinds(expected.said));
    expect(seen.table).toEqual(expected.table);
  } finally {
    await one.close();
    await torn.close();
  }
});
