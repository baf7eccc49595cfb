import { describe, expect, it } from "vitest";
import type { Publisher } from "../../../../pipelines/4-publish/publisher.ts";
import { readCheckpoint } from "../../../../pipelines/published/reader.ts";
import { RecordBroken, tokenOf } from "../../../helpers/prove-record.ts";
import { publishListings } from "../../../helpers/publishing.ts";
import { BEFORE, goneCap, shortOfASegment } from "../short-of-a-segment.ts";
import { listing, TRUST } from "../world.ts";
import { idOf, isWrite } from "./calls.ts";
import { DISASTERS } from "./disasters.ts";
import { Machine, type Proof, proveWhole } from "./machine.ts";
import type { Scene } from "./scenes.ts";

/**
 * The same disasters where 65,536 leaves are crossed. The record of a run in which nothing went wrong is proven whole,
 * once; every other one must come to the same objects, byte for byte, which costs less than to prove it anew.
 */
const NEW = Array.from({ length: 10 }, (_, i) => listing(`new-${i}`));
const scene: Scene = {
  prepare: ({ privateStore, publicStore, clock }) => shortOfASegment(privateStore, publicStore, clock.now()),
  async work(publisher: Publisher) {
    await publishListings(publisher, NEW);
  },
  putIn: [
    ...Array.from({ length: BEFORE }, (_, i) => `delisting ${goneCap(i)}`),
    ...NEW.map((facts) => tokenOf({ kind: "listing", ...facts })),
  ],
};

async function objectsOf({ publicStore }: Machine): Promise<Map<string, string>> {
  const objects = new Map<string, string>();
  for (let startAfter = ""; ; ) {
    const page = await publicStore.list("", startAfter ? { startAfter } : {});
    if (page.length === 0) return objects;
    for (const { key, size } of page) objects.set(key, `${size} bytes`);
    startAfter = page.at(-1)!.key;
  }
}

const base = await Machine.open();
await scene.prepare(base);
const clean = await base.copy();
const { publisher, calls } = clean.publisher("first");
await scene.work(publisher);
const wanted = await objectsOf(clean);
const size = BEFORE + NEW.length;

/** Below the new checkpoint everything is as in the clean record; what the old one names is never touched. */
const proveSame: Proof = async (machine, putIn) => {
  const problems: string[] = [];
  const head = await readCheckpoint(machine.publicStore, TRUST);
  if (head?.size !== size && (putIn || head?.size !== BEFORE))
    problems.push(`the checkpoint is of ${head?.size} leaves`);
  const there = await objectsOf(machine);
  for (const key of there.keys()) if (!wanted.has(key)) problems.push(`${key}: nobody wrote it in the clean record`);
  const needed = head?.size === size ? wanted.keys() : [...there.keys()].filter((key) => key !== "checkpoint");
  for (const key of needed) {
    const [got, want] = await Promise.all([machine, clean].map(({ publicStore }) => publicStore.get(key)));
    if (!got || Buffer.compare(got.bytes, want!.bytes) !== 0) problems.push(`${key} is missing or something else`);
  }
  if (problems.length) throw new RecordBroken(problems);
};

describe("where a segment is completed", () => {
  it("the clean record is whole", () => proveWhole(clean, scene.putIn));

  const writes = calls.made.filter((call) => isWrite(call) && call.key.startsWith("segment/")).map(idOf);
  it("the segment is written", () => expect(writes).toEqual(["public create segment/0.ndjson.zst"]));

  const rows = writes.flatMap((write) =>
    Object.entries(DISASTERS).map(([disaster, play]) => ({ write, disaster, play })),
  );
  it.each(rows)("$disaster: $write", async ({ write, play }) => {
    const machine = await Machine.open(
      {
        private: base.disks.private.afterPowerLoss(() => true),
        public: base.disks.public.afterPowerLoss(() => true),
      },
      base.served,
      proveSame,
    );
    const left = await play({ machine, scene, write, seed: 7 });
    await scene.work(left.publisher("fresh").publisher);
    await left.prove(scene.putIn);
  });
});
