import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { expectNothingLost, type Rows, rowsOf } from "../../helpers/archive-rows.ts";
import { randomInts, SEED } from "../../helpers/drawn.ts";
import { runs } from "../../helpers/programs.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { ofKind } from "../../helpers/published.ts";
import { handshake } from "../2-ingest/records.ts";
import { openTestLake } from "../2-ingest/world.ts";
import { TRUST } from "../4-publish/world.ts";
import { ArchiveWorld } from "./world.ts";

const FIRST = "2026-11-10";
const DAYS = 30;
const NOW = `${addDays(FIRST, 110 + DAYS)}T00:00:00.000Z`;
const KILLS = 3;

/** The job over this folder, as the leader of a process group. Resolves when it has begun. */
async function begin(dir: string): Promise<{ child: ChildProcess; output: () => string }> {
  const argv = [...runs("test/pipelines/5-archive/archive-child.ts"), dir, NOW];
  const child = spawn(process.execPath, argv, { detached: true, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout!.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  let errors = "";
  child.stderr!.setEncoding("utf8").on("data", (text: string) => {
    errors += text;
  });
  await new Promise<void>((resolve, reject) => {
    child.stdout!.once("data", () => resolve());
    child.once("close", () => reject(new Error(`the job ended before it had begun: ${errors}`)));
  });
  return { child, output: () => output };
}

/** It may have ended by then. */
function killGroup({ pid }: ChildProcess): void {
  try {
    process.kill(-pid!, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Rows of the lake and of the files, and how many files there are; the record is proven. */
async function where(dir: string): Promise<Rows & { manifests: number }> {
  const lake = await openTestLake(join(dir, "lake.duckdb"));
  const store = await openDirectoryStore(join(dir, "public"));
  try {
    const { leaves } = await proveRecord(store, { trust: TRUST });
    return { ...(await rowsOf([lake], store, leaves)), manifests: ofKind(leaves, "archive").length };
  } finally {
    await lake.close();
    await store.close();
  }
}

test("killed from outside at any moment, no row is lost and none is in two files; the last run files the rest", async () => {
  const dir = await mkdtemp(join(tmpdir(), "archive-killed-"));
  const world = await ArchiveWorld.open();
  const records = Array.from({ length: DAYS }, (_, n) => addDays(FIRST, n)).flatMap((day) =>
    ["a", "b", "c"].map((name) => handshake(name, `${day}T05:00:00.000Z`)),
  );
  const input = records.map(({ eventId }) => eventId).sort();
  try {
    await world.ingest.append(...records);
    await world.closeDays(`${addDays(FIRST, 109)}T00:00:00.000Z`);
    await world.ingest.lake.close();
    for (const name of ["private", "public", "lake.duckdb"]) {
      await cp(join(world.ingest.dir, name), join(dir, name), { recursive: true });
    }
    const random = randomInts(SEED);
    for (let n = 0; n < KILLS; n++) {
      const { child } = await begin(dir);
      const ended = once(child, "close");
      const afterMs = 1 + (random() % 1_500);
      console.log(`kill ${n} after ${afterMs} ms`);
      await new Promise((resolve) => setTimeout(resolve, afterMs));
      killGroup(child);
      await ended;
      expectNothingLost(await where(dir), input);
    }
    const { child, output } = await begin(dir);
    const [code] = (await once(child, "close")) as [number];
    expect([code, output().includes('"files"')]).toEqual([0, true]);
    const { lake, files, manifests } = await where(dir);
    expect([lake, files.sort(), manifests]).toEqual([[], input, DAYS * 4]);
  } finally {
    await world.close();
    await rm(dir, { recursive: true, force: true });
  }
});
