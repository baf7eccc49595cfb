import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EXIT } from "../../../commands/exit.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../../infra/tree/note.ts";
import { type CardBundle, makeCardBundle } from "../../../pipelines/published/card-bundle.ts";
import { PublishedTree } from "../../../pipelines/published/reader.ts";
import { runs } from "../../helpers/programs.ts";
import { capOf, handshake, listing, urlOf } from "../2-ingest/records.ts";
import { JWKS, TRUST } from "../4-publish/world.ts";
import { ArchiveWorld } from "../5-archive/world.ts";

/** `touchstone recompute` as a process: what it prints and how it ends. */
let world: ArchiveWorld;
beforeAll(async () => {
  world = await ArchiveWorld.open();
  const probe = (name: string, day: string) => handshake(name, `${day}T05:00:00.000Z`);
  await world.ingest.append(listing("a", "2026-11-10T00:00:00.000Z"), probe("a", "2026-11-10"));
  await world.grade("2026-11-10T23:00:00.000Z");
  await world.closeDays("2026-11-11T06:00:00.000Z");
  await world.ingest.append(listing("new", "2026-11-11T07:00:00.000Z"), probe("new", "2026-11-11"));
  await world.grade("2026-11-11T23:00:00.000Z");
});
afterAll(() => world.close());

const keys = () => [
  ...["--log-key", formatVkey(TRUST.log, ED25519)],
  ...["--witness-key", formatVkey(TRUST.witness, COSIGNATURE)],
];

const stranger = () => formatVkey({ name: TRUST.log.name, publicKey: TRUST.witness.publicKey }, ED25519);

const run = (...args: string[]) => runWord("recompute", ...args);

async function runWord(...args: string[]) {
  const root = resolve(import.meta.dirname, "../../..");
  const all = [...runs("touchstone.ts"), ...args];
  return promisify(execFile)(process.execPath, all, { cwd: root }).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    (error: { code: number; stdout: string; stderr: string }) => error,
  );
}

test("says of every card what came of it, and where to look next", async () => {
  const { code, stdout, stderr } = await run(urlOf("a"), "--from", world.publicDir);
  expect([code, stderr]).toEqual([EXIT.ok, expect.stringContaining("believing the keys that")]);
  expect(stdout).toMatch(
    new RegExp(`^${capOf("a")}  ${urlOf("a")}\\nok {6}leaf \\d+  2026-11-10T23:00:00.000Z  LIVENESS`),
  );
  expect(stdout).toMatch(
    /\d+ ok, \d+ pending, 0 differ, 0 not run; \d+ leaves of record.example\/tree, evidence up to 2026-11-10/,
  );
  expect(stdout).toContain(`next: touchstone audit ${world.publicDir}`);
});

test("prints a line of JSON a card and one of the sum, believing only the keys given", async () => {
  const { code, stdout, stderr } = await run("all", "--from", world.publicDir, "--json", ...keys());
  const lines = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  expect([code, stderr]).toEqual([EXIT.ok, ""]);
  expect(lines.at(-1)).toMatchObject({ endpoints: 2, differs: 0, closed_to: "2026-11-10" });
  expect(lines.slice(0, -1).map(({ verdict }) => verdict)).toContain("ok");
});

describe("a witness policy", () => {
  let dir: string;
  /** The log's own witness stands for one that others run: whoever cosigned is a witness to a policy. */
  const files = {
    met: () => ["witness w", formatVkey(TRUST.witness, COSIGNATURE), "\nquorum w"],
    unmet: () => ["witness w", formatVkey({ ...TRUST.witness, name: "witness.example/w1" }, COSIGNATURE), "\nquorum w"],
    broken: () => ["quorum nobody"],
  };
  const policy = (name: keyof typeof files) => ["--witness-policy", join(dir, name)];
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "policy-"));
    for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), `${text().join(" ")}\n`);
  });
  afterAll(() => rm(dir, { recursive: true }));

  test.each([
    ["recompute", () => ["all", "--from", world.publicDir]],
    ["audit", () => [world.publicDir]],
    ["mirror", () => [world.publicDir, join(dir, "copy"), "--max-age", "0"]],
  ] as const)("%s ends with a code of its own below it, and believes nothing", async (word, args) => {
    const below = await runWord(word, ...args(), ...policy("unmet"));
    expect([below.code, below.stderr]).toEqual([EXIT.unwitnessed, expect.stringContaining("touchstone: ")]);
    expect(below.stdout).not.toMatch(/^(?:ok|proven)/m);
    expect(existsSync(join(dir, "copy/public/checkpoint"))).toBe(false);
    expect((await runWord(word, ...args(), ...policy("broken"))).code).toBe(EXIT.usage);
    expect((await runWord(word, ...args(), ...policy("met"))).code).toBe(EXIT.ok);
  });

  /** The record was cosigned on a day of November 2026, some days before this test runs. */
  describe("--max-age", () => {
    const [YOUNG, OLD] = ["60", "10000000000"];
    beforeAll(async () => {
      await writeFile(join(dir, "bundle"), JSON.stringify(await bundleOf("a")));
      const mirrored = await runWord("mirror", world.publicDir, join(dir, "mirrored"), "--max-age", OLD);
      expect(mirrored.code).toBe(EXIT.ok);
    });

    test.each<[string, () => string[]]>([
      ["mirror", () => ["mirror", world.publicDir, join(dir, "aged")]],
      ["audit", () => ["audit", world.publicDir]],
      ["recompute", () => ["recompute", "all", "--from", world.publicDir]],
      ["export of a source", () => ["export", world.publicDir, join(dir, "aged.parquet"), "--what", "grades"]],
      ["export of a mirror", () => ["export", join(dir, "mirrored"), join(dir, "aged.parquet"), "--what", "grades"]],
      ["verify", () => ["verify", join(dir, "bundle")]],
    ])("%s: 12 where the checkpoint was cosigned longer ago, with a policy and without; 0 else", async (name, args) => {
      const codes = async (seconds: string): Promise<unknown[]> => [
        (await runWord(...args(), "--max-age", seconds)).code,
        (await runWord(...args(), "--max-age", seconds, ...policy("met"))).code,
      ];
      expect([name, ...(await codes(YOUNG))]).toEqual([name, EXIT.stale, EXIT.stale]);
      // What is refused leaves nothing behind.
      for (const left of ["aged/public/checkpoint", "aged.parquet"]) expect(existsSync(join(dir, left))).toBe(false);
      expect([name, ...(await codes(OLD))]).toEqual([name, EXIT.ok, EXIT.ok]);
      await rm(join(dir, "aged.parquet"), { force: true });
      await rm(join(dir, "aged"), { recursive: true, force: true });
    });
  });
});

/** The bundle of the first card of an endpoint. */
async function bundleOf(name: string): Promise<CardBundle> {
  const snapshot = (await new PublishedTree(world.publicStore, TRUST).newest())!;
  for await (const { bytes, leaf, index } of snapshot.reader.leaves()) {
    if (leaf.kind !== "grade" || leaf.card.capability_id !== capOf(name)) continue;
    return makeCardBundle(snapshot, { index, leaf: bytes.toString("utf8"), capability_id: capOf(name) }, JWKS);
  }
  throw new Error(`no card of ${name} is published`);
}

test("an audit of one endpoint refuses what it would not look at", async () => {
  const words = ["audit", world.publicDir, "--endpoint", capOf("nobody")];
  for (const more of [
    ["--also", world.publicDir],
    ["--since", "none"],
  ])
    expect(await runWord(...words, ...more)).toMatchObject({
      code: EXIT.usage,
      stderr: expect.stringContaining("--also"),
    });
});

test.each<[string, () => string[], keyof typeof EXIT]>([
  ["words that name no endpoint", () => ["seller", "--from", world.publicDir], "usage"],
  ["a source that is none", () => ["all", "--from", "/nowhere/at/all"], "unreadable"],
  ["an endpoint nobody graded", () => [capOf("nobody"), "--from", world.publicDir], "nothing"],
  ["an endpoint whose first day is not closed", () => [urlOf("new"), "--from", world.publicDir], "nothing"],
  ["a key that is none", () => ["all", "--from", world.publicDir, "--log-key", "record.example/tree"], "usage"],
  ["another key under the same name", () => ["all", "--from", world.publicDir, "--log-key", stranger()], "tampered"],
])("%s", async (_, args, exit) => {
  const { code, stderr } = await run(...args());
  expect([code, stderr]).toEqual([EXIT[exit], expect.stringContaining("touchstone: ")]);
});
