import { describe, expect, it } from "vitest";
import { sha256 } from "../../../../infra/canonical.ts";
import { kindOfKey, OBJECTS } from "../../../../pipelines/published/objects.ts";
import { idOf, isWrite } from "./calls.ts";
import { DISASTERS } from "./disasters.ts";
import { Machine } from "./machine.ts";
import { SCENES } from "./scenes.ts";

/**
 * The table of disasters: every write that a publisher makes, found by recording a run of each scene, times everything
 * that can go wrong with it. After each row a publisher that knows of nothing does the same work on the same code path,
 * and the whole record is proven again from the disks.
 */
const tables = await Promise.all(
  Object.entries(SCENES).map(async ([name, scene]) => {
    const base = await Machine.open();
    await scene.prepare(base);
    const clean = await base.copy();
    const { publisher, calls } = clean.publisher("first");
    await scene.work(publisher);
    await clean.prove(scene.putIn);
    const writes = calls.made.filter(isWrite);
    const rows = writes.flatMap((write) =>
      Object.entries(DISASTERS).map(([disaster, play]) => ({ write: idOf(write), disaster, play })),
    );
    return { name, scene, base, writes, rows };
  }),
);

/** Other folders write these kinds, through the calls that are tried here. */
const NOT_OURS = new Set(["archiveFile", "archiveManifest", "call"]);

it("the table has a write of every kind of public object, of generations and of staging bundles", () => {
  const writes = tables.flatMap((table) => table.writes);
  const kinds = new Set(writes.flatMap(({ store, key }) => (store === "public" ? [kindOfKey(key)] : [])));
  const missing = Object.keys(OBJECTS).filter(
    (kind) => !kinds.has(kind as keyof typeof OBJECTS) && !NOT_OURS.has(kind),
  );
  expect(missing).toEqual(["segment"]); // the boundary of 65,536 leaves has a table of its own
  const folders = new Set(writes.flatMap(({ store, key }) => (store === "private" ? [key.split("/")[0]] : [])));
  expect([...folders].sort()).toEqual(["generation", "staging"]);
  expect(new Set(writes.map(({ op }) => op))).toEqual(new Set(["create", "swap", "delete"]));
});

describe.each(tables)("$name", ({ name, scene, base, rows }) => {
  it.each(rows)("$disaster: $write", async ({ write, disaster, play }) => {
    const seed = sha256(`${name} ${write} ${disaster}`).readUInt32BE(0);
    const left = await play({ machine: await base.copy(), scene, write, seed });
    await scene.work(left.publisher("fresh").publisher);
    await left.prove(scene.putIn);
  });
});
