import { describe, expect, test } from "vitest";
import { Line, type Piece } from "../../../pipelines/2-ingest/batch.ts";
import { fc } from "../../helpers/histories.ts";

type Fault = "make" | "finish" | null;

/** A line of pieces whose steps take turns as the scheduler draws them; what it says is what happened, in order. */
function assembly(s: fc.Scheduler, faults: readonly Fault[]) {
  const said: string[] = [];
  const busy = { make: 0, finish: 0 };
  let most = 0;
  const step = async (what: "make" | "finish", n: number): Promise<void> => {
    if (++busy[what] > 1) throw new Error(`two at once in ${what}`);
    most = Math.max(most, busy.make + busy.finish);
    await s.schedule(Promise.resolve(), `${what} ${n}`);
    busy[what]--;
    if (faults[n] === what) throw new Error(`broken ${what} ${n}`);
    said.push(`${what} ${n}`);
  };
  const line = new Line();
  const run = async () => {
    try {
      for (const n of faults.keys()) {
        await line.add(async (): Promise<Piece> => {
          await step("make", n);
          return { finish: () => step("finish", n), drop: async () => void said.push(`drop ${n}`) };
        });
      }
    } finally {
      await line.end();
    }
  };
  return { run, said, most: () => most, busy };
}

describe("a line of two steps", () => {
  test("finishes what was made, in order, and makes the next meanwhile", async () => {
    let together = 0;
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), fc.integer({ min: 3, max: 8 }), async (s, n) => {
        const { run, said, most } = assembly(s, Array<Fault>(n).fill(null));
        await s.waitFor(run());
        together = Math.max(together, most());
        for (const step of ["make", "finish"]) {
          const order = said.filter((one) => one.startsWith(step));
          expect(order).toEqual(Array.from({ length: n }, (_, i) => `${step} ${i}`));
        }
      }),
    );
    expect(together).toBe(2);
  });

  test("a failure stops what comes after it, is told, and leaves nothing under way or unfinished and undropped", async () => {
    const faults = fc.array(fc.constantFrom<Fault>(null, null, "make", "finish"), { minLength: 1, maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), faults, async (s, drawn) => {
        const { run, said, busy } = assembly(s, drawn);
        const ended = run();
        const first = drawn.findIndex((fault) => fault !== null);
        if (first < 0) await s.waitFor(ended);
        else await expect(s.waitFor(ended)).rejects.toThrow(/broken/);
        expect(busy).toEqual({ make: 0, finish: 0 });
        const of = (what: string) => said.filter((one) => one.startsWith(what)).map((one) => Number(one.split(" ")[1]));
        const broken = drawn.flatMap((fault, n) => (fault === "finish" ? [n] : []));
        const over = [...of("finish"), ...of("drop"), ...broken.filter((n) => of("make").includes(n))];
        // What was made is finished, dropped, or broke in finishing; none after one that broke is finished.
        expect(new Set(over)).toEqual(new Set(of("make")));
        if (first >= 0) expect(Math.max(-1, ...of("finish"))).toBeLessThan(first);
      }),
    );
  });
});
