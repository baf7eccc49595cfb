import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ED25519, parseVkey } from "../../../infra/tree/note.ts";
import { type Equivocation, proveEquivocation } from "../../../pipelines/published/equivocation.ts";
import { FILES, LIES, RECORDED, recorded as read } from "./equivocation-lies.ts";
import { fill, folder, forkedPair, keys, MonitorBed } from "./testbed.ts";

/**
 * Equivocations that a monitor recorded of a log that was really forked: two publishers with one key. `RECORD=1` records
 * them anew, under new keys.
 */
const SIZES = { "equal-sizes": [40, 40, 10], "a-power-of-two": [6, 300, 250], "other-sizes": [77, 900, 300] } as const;

async function record(name: (typeof FILES)[number]): Promise<void> {
  const [one, other, shared] = SIZES[name];
  const [first, second] = await forkedPair(shared);
  await fill(first, "one", one);
  await fill(second, "other", other);
  const bed = await MonitorBed.open();
  const { forks } = await bed.round({ sources: [folder(first), folder(second)], keys: keys(first) });
  mkdirSync(RECORDED, { recursive: true });
  writeFileSync(join(RECORDED, `${name}.json`), (await bed.files.get(forks[0]!.file!))!.bytes);
  for (const open of [bed, first, second]) await open.close();
}
if (process.env.RECORD) for (const name of FILES) await record(name);

const keysIn = (file: Equivocation) => file.log_keys.map((vkey) => parseVkey(vkey, ED25519));

test.each(FILES)("%s is proven, under its keys and under those given", (name) => {
  const [one, other, shared] = SIZES[name];
  const file = read(name);
  for (const given of [undefined, keysIn(file)]) {
    const { smaller, larger, prefixRoot } = proveEquivocation(file, given);
    expect([smaller.size, larger.size]).toEqual([shared + one, shared + other]);
    expect(Buffer.from(prefixRoot).equals(smaller.root)).toBe(false);
  }
});

describe.each(FILES)("%s", (name) => {
  // A file of equal sizes has no node to leave out.
  const lies = LIES.filter(([, lie]) => JSON.stringify(lie(read(name))) !== JSON.stringify(read(name)));
  test.each(lies)("%s proves nothing", (_, lie) => {
    const file = lie(read(name));
    const fault = (() => {
      try {
        return proveEquivocation(file) && null;
      } catch (error) {
        return (error as { code?: string }).code;
      }
    })();
    // Two roots of one size contradict each other in either order.
    const isStillFork =
      name === "equal-sizes" && file.smaller === read(name).larger && file.larger === read(name).smaller;
    expect(fault).toBe(isStillFork ? null : "tampered");
  });
});

test("checkpoints of one history prove nothing, whatever the nodes", async () => {
  const file = read("other-sizes");
  const honest = read("a-power-of-two");
  expect(() => proveEquivocation({ ...file, smaller: honest.smaller })).toThrow(/smaller|signed by/);
  expect(() => proveEquivocation(file, [{ ...keysIn(file)[0]!, name: "x.example" }])).toThrow("log_keys");
  expect(() => proveEquivocation(file, keysIn(honest))).toThrow(/not signed by/);
});
