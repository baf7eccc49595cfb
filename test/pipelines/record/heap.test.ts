import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { capId } from "../../../pipelines/record/ids.ts";
import { compileTemplate } from "../../../pipelines/record/template.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** Bytes of the heap that one of so many things takes for as long as it is kept. */
function bytesKept(many: number, make: (i: number) => unknown): number {
  const kept = new Array<unknown>(many).fill(null);
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < many; i++) kept[i] = make(i);
  collect();
  const each = (process.memoryUsage().heapUsed - before) / many;
  expect(kept).toHaveLength(many);
  return each;
}

test("an id is kept as its characters, and not as the pieces that it was made of", () => {
  expect(bytesKept(20_000, (i) => capId("GET", `https://s${i}.example/`))).toBeLessThan(160);
});

test("of a template nothing is kept behind what takes the rest of a path, however much a stranger lists there", () => {
  const tail = "*/{a}-".repeat(100);
  expect(bytesKept(1_000, (i) => compileTemplate(`https://s${i}.example/${tail}`))).toBeLessThan(2_048);
});
