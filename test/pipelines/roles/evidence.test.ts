import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { AppendedRecord, Log, NewRecord } from "../../../infra/log/log.ts";
import type { Store } from "../../../infra/store/store.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import type { Owner } from "../../../pipelines/roles/protocol/owner.ts";
import { proveWhole } from "../../helpers/oracle.ts";
import { ofKind } from "../../helpers/published.ts";
import { handshake } from "../2-ingest/records.ts";
import { TRUST } from "../4-publish/world.ts";
import { Deployment } from "./deployment.ts";
import { PARTITIONS, placed, sellerIn } from "./records.ts";

const NAMES = [0, 1, 2, 3].map((partition) => sellerIn(partition, "good"));
/** A probe of the seller in this partition. */
const probe = (partition: number, time: string): NewRecord => placed(handshake(NAMES[partition]!, time));

/** Holds back writes of an owner's evidence objects from `close` to `open`. */
class Gate {
  #opened: Promise<void> | null = null;
  /** Called when a write arrives. */
  #tell: () => void = () => undefined;
  open: () => void = () => undefined;

  wrap(store: Store): Store {
    return new Proxy(store, {
      get: (target, name) => {
        const value = Reflect.get(target, name);
        if (name !== "swap") return typeof value === "function" ? value.bind(target) : value;
        return async (...args: Parameters<Store["swap"]>) => {
          if (args[0].startsWith("owners/evidence/")) {
            this.#tell();
            await this.#opened;
          }
          return target.swap(...args);
        };
      },
    });
  }

  /** @returns a promise of the first write that waits */
  close(): Promise<void> {
    this.#opened = new Promise((resolve) => {
      this.open = resolve;
    });
    return new Promise((resolve) => {
      this.#tell = resolve;
    });
  }
}

describe("late rows of a closed day, in the partitions of two owners", () => {
  const clock = new FixedClock("2026-10-05T00:00:00.000Z");
  let dir: string;
  let log: Log;
  let at: Deployment;
  let gate: Gate;
  let [slow, fast]: [Owner, Owner] = [] as never;
  const acked: AppendedRecord[] = [];
  const append = async (...records: NewRecord[]) => void acked.push(...(await log.append(records)));
  const publish = () => at.publishing().publishEvidence();

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), "late-rows-"));
    log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
    at = await Deployment.open(join(dir, "stores"), log, clock);
    gate = new Gate();
    slow = await at.owner([0, 1], { privateStore: gate.wrap(at.privateStore) });
    fast = await at.owner([2, 3]);
  });
  afterEach(async () => {
    await at.close();
    await log.close();
    await rm(dir, { recursive: true, force: true });
  });

  test("are all published, though one owner's files came after the others had closed the day again", async () => {
    await append(...[0, 1, 2, 3].map((partition) => probe(partition, "2026-10-05T08:00:00.000Z")));
    clock.set("2026-10-06T06:05:00.000Z");
    for (const owner of [slow, fast]) await owner.makeEvidence(clock.now());
    expect((await publish()).days).toEqual(["2026-10-05"]);

    // A backlog brings late rows of the closed day, and the day after it ends.
    await append(probe(0, "2026-10-05T09:00:00.000Z"), probe(2, "2026-10-05T09:00:00.000Z"));
    await append(...[0, 1, 2, 3].map((partition) => probe(partition, "2026-10-06T08:00:00.000Z")));
    clock.set("2026-10-07T06:05:00.000Z");
    const arrived = gate.close();
    const writing = slow.makeEvidence(clock.now());
    await arrived;
    await fast.makeEvidence(clock.now());
    expect((await publish()).days).toEqual(["2026-10-05"]);
    gate.open();
    await writing;
    await publish();

    for (const hour of ["07", "08"]) {
      clock.set(`2026-10-07T${hour}:05:00.000Z`);
      for (const owner of [slow, fast]) await owner.makeEvidence(clock.now());
      await publish();
    }
    const lakes = at.lakes.map((lake, i) => ({ lake, partitions: i === 0 ? [0, 1] : [2, 3] }));
    const whole = { log, trust: TRUST, acked, closedBefore: "2026-10-07", audited: false };
    const leaves = await proveWhole({ ...whole, ...at, lakes });
    const closes = ofKind(leaves, "evidence").map(({ day, freeze }) => `${day}/${freeze}`);
    expect([...new Set(closes)]).toEqual(["2026-10-05/0", "2026-10-05/1", "2026-10-05/2", "2026-10-06/0"]);
  });

  test("a day is closed by the publisher's clock, though those of all owners are ahead", async () => {
    await append(...[0, 1, 2, 3].map((partition) => probe(partition, "2026-10-05T08:00:00.000Z")));
    clock.set("2026-10-05T12:00:00.000Z");
    const ahead = new Date("2026-10-09T12:00:00.000Z");
    for (const owner of [slow, fast]) await owner.makeEvidence(ahead);
    expect((await publish()).days).toEqual([]);
    clock.set("2026-10-06T06:05:00.000Z");
    expect((await publish()).days).toEqual(["2026-10-05"]);
  });
});
