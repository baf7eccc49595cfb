import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { examine } from "../../../commands/doctor.ts";
import { exitCodeOf } from "../../../commands/exit.ts";
import { openChain } from "../../../infra/chain/commits.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { type Config, loadConfig } from "../../../infra/config.ts";
import { keysDocument, loadKeys } from "../../../infra/keys/keys.ts";
import { createPublisher } from "../../../pipelines/4-publish/publisher.ts";
import { foldersOf } from "../../../pipelines/roles/data-folder.ts";
import {
  openObserverParts,
  openOrdersStore,
  openOwnerParts,
  openParts,
  openPublisherParts,
  openServingParts,
} from "../../../pipelines/roles/parts.ts";
import { ensureKeysFor } from "../../../pipelines/roles/record-identity.ts";
import { bytesBelow } from "../../helpers/earlier-version.ts";

/** Parts of a record that may be lost, or be those of another record. */
const PARTS = ["log", "private", "public", "keys"] as const;
type Part = (typeof PARTS)[number];
type State = "here" | "lost" | "foreign";
type Case = Record<Part, State>;

const clock = new FixedClock("2026-11-01T00:00:00.000Z");
let dir: string;
const configOf = (data: string): Config =>
  loadConfig(undefined, { TOUCHSTONE_DATA_DIR: data, TOUCHSTONE_LOG_PARTITIONS: "1", TOUCHSTONE_LOG_LEVEL: "silent" });

/** What every owner and `start` do before they work. */
async function opened(data: string): Promise<string> {
  const config = configOf(data);
  await ensureKeysFor(config, clock.now());
  const parts = await openOwnerParts(config, clock);
  await parts.close();
  return parts.log.id;
}

/** A record with a paid call in its log, a commit of its chain, a first leaf and a held answer. */
async function makeRecord(name: string): Promise<string> {
  const config = configOf(join(dir, name));
  await ensureKeysFor(config, clock.now());
  const signers = loadKeys(foldersOf(config.data_dir).keys);
  const parts = await openOwnerParts(config, clock);
  const { log, privateStore, publicStore, logger, metrics } = parts;
  const record = {
    topic: "observations.paid",
    partition: 0,
    eventId: `rec_${name}`,
    key: "k",
    value: Buffer.from("{}"),
  };
  await log.append([record]);
  await openChain(privateStore, { logId: log.id, topic: "listings", partition: 0 }).gap(0, 1, clock.now());
  const made = { privateStore, publicStore, signers, clock, origin: "localhost:8402", partitions: 1, logger, metrics };
  const publisher = createPublisher(made);
  await publisher.publishKeys(keysDocument(signers.ring));
  // A second publication: what the first one wrote can be written again from its staging.
  const schedule = { day: "2026-11-02", salt_hash: "0".repeat(64), covered_root: "0".repeat(64), covered: 0 };
  await publisher.publishSchedule(schedule);
  await (await openOrdersStore(config, log)).close();
  await parts.close();
  return log.id;
}

const ids: Record<string, string> = {};
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "lost-parts-"));
  for (const name of ["ours", "other"]) ids[name] = await makeRecord(name);
});
afterAll(() => rm(dir, { recursive: true, force: true }));

/** A data folder whose parts are in these states. */
function folderOf(states: Partial<Record<Part | "orders", State>>): string {
  const to = mkdtempSync(join(dir, "case-"));
  for (const [part, state] of Object.entries(states))
    if (state !== "lost")
      cpSync(join(dir, state === "here" ? "ours" : "other", part), join(to, part), { recursive: true });
  return to;
}

const CASES: Case[] = ["here", "lost", "foreign"].flatMap((log) =>
  ["here", "lost", "foreign"].flatMap((hidden) =>
    ["here", "lost", "foreign"].flatMap((open) =>
      ["here", "lost", "foreign"].map((keys) => ({ log, private: hidden, public: open, keys }) as Case),
    ),
  ),
);

/**
 * The rule, by itself: a new record begins where nothing but keys is there; a record goes on where log, both stores and
 * keys are there and of one record. Everything else is refused.
 */
function due({ log, private: hidden, public: open, keys }: Case): "new" | "ours" | "other" | "refused" {
  const record = [log, hidden, open];
  if (record.every((state) => state === "lost")) return "new";
  if ([...record, keys].every((state) => state === "here")) return "ours";
  return [...record, keys].every((state) => state === "foreign") ? "other" : "refused";
}

const WHAT_TO_DO = /put back|put both back|put it back|put the .* back/;

describe("parts of a record that are lost, or another's", () => {
  test.each(CASES)("log $log, private $private, public $public, keys $keys", async (states) => {
    const at = folderOf(states);
    try {
      const want = due(states);
      const before = bytesBelow(at);
      const found = await opened(at).then(
        (id) => ({ id, error: null }),
        (error: Error) => ({ id: null, error }),
      );
      if (want === "new") expect([Object.values(ids).includes(found.id!), found.error]).toEqual([false, null]);
      else if (want !== "refused") expect([found.id, found.error]).toEqual([ids[want], null]);
      else {
        expect([found.id, exitCodeOf(found.error)]).toEqual([null, 7]);
        expect(found.error!.message).toMatch(WHAT_TO_DO);
        expect(bytesBelow(at)).toEqual(before);
        const broken = (await examine(configOf(at), "own")).filter(({ standing }) => standing === "broken");
        expect(broken.map(({ says }) => says).join()).toMatch(WHAT_TO_DO);
      }
    } finally {
      rmSync(at, { recursive: true });
    }
  });

  test("every role refuses a lost log, and none makes one; who only serves too", async () => {
    const at = folderOf({ log: "lost", private: "here", public: "here", keys: "here" });
    const config = configOf(at);
    const before = bytesBelow(at);
    const opens = [openParts, openObserverParts, openOwnerParts, openPublisherParts, openServingParts];
    for (const open of opens) {
      const error = await open(config, clock).catch((why: Error) => why);
      expect([open.name, exitCodeOf(error), (error as Error).message]).toEqual([
        open.name,
        7,
        expect.stringContaining("put the log back from its backup"),
      ]);
    }
    expect(bytesBelow(at)).toEqual(before);
  });

  test("answers of another log's buyers are not opened, so that no sweep removes them; a lost store is made anew", async () => {
    const all = { log: "here", private: "here", public: "here", keys: "here" } as const;
    for (const [orders, code] of [
      ["foreign", 7],
      ["lost", null],
      ["here", null],
    ] as const) {
      const at = folderOf({ ...all, orders });
      const config = configOf(at);
      const before = bytesBelow(at);
      const parts = await openOwnerParts(config, clock);
      const store = await openOrdersStore(config, parts.log).catch((error: Error) => error);
      await parts.close();
      expect([orders, store instanceof Error ? exitCodeOf(store) : null]).toEqual([orders, code]);
      if (store instanceof Error) expect(bytesBelow(at)).toEqual(before);
      else await store.close();
    }
  });
});

describe("a start that was cut off", () => {
  test.each([[["log"]], [["private"]], [["public", "private"]]] as const)(
    "goes on, or names the lost log, where only %s of an empty record was made",
    async (parts) => {
      const first = join(dir, `first-${parts.join("-")}`);
      await opened(first);
      const at = mkdtempSync(join(dir, "cut-"));
      for (const part of ["keys", ...parts]) cpSync(join(first, part), join(at, part), { recursive: true });
      const isMarked = parts.includes("private" as never);
      // A store that names a log which nobody has is a record whose log is lost, however short it was.
      const result = opened(at);
      if (isMarked) await expect(result).rejects.toThrow(/put the log back/);
      else await expect(result).resolves.toMatch(/^[0-9a-f]{32}$/);
    },
  );
});
