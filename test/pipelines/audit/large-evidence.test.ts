import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import { ZstdPacking } from "../../../infra/zstd.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import { gather } from "../../../pipelines/audit/gather.ts";
import { type CardVerdict, readRelatedPartyTables, recomputeGathered } from "../../../pipelines/audit/recompute.ts";
import type { EvidenceFile } from "../../../pipelines/published/files.ts";
import { bucketOf } from "../../../pipelines/record/ids.ts";
import { runs } from "../../helpers/programs.ts";
import { capOf } from "../2-ingest/records.ts";
import { CAP, ForgedRecord, PAID, paidLine } from "./forged.ts";

/** Evidence that unpacks to more than an auditor may hold at once. */
const NOW = "2026-10-05T22:00:00.000Z";

/** Equal lines pack to nothing, and every hash of the file is right. */
test("a file of some kilobytes that unpacks to 70 MB is audited in a heap of 64 MB", {
  timeout: 300_000,
}, async () => {
  const EQUAL_LINES = 200_000;
  const dir = await mkdtemp(join(tmpdir(), "large-evidence-"));
  try {
    const record = new ForgedRecord();
    record.grade([paidLine(0)], NOW, { [PAID]: 1 });
    const packing = new ZstdPacking(true);
    const lines = Buffer.from(`${canonicalText({ ...paidLine(0), slot: "82832/67" })}\n`.repeat(1_000));
    for (let n = 0; n < EQUAL_LINES; n += 1_000) await packing.add(lines);
    const packed = await packing.end();
    expect([packed.packed.length < 32_768, packed.bytes > 70_000_000]).toEqual([true, true]);
    record.closeWith("2026-10-05", "2026-10-06T06:00:00.000Z", EQUAL_LINES, packed);
    await record.close("2026-10-06", "2026-10-07T06:00:00.000Z");
    await record.write(dir);
    const args = ["--max-old-space-size=64", ...runs("touchstone.ts"), "audit", dir, "--json"];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    expect(JSON.parse(stdout.trimEnd().split("\n").at(-1)!)).toMatchObject({ proven: true });
  } finally {
    await rm(dir, { recursive: true });
  }
});

describe("evidence of a bucket that is more than may be held", () => {
  const CAPS = [CAP];
  for (let n = 0; CAPS.length < 5; n++) if (bucketOf(capOf(`s${n}`)) === bucketOf(CAP)) CAPS.push(capOf(`s${n}`));
  CAPS.sort();
  const linesOf = (cap: string) => Array.from({ length: 20 }, (_, n) => paidLine(n, { capability_id: cap }));
  const bytesOfOne = linesOf(CAP).reduce((sum, line) => sum + canonicalText(line).length, 0);

  async function recomputed(maxBytes: number) {
    const record = new ForgedRecord();
    for (const cap of CAPS) record.grade(linesOf(cap), NOW, { [PAID]: 20 });
    await record.close("2026-10-05", "2026-10-06T06:00:00.000Z", CAPS.flatMap(linesOf));
    await record.close("2026-10-06", "2026-10-07T06:00:00.000Z");
    const { source, head } = await record.open();
    let reads = 0;
    const counting = {
      ...source,
      get: (key: string, maxBytes: number) => {
        if (key.startsWith("evidence/")) reads++;
        return source.get(key, maxBytes);
      },
    };
    const verdicts: CardVerdict[] = [];
    await recomputeGathered(counting, await gather(counting, head, "all"), (one) => verdicts.push(one), true, maxBytes);
    const caps = [...new Set(verdicts.map(({ capability_id }) => capability_id))];
    return { reads, caps, verdicts: new Set(verdicts.map(({ verdict }) => verdict)), says: verdicts[0]!.says };
  }

  test.each([
    ["is read once where it may be", 5, 1],
    ["is read again for each half of the endpoints", 2, 5],
    ["is read for one endpoint after the other", 1, 9],
  ])("%s, and every card comes out in its order", async (_, endpointsHeld, reads) => {
    const done = await recomputed(bytesOfOne * endpointsHeld);
    expect(done).toMatchObject({ reads, caps: CAPS, verdicts: new Set(["ok"]) });
  });

  test("of a single endpoint leaves its cards unproven", async () => {
    const done = await recomputed(bytesOfOne - 1);
    expect(done).toMatchObject({ caps: CAPS, verdicts: new Set(["not run"]) });
    expect(done.says).toBe("its evidence is more than can be held at once");
  });
});

test("of a file's tables of related parties only those are kept that cards name", async () => {
  const sellers = ["a", "b", "c"].map((name) => ({ cap: capOf(name), domain: null, pay_to: null }));
  const names = sellers.map((_, n) => new RelatedParties(sellers.slice(0, n + 1)).sha256);
  const packing = new ZstdPacking(true);
  for (const [n, seller] of sellers.entries())
    await packing.add(Buffer.from(`${canonicalText({ kin: names[n], add: [seller], remove: [] })}\n`));
  const { packed, sha256: unpacked_sha256, bytes: unpacked_bytes } = await packing.end();
  const file = {
    ...{ key: "evidence", day: "2026-10-05", sha256: sha256hex(packed), bytes: packed.length, rows: names.length },
    ...{ unpacked_sha256, unpacked_bytes },
  } as EvidenceFile;
  const source = { name: "memory", get: async () => packed, close: async () => undefined };
  const [empty] = (await readRelatedPartyTables(source, [])).keys();
  const all = await readRelatedPartyTables(source, [file]);
  expect([...all.keys()]).toEqual([empty, ...names]);
  const wanted = await readRelatedPartyTables(source, [file], undefined, new Set([names[1]!]));
  expect([...wanted.keys()]).toEqual([empty, names[1]]);
});
