import { expect, test } from "vitest";
import { CallTally } from "../../../../pipelines/1-observe/plan/tally.ts";

/** A clock whose only sleep ends when the test says so. */
function tallied() {
  const lines: unknown[] = [];
  let wake: () => void = () => undefined;
  let slept = 0;
  const clock = {
    sleep: (_: number, signal?: AbortSignal) =>
      new Promise<void>((resolve, reject) => {
        slept++;
        wake = resolve;
        signal?.addEventListener("abort", () => reject(signal.reason));
      }),
  };
  const tally = new CallTally({ info: (line: unknown) => void lines.push(line) } as never, clock);
  const minute = (): Promise<void> => {
    wake();
    return new Promise((done) => setImmediate(done));
  };
  return { lines, tally, slept: () => slept, minute };
}

test("calls of a minute are one line, and where none is made there is none", async () => {
  const { lines, tally, slept, minute } = tallied();
  for (const name of ["probe_asked", "paid", "probe_asked"]) tally.count(name);
  expect(lines).toEqual([]);
  await minute();
  expect(lines).toEqual([{ calls: { probe_asked: 2, paid: 1 } }]);
  expect(slept()).toBe(1);
  tally.count("missed");
  await minute();
  expect(lines[1]).toEqual({ calls: { missed: 1 } });
});

test("the end of a span tells what was counted at once, and once", async () => {
  const { lines, tally, minute } = tallied();
  tally.count("broken");
  tally.logCounts();
  tally.logCounts();
  await minute();
  expect(lines).toEqual([{ calls: { broken: 1 } }]);
});
