import { expect, test } from "vitest";
import { startRecovery } from "../../../pipelines/orders/recovery.ts";

test("whoever watches is told how each turn over the open orders ended", async () => {
  let failing = true;
  const recovery = {
    turn: async () => {
      if (failing) throw new RangeError("the log is down");
    },
    look: async () => undefined,
    recoverLosses: async () => undefined,
    stop: async () => undefined,
  };
  const warned: unknown[] = [];
  const logger = { warn: (line: unknown) => void warned.push(line) };
  const running = startRecovery(recovery as never, logger as never, 20);
  const told: unknown[] = [];
  running.watch((failed) => void told.push(failed));
  await expect.poll(() => told.filter((one) => one instanceof RangeError).length).toBeGreaterThan(1);
  failing = false;
  await expect.poll(() => told.at(-1)).toBeNull();
  expect(warned.length).toBeGreaterThan(1);
  await running.stop();
});
