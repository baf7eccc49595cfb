import { expect, test } from "vitest";
import { createLogger } from "../../../infra/telemetry.ts";
import { HostShare, type PartitionWork } from "../../../pipelines/1-observe/hosts.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import { HandedOut, until } from "./shared-world.ts";

const PARTITIONS = 4;
const logger = createLogger("silent");
/** A host of each partition. */
const hosts = Array.from({ length: PARTITIONS }, (_, partition) => {
  for (let i = 0; ; i++) if (partitionOf(`s${i}.example`, PARTITIONS) === partition) return `s${i}.example`;
});
const owned = (share: HostShare) => hosts.flatMap((host, partition) => (share.owns(host) ? [partition] : []));

async function open(held: number[], catchUp: () => Promise<unknown> = async () => undefined) {
  const ownership = new HandedOut();
  await ownership.change(held, []);
  return { ownership, share: await HostShare.open({ ownership, partitions: PARTITIONS, catchUp, logger }) };
}
const untilAborted: (seen: string[]) => PartitionWork = (seen) => async (partition, signal) => {
  seen.push(`begins ${partition}`);
  await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
  seen.push(`ends ${partition}`);
};
/** A promise and the way to resolve it. */
function gate() {
  let open: () => void = () => undefined;
  const closed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { closed, open: () => open() };
}

test("a host is ours only once the log was read up to the taking over, however often that fails", async () => {
  let reads = 0;
  let down = false;
  const { ownership, share } = await open([1], async () => {
    reads++;
    if (down) throw new Error("no broker answers");
  });
  expect(owned(share)).toEqual([1]);
  down = true;
  await ownership.change([2], []);
  await until(() => reads >= 3);
  expect([owned(share), ownership.held()]).toEqual([[1], [1, 2]]);
  down = false;
  await share.waitUntilCaughtUp();
  expect(owned(share)).toEqual([1, 2]);
  await share.close();
  expect(owned(share)).toEqual([]);
});

test("a partition that was lost while the log was being read is not ours afterwards", async () => {
  const { closed, open: read } = gate();
  let first = true;
  const { ownership, share } = await open([0], async () => {
    if (!first) await closed;
    first = false;
  });
  const seen: string[] = [];
  const over = gate();
  const during = share.runDuring(untilAborted(seen), over.closed);
  await ownership.change([3], []);
  const lost = ownership.change([], [3]);
  read();
  await lost;
  expect(owned(share)).toEqual([0]);
  over.open();
  await share.close();
  await during;
  expect(seen).toEqual(["begins 0", "ends 0"]);
});

test("what is lost is given back when its work has ended, and what comes back is begun again", async () => {
  const { ownership, share } = await open([0, 1]);
  const seen: string[] = [];
  const slow = gate();
  const over = gate();
  const during = share.runDuring(async (partition, signal) => {
    await untilAborted(seen)(partition, signal);
    if (partition === 1) await slow.closed;
    seen.push(`left ${partition}`);
  }, over.closed);
  let given = false;
  const giving = ownership.change([], [1]).then(() => {
    given = true;
  });
  await until(() => seen.includes("ends 1"));
  expect([given, share.owns(hosts[1]!), share.owns(hosts[0]!)]).toEqual([false, false, true]);
  slow.open();
  await giving;
  expect(seen).toContain("left 1");
  await ownership.change([1], []);
  await until(() => seen.filter((one) => one === "begins 1").length === 2);
  over.open();
  await share.close();
  await during;
  expect(seen.filter((one) => one.startsWith("left")).sort()).toEqual(["left 0", "left 1", "left 1"]);
});

test("a work that fails ends the others, and is what the caller hears", async () => {
  const { ownership, share } = await open([0, 1]);
  const seen: string[] = [];
  const fail = gate();
  const during = share.runDuring(
    async (partition, signal) => {
      if (partition === 0) return untilAborted(seen)(partition, signal);
      await fail.closed;
      throw new Error("the log is gone");
    },
    new Promise(() => undefined),
  );
  fail.open();
  await expect(during).rejects.toThrow("the log is gone");
  expect(seen).toEqual(["begins 0", "ends 0"]);
  // Nothing more is begun for it.
  await ownership.change([2], []);
  await share.waitUntilCaughtUp();
  expect(seen).toHaveLength(2);
  await share.close();
});
