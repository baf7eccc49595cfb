import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { COSIGNATURE, ED25519, formatVkey } from "../../infra/tree/note.ts";
import type { CardBundle } from "../../pipelines/published/card-bundle.ts";
import { liesOf } from "../helpers/bundle-lies.ts";
import { type LiveService, liveService } from "../helpers/client.ts";
import { runs } from "../helpers/programs.ts";
import { capOf, cardOf, listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { PYTHON } from "./judges.ts";

/** A card bundle as served, proven by the two scripts of docs/card-bundle.md and by `touchstone verify`. */
const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "../..");
const SUM = { url: "https://seller.example/sum" };
const OTHER = { url: "https://other.example/x" };
let record: PublicRecord;
let live: LiveService;
let dir: string;
let bundle: CardBundle;
const verifiers: Record<string, (file: string, ...keys: string[]) => [command: string, args: string[]]> = {
  python: (file, ...keys) => [PYTHON, [join(ROOT, "docs/verify-a-card.py"), file, ...keys]],
  go: (file, ...keys) => [join(dir, "verify-a-card"), [file, ...keys]],
  touchstone: (file, log, witness) => {
    const keys = [...(log ? ["--log-key", log] : []), ...(witness ? ["--witness-key", witness] : [])];
    return [process.execPath, [...runs("touchstone.ts"), "verify", file, ...keys]];
  },
};

const vkeysOf = ({ trust }: PublicRecord): [log: string, witness: string] => [
  formatVkey(trust.log, ED25519),
  formatVkey(trust.witness!, COSIGNATURE),
];

async function verdictOf(by: string, lie: CardBundle, ...keys: string[]): Promise<string> {
  const file = join(dir, `${by}.touchstone`);
  await writeFile(file, JSON.stringify(lie));
  const [command, args] = verifiers[by]!(file, ...keys);
  try {
    const { stdout } = await run(command, args, { cwd: ROOT });
    return /^proven: /m.exec(stdout)?.[0] ?? stdout;
  } catch (error) {
    const { code, stderr } = error as { code: number; stderr: string };
    return `${code}: ${stderr}`;
  }
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "bundle-"));
  record = await PublicRecord.open();
  const cards = [cardOf(SUM), cardOf(OTHER, { band: "C" })];
  await record.publish(
    [listingDraft(SUM)],
    [listingDraft(OTHER)],
    ...cards.map((card) => record.grades([card], "first")),
  );
  live = await liveService(record);
  const answer = await fetch(`${live.url}/v1/trust/${capOf(SUM)}/bundle`);
  expect(answer.headers.get("content-disposition")).toBe(`attachment; filename="${capOf(SUM)}.touchstone"`);
  bundle = (await answer.json()) as CardBundle;
  await run("go", ["build", "-o", join(dir, "verify-a-card"), join(ROOT, "docs/verify-a-card.go")]);
});
afterAll(async () => {
  await live?.close();
  await record?.close();
  await rm(dir, { recursive: true, force: true });
});

describe.each(Object.keys(verifiers))("%s", (by) => {
  test("proves the bundle as served", async () => {
    expect(await verdictOf(by, bundle)).toBe("proven: ");
  });

  test("proves no lie", async () => {
    const believed: string[] = [];
    // test/pipelines/published/card-bundle.test.ts has them all for our own code, without a process for each.
    const lies = liesOf(bundle).slice(0, by === "touchstone" ? 2 : undefined);
    for (const [lie, lying] of lies) {
      const verdict = await verdictOf(by, lying);
      if (!/^(?:1: NOT proven|11: )/.test(verdict)) believed.push(`${lie}: ${verdict}`);
    }
    expect(believed).toEqual([]);
  });

  test("proves it under the keys of the record, and not under another log's", async () => {
    const [log, witness] = vkeysOf(record);
    expect(await verdictOf(by, bundle, log, witness)).toBe("proven: ");
    const stranger = await PublicRecord.open();
    const [otherLog, otherWitness] = vkeysOf(stranger);
    await stranger.close();
    expect(await verdictOf(by, bundle, otherLog, otherWitness)).toMatch(/^(?:1: NOT proven|11: )/);
    expect(await verdictOf(by, bundle, log, otherWitness)).toMatch(/^(?:1: NOT proven|11: )/);
  });
});
