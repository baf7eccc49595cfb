import { describe, expect, test } from "vitest";
import { PacedClock, systemClock } from "../../infra/clock.ts";

/** Real time that a test moves. */
function hand(at: string) {
  const start = Date.parse(at);
  let passed = 0;
  return {
    waits: [] as number[],
    pass(ms: number) {
      passed += ms;
    },
    simulated: false,
    jumps: false,
    now: () => new Date(start + passed),
    monotonic: () => passed,
    async sleep(ms: number, signal?: AbortSignal) {
      signal?.throwIfAborted();
      this.waits.push(ms);
      passed += ms;
    },
  };
}

describe("a paced clock", () => {
  const from = new Date("2026-11-01T00:00:00.000Z");

  test("runs so many times as fast as the real one, until it meets the present, and is the real one from then on", () => {
    const real = hand("2026-11-01T01:00:00.000Z");
    const clock = new PacedClock(from, 61, real);
    expect(clock.now()).toEqual(from);
    expect(clock.simulated).toBe(true);
    real.pass(30_000);
    expect(clock.now().toISOString()).toBe("2026-11-01T00:30:30.000Z");
    real.pass(30_000);
    expect(clock.now().toISOString()).toBe("2026-11-01T01:01:00.000Z");
    expect(clock.simulated).toBe(false);
    real.pass(5_000);
    expect(clock.now()).toEqual(real.now());
  });

  test("waits the paced part of a wait that ends in the past, and the whole rest of one that ends in the present", async () => {
    const real = hand("2026-11-01T01:00:00.000Z");
    const clock = new PacedClock(from, 61, real);
    await clock.sleep(61_000);
    expect(real.waits).toEqual([1_000]);
    // 3,600 s behind at a pace of 61: met after 60 s of real time, 3,660 s of the record's.
    await clock.sleep(4_000_000);
    expect(clock.now().getTime()).toBeGreaterThanOrEqual(from.getTime() + 4_061_000);
    expect(clock.now().getTime()).toBeLessThan(from.getTime() + 4_063_000);
    expect(clock.now()).toEqual(real.now());
  });

  test("a wait ends when it is called off, and a pace that never meets the present is refused", async () => {
    const off = AbortSignal.abort(new Error("called off"));
    await expect(new PacedClock(from, 2, systemClock).sleep(1_000, off)).rejects.toThrow("called off");
    expect(() => new PacedClock(from, 0.5)).toThrow(RangeError);
  });
});
