import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { openCommand } from "../../../commands/audit.ts";
import { EXIT, exitCodeOf } from "../../../commands/exit.ts";
import { CommitmentAudit, openCommitment } from "../../../pipelines/audit/log.ts";
import { CommitmentFold } from "../../../pipelines/published/fold.ts";
import { DirectorySource } from "../../../pipelines/published/source.ts";
import { openSourceTreeHead } from "../../../pipelines/published/trust.ts";
import { commitmentHash } from "../../../pipelines/record/commitment.ts";
import type { CommitmentLeaf } from "../../../pipelines/record/leaf.ts";
import { runs } from "../../helpers/programs.ts";
import { auditOf } from "../../helpers/published.ts";
import { publishListings } from "../../helpers/publishing.ts";
import { capOf, JWKS, listing, World } from "../4-publish/world.ts";
import { LyingSource } from "../mirror/lies.ts";

/** What a buyer can show with salt and bytes, and what nobody can show without either. */
const SALT = Buffer.alloc(32, 7);
const ANSWER = Buffer.from('{"sum":3}');
const MOMENT = "2026-11-20T10:00:00.000Z";
const leafOf = (more: Partial<CommitmentLeaf> = {}): CommitmentLeaf => ({
  ...{ kind: "commitment", index: 1, seq: 0, at: "2026-11-20T11:00:00.000Z", capability_id: capOf("a") },
  ...{ moment: MOMENT, sha256: commitmentHash(SALT, ANSWER), ...more },
});

let world: World;
let dir: string;
beforeAll(async () => {
  world = await World.open();
  dir = join(world.dir, "public");
  const publisher = world.publisher();
  await publisher.publishKeys(JWKS);
  await publishListings(publisher, [listing("a"), listing("b")]);
  const { index: _, seq: __, at: ___, ...draft } = leafOf();
  const others = [8, 9].map((seed) => ({ ...draft, sha256: commitmentHash(Buffer.alloc(32, seed), ANSWER) }));
  await publisher.publishLeaves([...others, draft]);
  await writeFile(join(world.dir, "answer"), ANSWER);
});
afterAll(() => world.close());

const headOf = (source: DirectorySource) => openSourceTreeHead(source, {}, () => undefined);
const opened = async (salt: Uint8Array, bytes: Uint8Array) => {
  const source = new DirectorySource(dir);
  return openCommitment(source, await headOf(source), salt, bytes).catch((error: Error) => error.name);
};

describe("a commitment is opened", () => {
  test("by its salt and its bytes, each whole", async () => {
    expect(await opened(SALT, ANSWER)).toMatchObject({ index: 5, seq: 2, moment: MOMENT, capability_id: capOf("a") });
    const changed = (bytes: Buffer, at: number) => Buffer.from(bytes.map((byte, i) => (i === at ? byte ^ 1 : byte)));
    for (const at of SALT.keys()) expect(await opened(changed(SALT, at), ANSWER)).toBe("unknown");
    for (const at of ANSWER.keys()) expect(await opened(SALT, changed(ANSWER, at))).toBe("unknown");
    expect(await opened(SALT.subarray(1), ANSWER)).toBe("RangeError");
    // The first byte of the bytes is none of the salt.
    expect(await opened(SALT, ANSWER.subarray(1))).toBe("unknown");
  });

  test("by no leaf that the checkpoint does not hold", async () => {
    const honest = new DirectorySource(dir);
    const head = await headOf(honest);
    const bundle = `tile/entries/000.p/${head.size}`;
    for (const lie of ["tampered", "truncated", "missing"] as const) {
      const error = await openCommitment(new LyingSource(honest, bundle, lie, 0.6), head, SALT, ANSWER).then(
        () => null,
        (fault: Error) => fault,
      );
      expect([lie, error?.name]).toEqual([lie, expect.stringMatching(/^(?:Tampered|MissingObject)$/)]);
      expect(error?.message).toContain(bundle);
    }
    await expect(openCommitment(honest, { ...head, root: Buffer.alloc(32) }, SALT, ANSWER)).rejects.toThrow();
  });
});

describe("the audit", () => {
  test("counts them", async () => {
    const report = await auditOf(new DirectorySource(dir));
    expect(report.findings.find(({ check }) => check === "commitments")).toMatchObject({ result: "ok", checked: 3 });
  });

  test.each<[string, CommitmentLeaf[], object]>([
    ["one after the other", [leafOf(), leafOf({ sha256: "0".repeat(64) })], { result: "ok", checked: 2 }],
    ["the same twice", [leafOf(), leafOf({ index: 9, capability_id: capOf("b") })], { key: "leaf 9" }],
    ["before its hour was over", [leafOf({ at: "2026-11-20T10:59:59.999Z" })], { key: "leaf 1" }],
  ])("%s", (_, leaves, want) => {
    const [check, fold] = [new CommitmentAudit(), new CommitmentFold()];
    for (const leaf of leaves) check.add(leaf, fold.add(leaf));
    const { finding } = check;
    if ("key" in want) expect(finding).toMatchObject({ result: "broken", problems: [expect.objectContaining(want)] });
    else expect(finding).toMatchObject(want);
  });
});

describe("touchstone audit --open", () => {
  const run = async (...args: string[]) => {
    const root = resolve(import.meta.dirname, "../../..");
    const all = [...runs("touchstone.ts"), "audit", dir, ...args];
    return promisify(execFile)(process.execPath, all, { cwd: root }).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      (error: { code: number; stdout: string; stderr: string }) => error,
    );
  };
  const answer = () => join(world.dir, "answer");

  test("says which leaf it is, and where to look next", async () => {
    const said: string[] = [];
    const write = (text: unknown) => said.push(String(text)) > 0;
    const spies = [process.stdout, process.stderr].map((to) => vi.spyOn(to, "write").mockImplementation(write));
    await openCommand(dir, { also: [], open: answer(), salt: SALT.toString("hex") }).finally(() => {
      for (const spy of spies) spy.mockRestore();
    });
    expect(said.join("")).toMatch(/^proven: leaf 5 of .+\n.+\n.+\nnext: touchstone audit .+ --endpoint cap_/m);
  });

  test("as a process: one line for machines, code 0", async () => {
    const json = await run("--open", answer(), "--salt", SALT.toString("hex"), "--json");
    const { proven, tree_size: size, leaf } = JSON.parse(json.stdout) as Record<string, unknown>;
    expect([json.code, proven, size, leaf]).toMatchObject([0, true, 6, { index: 5, moment: MOMENT }]);
  });

  const ZEROS = "00".repeat(32);
  test.each<[string, () => { open?: string; salt?: string; endpoint?: string }, keyof typeof EXIT, string]>([
    ["another salt", () => ({ open: answer(), salt: ZEROS }), "unknown", "none of 6 leaves"],
    ["no salt", () => ({ open: answer() }), "usage", "need each other"],
    ["no file", () => ({ salt: ZEROS }), "usage", "need each other"],
    ["half a salt", () => ({ open: answer(), salt: "00" }), "usage", "64 hex digits"],
    ["a file that is not there", () => ({ open: join(dir, "nothing"), salt: ZEROS }), "unreadable", "nothing"],
    ["an endpoint beside it", () => ({ open: answer(), salt: ZEROS, endpoint: "x" }), "usage", "--endpoint"],
  ])("%s", async (_, words, exit, says) => {
    const error = await openCommand(dir, { also: [], ...words() }).then(
      () => null,
      (fault: Error) => fault,
    );
    expect([exitCodeOf(error), error?.message]).toEqual([EXIT[exit], expect.stringContaining(says)]);
  });
});
