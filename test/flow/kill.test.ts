import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { MarketLetters } from "../../commands/letters.ts";
import { readLedger } from "../../fixtures/market/ledger.ts";
import type { GradeLeaf } from "../../pipelines/record/leaf.ts";
import type { Flag } from "../../pipelines/record/vocabulary.ts";
import { type DemoRecord, readDemo } from "../helpers/demo-record.ts";
import { drawn, SEED } from "../helpers/drawn.ts";
import { runStart } from "../helpers/run-start.ts";

/**
 * SIGKILL of the whole process group from outside at random moments of the demo; the chain and the sellers live on in a
 * group of their own, as they would. The oracle is what this parent heard acknowledged before each kill.
 */
const KILLS = 50;
const DAYS = 12;
const BASE = "http://kill.test";
const PARTITIONS = 2;

let dir: string;
let record: DemoRecord;
let letters: MarketLetters;
const acked: string[] = [];
let survived = 0;

/**
 * Moments are spread over a start: boot, recovery, observing, ingest, publication. Real milliseconds: of every second
 * kill from the start of the process, of the others from its first acknowledgement, which a slow machine gives later.
 */
const random = drawn(SEED);
const moment = (i: number): number => 200 + ((i * 7919) % 2400) + random() * 400;

const environment = () => ({ TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_PORT: "0", TOUCHSTONE_BASE_URL: BASE });
const args = ["--market", "--once", "--json", "--days", String(DAYS)];

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "kill-"));
  for (let i = 0; i < KILLS; i++) {
    const run = runStart(args, environment());
    let timer: NodeJS.Timeout | undefined;
    const kill = () => (timer = setTimeout(() => run.kill(), moment(i)));
    if (i % 2 === 0) kill();
    else run.child.stdio[3]!.once("data", kill);
    const ended = await run.ended;
    clearTimeout(timer);
    acked.push(...run.acked);
    if (ended.signal === null) {
      // It came to its end before the kill: that is fine, and the later ones are kills of a live service's restart.
      expect(ended, ended.stderr).toMatchObject({ code: 0 });
      survived++;
    }
  }
  const last = runStart(args, environment());
  const ended = await last.ended;
  expect(ended, ended.stderr).toMatchObject({ code: 0 });
  acked.push(...last.acked);
  letters = JSON.parse(ended.stdout) as MarketLetters;
  record = await readDemo(dir, BASE, PARTITIONS);
});

afterAll(() => rm(dir, { recursive: true, force: true }));

describe(`after ${KILLS} kills at random moments`, () => {
  test("most of them were kills, and something was acknowledged", () => {
    // However fast the machine, and however much of the past is lived through before the last of them.
    expect(KILLS - survived).toBeGreaterThan(9);
    expect(acked.length).toBeGreaterThan(200);
  });

  test("every acknowledged observation is there exactly once", () => {
    const inLog = new Map(
      record.log.map((one) => [one.eventId, `${one.topic} ${Buffer.from(one.value).toString().slice(0, 300)}`]),
    );
    const wrong = [...new Set(acked)].filter((id) => record.lakeEvents.get(id) !== 1);
    // Where each of them stands, so that a failure says what was lost on which way.
    expect(wrong.map((id) => ({ id, inLake: record.lakeEvents.get(id) ?? 0, inLog: inLog.get(id) ?? null }))).toEqual(
      [],
    );
    expect([...record.lakeEvents.values()].every((n) => n === 1)).toBe(true);
  });

  test("no wallet paid twice for one intent, by the chain and by the sellers' ledgers", () => {
    const intents = record.facts("paid.intent");
    const bySlot = new Map<string, number>();
    for (const { cap, body } of intents) {
      const slot = `${cap} ${body.slot.block}/${body.slot.minute}`;
      bySlot.set(slot, (bySlot.get(slot) ?? 0) + 1);
    }
    expect([...bySlot.values()].filter((n) => n > 1)).toEqual([]);
    const known = new Set(intents.map(({ body }) => body.nonce.toLowerCase()));
    for (const seller of record.world.sellers) {
      const lines = readLedger(seller.ledger).filter((line) => line.nonce && line.tx);
      const txs = new Map<string, Set<string>>();
      for (const line of lines) txs.set(line.nonce!, (txs.get(line.nonce!) ?? new Set()).add(line.tx!));
      // One nonce settles once, and no payment was ever sent whose intent is not in the record.
      expect([...txs].filter(([, set]) => set.size > 1)).toEqual([]);
      expect([...txs.keys()].filter((nonce) => !known.has(nonce.toLowerCase()))).toEqual([]);
    }
  });

  test("no honest seller is ever called a thief", () => {
    const capOf = (name: string) => letters.market.find((one) => one.seller === name)!.capability_id;
    const [thief, refunder] = [capOf("thief"), capOf("refunder")];
    const grades = record.leaves.filter((leaf): leaf is GradeLeaf => leaf.kind === "grade");
    const accused = (flag: Flag) =>
      new Set(grades.filter(({ card }) => card.flags?.includes(flag)).map(({ card }) => card.capability_id));
    expect([...accused("took_the_money")].filter((cap) => cap !== thief)).toEqual([]);
    // Who pays back what it took is not accused, whichever process saw the refund.
    expect([...accused("money_pending")].filter((cap) => cap !== thief && cap !== refunder)).toEqual([]);
  });

  test("a payment that a kill cut off is our own fault and nobody else's", () => {
    const open = new Set(record.facts("paid.intent").map((fact) => fact.eventId));
    for (const { body } of record.facts("paid.result")) {
      open.delete(body.intent);
      if (!body.watched) expect(body.fault).toBe("ours");
    }
    expect([...open]).toEqual([]);
  });
});
