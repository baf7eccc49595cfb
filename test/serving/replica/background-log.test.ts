import { expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import type { Log } from "../../../infra/log/log.ts";
import { createLogger } from "../../../infra/telemetry.ts";
import { BackgroundLog, NO_LOG, ReadOnlyReplica } from "../../../serving/replica/background-log.ts";

const logger = createLogger("silent");
/** A clock whose sleeps end when the test says so. */
function paused() {
  let wake: () => void = () => undefined;
  return {
    wake: () => wake(),
    sleep: (_ms: number, signal?: AbortSignal) =>
      new Promise<void>((resolve, reject) => {
        wake = resolve;
        signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
      }),
  };
}
const turn = () => new Promise((resolve) => setImmediate(resolve));

function fakeLog() {
  const calls: string[] = [];
  const log = {
    id: "1",
    partitions: 4,
    append: async () => calls.push("append") && [],
    read: async () => calls.push("read") && [],
    bounds: async () => ({ start: 0, end: calls.push("bounds") }),
    close: async () => void calls.push("close"),
  } as unknown as Log;
  return { log, calls };
}

test("refused as LogDown until a later try opens it; then it is the log", async () => {
  const clock = paused();
  const { log, calls } = fakeLog();
  let tries = 0;
  const open = async () => {
    if (++tries < 3) throw new Error("no broker answers");
    return log;
  };
  const late = new BackgroundLog(open, clock, logger);
  for (let n = 1; n <= 2; n++) {
    await turn();
    expect(tries).toBe(n);
    expect(() => late.partitions).toThrow(/no broker answers/);
    await expect(late.append([])).rejects.toMatchObject({ name: "LogDown" });
    await expect(late.read("asks", 0, 0)).rejects.toMatchObject({ name: "LogDown" });
    clock.wake();
  }
  await turn();
  expect(late.partitions).toBe(4);
  await late.append([]);
  await late.bounds("asks", 0);
  await late.close();
  expect(calls).toEqual(["append", "bounds", "close"]);
});

test("closing ends the tries", async () => {
  const late = new BackgroundLog(() => Promise.reject(new Error("down")), paused(), logger);
  await turn();
  await late.close();
  expect(() => late.partitions).toThrow(/down/);
});

test("a log that opens while it is being closed is closed too", async () => {
  const { log, calls } = fakeLog();
  let opened: (log: Log) => void = () => undefined;
  const coming = new Promise<Log>((resolve) => {
    opened = resolve;
  });
  const late = new BackgroundLog(() => coming, new FixedClock("2026-11-21T00:00:00.000Z"), logger);
  const closing = late.close();
  opened(log);
  await closing;
  expect(calls).toEqual(["close"]);
});

test("no log at all: nothing is taken, and that is its own error", async () => {
  await expect(NO_LOG.append([])).rejects.toThrow(ReadOnlyReplica);
});
