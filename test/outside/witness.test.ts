import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import Database from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePort } from "../../fixtures/ports.ts";
import { sha256 } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { openCheckpoint } from "../../infra/tree/checkpoint.ts";
import { cosignatureTime } from "../../infra/tree/cosignature.ts";
import { COSIGNATURE, ED25519, formatVkey, type NoteKey, parseNote, parseVkey } from "../../infra/tree/note.ts";
import { readPolicy } from "../../infra/tree/policy.ts";
import { type WitnessAddress, Witnesses } from "../../pipelines/4-publish/witnesses.ts";
import { WitnessState } from "../../pipelines/witness/state.ts";
import { Witness } from "../../pipelines/witness/witness.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { createWitnessApp } from "../../serving/witness-app.ts";
import { POLICIES } from "../helpers/policies.ts";
import { JWKS, listing, TRUST, World } from "../pipelines/4-publish/world.ts";
import { torchwood } from "./judges.ts";

/** Torchwood (Go): its witness `litewitness` cosigns our log, and its library reads our checkpoints under policies. */
const run = promisify(execFile);
const dir = mkdtempSync(join(tmpdir(), "witness-"));
const children: ChildProcess[] = [];
let world: World;
let lite: WitnessAddress;
let own: WitnessAddress & { serving: Serving; state: WitnessState };
let programs: { litewitness: string; reader: string };

async function answers(url: string): Promise<void> {
  for (let tries = 0; tries < 6_000; tries++) {
    if (
      await fetch(url).then(
        ({ ok }) => ok,
        () => false,
      )
    )
      return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`${url} does not answer`);
}

/** litewitness with a key in an agent of its own, that knows our log. */
async function litewitness(): Promise<WitnessAddress> {
  const [key, socket, db] = [join(dir, "key"), join(dir, "agent"), join(dir, "litewitness.db")];
  execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", key]);
  children.push(spawn("ssh-agent", ["-a", socket, "-D"], { stdio: "ignore" }));
  for (let tries = 0; ; tries++) {
    const env = { ...process.env, SSH_AUTH_SOCK: socket };
    if (
      await run("ssh-add", ["-q", key], { env }).then(
        () => true,
        () => tries > 3_000,
      )
    )
      break;
    await new Promise((done) => setTimeout(done, 50));
  }
  const fingerprint = execFileSync("ssh-keygen", ["-lf", `${key}.pub`], { encoding: "utf8" }).split(" ")[1]!;
  const name = "witness.example/lite";
  const url = `http://127.0.0.1:${await freePort()}`;
  const options = ["-db", db, "-name", name, "-key", fingerprint, "-ssh-agent", socket, "-listen", url.slice(7)];
  children.push(spawn(programs.litewitness, options, { stdio: "ignore" }));
  await answers(`${url}/`);
  // What its `witnessctl add-log` and `add-key` write; that program needs a module that is not to be had.
  const tables = new Database(db);
  const empty = sha256(Buffer.alloc(0)).toString("base64");
  tables.prepare("INSERT INTO log (origin, tree_size, tree_hash) VALUES (?, 0, ?)").run(TRUST.log.name, empty);
  tables.prepare("INSERT INTO key (origin, key) VALUES (?, ?)").run(TRUST.log.name, formatVkey(TRUST.log, ED25519));
  tables.close();
  const material = Buffer.from(readFileSync(`${key}.pub`, "utf8").split(" ")[1]!, "base64");
  return { name: "lite", key: { name, publicKey: material.subarray(-32) }, url };
}

beforeAll(async () => {
  programs = torchwood(dir);
  world = await World.open();
  lite = await litewitness();
  const state = WitnessState.open(join(dir, "own"), "witness.example/own");
  const witness = new Witness(state, [TRUST.log], systemClock);
  const serving = await serve({ app: createWitnessApp(witness, createLogger("silent")), host: "127.0.0.1", port: 0 });
  own = { name: "own", key: parseVkey(witness.vkey, COSIGNATURE), url: serving.url, serving, state };
});
afterAll(async () => {
  for (const child of children) child.kill("SIGKILL");
  await own?.serving.close();
  own?.state.close();
  await world?.close();
  await rm(dir, { recursive: true, force: true });
});

const publisherOf = (of: World) =>
  of.publisher({
    witnesses: new Witnesses({
      ...{ witnesses: [lite, own], quorum: 0, patienceMs: 300_000, belowQuorum: "publish" as const },
      ...{ clock: systemClock, logger: createLogger("silent"), metrics: of.metrics },
    }),
  });
const checkpointOf = async (of: World) => (await of.publicStore.get("checkpoint"))!.bytes;
const cosigners = async (of: World): Promise<string[]> => {
  const note = parseNote(await checkpointOf(of));
  return [lite, own].flatMap(({ name, key }) => (cosignatureTime(note, key) === null ? [] : [name]));
};

test("litewitness cosigns each checkpoint, also of a publisher that does not know its size", async () => {
  const publisher = publisherOf(world);
  await publisher.publishKeys(JWKS);
  expect(await cosigners(world)).toEqual(["lite", "own"]);
  for (const name of ["a", "b", "c"]) {
    await publisher.publishLeaves([{ kind: "listing", ...listing(name) }]);
    expect(await cosigners(world)).toEqual(["lite", "own"]);
  }
  const again = publisherOf(world);
  for (let n = 0; n < 300; n += 100) {
    const many = Array.from({ length: 100 }, (_, i) => ({ kind: "listing" as const, ...listing(`m${n + i}`) }));
    await again.publishLeaves(many);
    expect(await cosigners(world)).toEqual(["lite", "own"]);
  }
});

test("litewitness and ours refuse another history of the same log", async () => {
  const forked = await World.open();
  try {
    const publisher = publisherOf(forked);
    await publisher.publishKeys(JWKS);
    const other = Array.from({ length: 400 }, (_, i) => ({ kind: "listing" as const, ...listing(`other${i}`) }));
    await publisher.publishLeaves(other);
    expect(await cosigners(forked)).toEqual([]);
  } finally {
    await forked.close();
  }
});

const vkey = ({ key }: { key: NoteKey }): string => formatVkey(key, COSIGNATURE);
const strangersVkey = formatVkey({ name: "witness.example/none", publicKey: TRUST.log.publicKey }, COSIGNATURE);
const keysOf = () => ({
  ...{ log: formatVkey(TRUST.log, ED25519), lite: vkey(lite), own: vkey(own), nobody: strangersVkey },
});

describe("a policy", () => {
  test.each(POLICIES)("%s: torchwood and we say the same of our checkpoint", async (_, text, holds) => {
    const [policy, checkpoint] = [join(dir, "policy"), join(dir, "checkpoint")];
    await writeFile(policy, text(keysOf()));
    await writeFile(checkpoint, await checkpointOf(world));
    const theirs = await run(programs.reader, [policy, checkpoint]).then(
      ({ stdout }) => stdout.startsWith(TRUST.log.name),
      () => false,
    );
    const ours = await (async () => {
      const read = readPolicy(Buffer.from(text(keysOf())));
      return openCheckpoint(await checkpointOf(world), { log: TRUST.log, policy: read }).size > 0;
    })().catch((error: { code: string }) => (error.code === "usage" ? null : false));
    expect([ours ?? false, ours]).toEqual([theirs, holds]);
  });
});
