import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { NotOurLog, RecordsLost } from "../../../infra/chain/commit.ts";
import { type Chain, checkLog, openChain } from "../../../infra/chain/commits.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import type { Store } from "../../../infra/store/store.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { AT, append, memoryStore } from "./make.ts";

describe("checking the log at start", () => {
  let dir: string;
  let log: Log;
  let store: Store;
  let chain: Chain;

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), "check-"));
    log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 1 });
    store = await memoryStore();
    chain = openChain(store, { logId: log.id, topic: "asks", partition: 0 });
  });
  afterEach(async () => {
    await log.close();
    await rm(dir, { recursive: true });
  });

  /** Records whose ids are what the chain of `make.ts` writes down. */
  const fill = (n: number, prefix = "rec_") =>
    log.append(
      Array.from({ length: n }, (_, i) => ({
        ...{ topic: "asks", partition: 0, eventId: `${prefix}${i}`, key: "k", value: Buffer.from("v") },
      })),
    );

  it.each([
    { kept: "everything", records: 10, committed: 4, below: 0 },
    { kept: "everything, all of it committed", records: 4, committed: 4, below: 0 },
    { kept: "what comes next only", records: 10, committed: 4, below: 4 },
    { kept: "the last committed record and what follows", records: 10, committed: 4, below: 3 },
    { kept: "an empty log for an empty chain", records: 0, committed: 0, below: 0 },
  ])("goes on with $kept", async ({ records, committed, below }) => {
    await fill(records);
    if (committed) await append(chain, committed);
    await log.truncate("asks", 0, below);
    expect(await checkLog(chain, log)).toMatchObject({ next: committed });
  });

  it("refuses a log with another id", async () => {
    const other = openChain(store, { logId: "ffff", topic: "asks", partition: 0 });
    await expect(checkLog(other, log)).rejects.toThrow(NotOurLog);
  });

  it("refuses a log that ends before what was committed", async () => {
    await fill(3);
    await append(chain, 4);
    await expect(checkLog(chain, log)).rejects.toThrow(/ends at 3, 4 was reached/);
  });

  it("refuses a log with another record where ours was", async () => {
    await fill(10, "other_");
    await append(chain, 4);
    const refused = await checkLog(chain, log).catch((e: unknown) => e);
    expect(refused).toBeInstanceOf(NotOurLog);
    expect(String(refused)).toMatch(/record 3 is other_3, it was rec_3/);
  });

  it("stops at lost records until the gap is accepted", async () => {
    await fill(10);
    await append(chain, 4);
    await log.truncate("asks", 0, 7);
    const lost = await checkLog(chain, log).catch((e: unknown) => e);
    expect(lost).toBeInstanceOf(RecordsLost);
    expect(lost).toMatchObject({ first: 4, next: 7 });
    expect(String(lost)).toMatch(/asks\/0 lost the records 4 to 6/);
    const { first, next } = lost as RecordsLost;
    expect((await chain.gap(first, next, AT)).won).toBe(true);
    expect(await checkLog(chain, log)).toMatchObject({ next: 7, lastEventId: null });
    await append(chain, 3);
    expect(await checkLog(chain, log)).toMatchObject({ next: 10, lastEventId: "rec_9" });
  });
});
