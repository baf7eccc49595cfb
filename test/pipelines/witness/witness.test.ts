import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { createLogger } from "../../../infra/telemetry.ts";
import { formatAddCheckpoint } from "../../../infra/tree/add-checkpoint.ts";
import { openCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { cosignatureTime } from "../../../infra/tree/cosignature.ts";
import { COSIGNATURE, parseNote, parseVkey } from "../../../infra/tree/note.ts";
import { WitnessState } from "../../../pipelines/witness/state.ts";
import { Witness } from "../../../pipelines/witness/witness.ts";
import { serve } from "../../../serving/main.ts";
import { createWitnessApp } from "../../../serving/witness-app.ts";
import { noteSigner, SmallLog } from "../../helpers/witnessed.ts";

const NAME = "witness.example/w1";
const log = new SmallLog(noteSigner("log.example/one", 11));
const other = new SmallLog(noteSigner("log.example/two", 12));
const clock = new FixedClock("2026-11-21T04:00:00.000Z");

let dir: string;
let state: WitnessState;
let witness: Witness;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "witness-"));
  clock.set("2026-11-21T04:00:00.000Z");
  state = WitnessState.open(dir, NAME);
  witness = new Witness(state, [log.key, other.key], clock);
});
afterEach(() => {
  state.close();
  rmSync(dir, { recursive: true, force: true });
});

/** The time of a cosignature that was answered, verified with the witness's key. */
const timeOf = (size: number, line: string | Buffer): number | null =>
  cosignatureTime(parseNote(Buffer.concat([log.note(size), Buffer.from(line)])), parseVkey(witness.vkey, COSIGNATURE));

test("it cosigns what goes on from the last, and says what it has", () => {
  const first = witness.answerAddCheckpoint(log.request(0, 5));
  expect([first.status, timeOf(5, first.body)]).toEqual([200, clock.now().getTime()]);
  clock.set("2026-11-21T04:10:00.000Z");
  const second = witness.answerAddCheckpoint(log.request(5, 300));
  expect([second.status, timeOf(300, second.body)]).toEqual([200, clock.now().getTime()]);
  // The same again, for freshness.
  expect(witness.answerAddCheckpoint(log.request(300, 300)).status).toBe(200);
  // Another log has a memory of its own.
  expect(witness.answerAddCheckpoint(other.request(0, 2)).status).toBe(200);
  const kept = witness.answerNewest(createHash("sha256").update(log.key.name).digest("hex"));
  const key = parseVkey(witness.vkey, COSIGNATURE);
  expect(openCheckpoint(kept.body as Buffer, { log: log.key, witness: key })).toMatchObject({ size: 300 });
  expect(witness.answerNewest("00").status).toBe(404);
});

describe("what it refuses, after it cosigned 5 leaves", () => {
  const proof = [Buffer.alloc(32, 1)];
  const bad = Buffer.from(log.request(5, 8).toString().replace("old 5", "old 05"));
  const unsigned = noteSigner(log.key.name, 99);
  const table: [string, Buffer, number, string?][] = [
    ["no empty line", Buffer.from("old 5\n"), 400],
    ["an old size with a leading zero", bad, 400],
    ["no note", Buffer.from("old 5\n\nhello"), 400],
    ["a short hash", Buffer.from(`old 5\nAAAA\n\n${log.note(8)}`), 400],
    ["64 hashes", formatAddCheckpoint({ old: 5, proof: Array(64).fill(proof[0]), checkpoint: log.note(8) }), 400],
    ["a log that it does not know", new SmallLog(noteSigner("x.example", 3)).request(0, 1), 404],
    [
      "another key of the log's name",
      formatAddCheckpoint({ old: 5, proof, checkpoint: log.note(8, undefined, unsigned) }),
      403,
    ],
    ["a signature of other bytes", Buffer.from(log.request(5, 8).toString().replace("\n8\n", "\n9\n")), 403],
    ["an old size above the checkpoint's", log.request(8, 5), 400],
    ["an older old size", log.request(0, 8), 409, "5\n"],
    ["a newer old size", log.request(6, 8), 409, "5\n"],
    ["a fork of what it cosigned", log.request(5, 8, "fork", 2), 422],
    ["the same size with another root", log.request(5, 5, "fork", 2), 422],
    ["the same size with a proof", formatAddCheckpoint({ old: 5, proof, checkpoint: log.note(5) }), 422],
    ["no proof", formatAddCheckpoint({ old: 5, proof: [], checkpoint: log.note(8) }), 422],
  ];
  test.each(table)("%s", (_name, body, status, says) => {
    expect(witness.answerAddCheckpoint(log.request(0, 5)).status).toBe(200);
    const answer = witness.answerAddCheckpoint(body);
    expect(answer.status).toBe(status);
    if (says) expect([answer.body, answer.type]).toEqual([says, "text/x.tlog.size"]);
    // It still goes on from 5.
    expect(witness.answerAddCheckpoint(log.request(5, 8)).status).toBe(200);
  });

  test("a proof from nothing, and an empty tree with another root", () => {
    expect(witness.answerAddCheckpoint(formatAddCheckpoint({ old: 0, proof, checkpoint: log.note(5) })).status).toBe(
      422,
    );
    const empty = log.note(0, log.leaves(1));
    expect(witness.answerAddCheckpoint(formatAddCheckpoint({ old: 0, proof: [], checkpoint: empty })).status).toBe(422);
    expect(
      witness.answerAddCheckpoint(formatAddCheckpoint({ old: 0, proof: [], checkpoint: log.note(0) })).status,
    ).toBe(200);
    expect(witness.answerAddCheckpoint(log.request(0, 5)).status).toBe(200);
  });
});

test("times of one log never go back, and a clock far behind signs nothing", () => {
  witness.answerAddCheckpoint(log.request(0, 5));
  const signed = clock.now().getTime();
  clock.set("2026-11-21T03:58:00.000Z");
  expect(timeOf(6, witness.answerAddCheckpoint(log.request(5, 6)).body)).toBe(signed);
  clock.set("2026-11-21T03:54:00.000Z");
  expect(witness.answerAddCheckpoint(log.request(6, 7)).status).toBe(503);
  expect(witness.answerAddCheckpoint(log.request(5, 7)).body).toBe("6\n");
});

test("key and memory survive a restart, are for the owner alone, and of one name", () => {
  witness.answerAddCheckpoint(log.request(0, 5));
  const { vkey } = witness;
  state.close();
  expect(() => WitnessState.open(dir, "witness.example/w2")).toThrow(/is of the witness witness.example\/w1/);
  state = WitnessState.open(dir, NAME);
  witness = new Witness(state, [log.key], clock);
  expect(witness.vkey).toBe(vkey);
  expect(witness.answerAddCheckpoint(log.request(0, 8)).body).toBe("5\n");
  expect(statSync(join(dir, "witness.sqlite")).mode & 0o777).toBe(0o600);
});

test("two processes with one file are one witness", () => {
  const second = WitnessState.open(dir, NAME);
  const twin = new Witness(second, [log.key], clock);
  expect(witness.answerAddCheckpoint(log.request(0, 5)).status).toBe(200);
  expect(twin.answerAddCheckpoint(log.request(0, 5, "fork", 2)).status).toBe(409);
  expect(twin.answerAddCheckpoint(log.request(5, 8)).status).toBe(200);
  expect(witness.answerAddCheckpoint(log.request(5, 8, "fork", 6)).status).toBe(409);
  second.close();
});

test("over HTTP, with bodies that are too long", async () => {
  const serving = await serve({ app: createWitnessApp(witness, createLogger("silent")), host: "127.0.0.1", port: 0 });
  const post = (body: Buffer) => fetch(`${serving.url}/add-checkpoint`, { method: "POST", body });
  try {
    const good = await post(log.request(0, 5));
    expect([good.status, timeOf(5, await good.text())]).toEqual([200, clock.now().getTime()]);
    const conflict = await post(log.request(0, 8));
    expect([conflict.status, conflict.headers.get("content-type"), await conflict.text()]).toEqual([
      409,
      "text/x.tlog.size",
      "5\n",
    ]);
    expect((await fetch(`${serving.url}/add-checkpoint`)).status).toBe(404);
    expect((await (await fetch(serving.url)).text()).trim()).toBe(witness.vkey);
    const hash = createHash("sha256").update(log.key.name).digest("hex");
    expect(await (await fetch(`${serving.url}/${hash}/checkpoint`)).text()).toContain("\n5\n");
    expect((await fetch(`${serving.url}/${"0".repeat(64)}/checkpoint`)).status).toBe(404);
    expect((await post(Buffer.alloc(200_000, "a"))).status).toBe(413);
  } finally {
    await serving.close();
  }
});
