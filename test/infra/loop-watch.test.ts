import { expect, it } from "vitest";
import { LOOP_STALL_MS, TimerLoopWatch } from "../../infra/loop-watch.ts";

/** A loop that turns when the test says so. */
function driven() {
  let now = 1_000_000;
  const loop = new TimerLoopWatch(() => now);
  const turn = (ms: number) => {
    now += ms;
    loop.checkForStall();
  };
  return { loop, turn };
}

it("a loop that turns in time did not stand still", () => {
  const { loop, turn } = driven();
  const end = loop.begin();
  for (let i = 0; i < 100; i++) turn(LOOP_STALL_MS / 2);
  expect(end()).toEqual({ stoodStill: false, atEnd: false });
});

it("one that stood still did so for everybody who was there, and for nobody who came later", () => {
  const { loop, turn } = driven();
  const [one, two] = [loop.begin(), loop.begin()];
  turn(10 * LOOP_STALL_MS);
  const three = loop.begin();
  expect(one()).toEqual({ stoodStill: true, atEnd: true });
  for (let i = 0; i < 10; i++) turn(50);
  expect(two()).toEqual({ stoodStill: true, atEnd: false });
  expect(three()).toEqual({ stoodStill: false, atEnd: false });
});

it("counts what its own timer could not see yet", () => {
  let now = 0;
  const loop = new TimerLoopWatch(() => now);
  const end = loop.begin();
  now += 8_000;
  expect(end()).toEqual({ stoodStill: true, atEnd: true });
});

it("nobody looked between two spans: that is no standing still", () => {
  const { loop, turn } = driven();
  loop.begin()();
  turn(3_600_000);
  expect(loop.begin()()).toEqual({ stoodStill: false, atEnd: false });
});

it("sees the real loop of this process stand still", async () => {
  const end = new TimerLoopWatch().begin();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * LOOP_STALL_MS + 200);
  await new Promise((resolve) => setImmediate(resolve));
  expect(end()).toEqual({ stoodStill: true, atEnd: true });
});
