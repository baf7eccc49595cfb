import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { compress } from "zstd-napi";
import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import type { EvidenceDraft } from "../../../pipelines/4-publish/filings.ts";
import { Oversized, Unproven } from "../../../pipelines/published/errors.ts";
import { evidenceKey } from "../../../pipelines/published/objects.ts";
import { bucketOf } from "../../../pipelines/record/ids.ts";
import { capOf, PublicRecord } from "../../helpers/public-record.ts";
import { grow, keysOf, Mirror, publishKeys, sourceDir, specOf, WatchedSource } from "./testbed.ts";

/** A record with three closed days: one with a file, one with a file packed elsewhere, one with nothing. */
let record: PublicRecord;
const opened: Mirror[] = [];
const mirror = async (): Promise<Mirror> => {
  const made = await Mirror.open();
  opened.push(made);
  return made;
};
const CAP = capOf(specOf("a0"));
const DAY = "2026-11-10";

const linesOf = (day: string, count: number): string =>
  Array.from({ length: count }, (_, i) => {
    const obs_id = `rec_${day.replaceAll("-", "")}${String(i).padStart(18, "0")}`;
    const line = {
      obs_id,
      capability_id: CAP,
      topic: "observations.free",
      position: i,
      t: `${day}T0${i % 10}:00:00.000Z`,
    };
    return `${canonicalText(line)}\n`;
  }).join("");

interface File {
  draft: EvidenceDraft;
  packed: Buffer;
}

function fileOf(
  day: string,
  text: string,
  packed = compress(Buffer.from(text)),
  more: Partial<EvidenceDraft> = {},
): File {
  const bucket = bucketOf(CAP);
  const draft: EvidenceDraft = {
    ...{ kind: "evidence", day, freeze: 0, part: 1, parts: 1, holds: "rows", bucket, below: null },
    ...{ rows: text.split("\n").length - 1, positions: { "observations.free": 1_000 } },
    ...{ key: evidenceKey(day, bucket, sha256hex(text)), sha256: sha256hex(packed), bytes: packed.length },
    ...{ unpacked_sha256: sha256hex(text), unpacked_bytes: Buffer.byteLength(text) },
    ...more,
  };
  return { draft, packed };
}

async function publish(to: PublicRecord, { draft, packed }: File): Promise<string> {
  if (draft.key) await to.store.create(draft.key, packed);
  await to.publish([draft]);
  return draft.key!;
}

const FIRST = fileOf(DAY, linesOf(DAY, 40));
const NOTHING = fileOf("2026-11-12", "", Buffer.alloc(0), {
  ...{ holds: "nothing", bucket: null, rows: 0, positions: {}, key: null, sha256: null, bytes: 0 },
  ...{ unpacked_sha256: null, unpacked_bytes: 0 },
});
beforeAll(async () => {
  record = await PublicRecord.open();
  await publishKeys(record);
  await grow(record, "a", 5);
  await publish(record, FIRST);
  await publish(record, fileOf("2026-11-11", linesOf("2026-11-11", 7)));
  await publish(record, NOTHING);
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(() => record.close());

describe("evidence files", () => {
  it("are copied with the leaves that name them, and adopted by a run that was cut off before", async () => {
    const own = await mirror();
    const cut = new WatchedSource(sourceDir(record));
    cut.onGet = (key) => {
      if (key.startsWith("evidence/2026-11-11/")) throw new Error("cut off");
    };
    await expect(own.run(cut, { keys: keysOf(record), width: 1 })).rejects.toThrow("cut off");
    const again = new WatchedSource(sourceDir(record));
    await own.run(again, { keys: keysOf(record) });
    expect(await own.proven(record, true)).toBe(record.committer.fold.size);
    expect(again.asked.filter((key) => key.startsWith("evidence/"))).toHaveLength(1);
    const { key } = FIRST.draft;
    expect(Buffer.from((await own.publicStore.get(key!))!.bytes)).toEqual(FIRST.packed);
  });

  const { packed, draft } = FIRST;
  it.each<[string, Uint8Array | null, RegExp]>([
    ["missing", null, /none/],
    ["cut short", packed.subarray(0, packed.length - 5), /[0-9a-f]{64} of \d+/],
    ["with a bit flipped", Buffer.from(packed.map((byte, i) => (i === 30 ? byte ^ 4 : byte))), /[0-9a-f]{64} of \d+/],
    [
      "packed by another than the leaf says",
      compress(Buffer.from(linesOf(DAY, 40)), { compressionLevel: 19 }),
      /[0-9a-f]{64} of \d+/,
    ],
    ["of another day", compress(Buffer.from(linesOf("2026-11-11", 7))), /[0-9a-f]{64} of \d+/],
    ["that is no zstd", Buffer.alloc(packed.length, 7), /[0-9a-f]{64} of \d+/],
  ])("one %s is missing with the reason, never exposed, and asked for again", async (_, shown, says) => {
    const own = await mirror();
    const from = new WatchedSource(sourceDir(record));
    from.shown.set(draft.key!, shown);
    const { size } = record.committer.fold;
    const done = await own.run(from, { keys: keysOf(record) });
    expect(done).toMatchObject({ result: "synced", tree_size: size, missing: [{ key: draft.key, tries: 1 }] });
    expect(done.missing[0]!.got).toMatch(says);
    expect(await own.proven(record, false, [draft.key!])).toBe(size);
    expect((await own.run(from)).missing).toMatchObject([{ key: draft.key, tries: 2, since: done.missing[0]!.since }]);
    from.shown.clear();
    from.asked.length = 0;
    expect(await own.run(from)).toMatchObject({ result: "idle", missing: [] });
    expect(from.asked).toEqual(["checkpoint", draft.key]);
    expect(await own.proven(record, true)).toBe(size);
    from.asked.length = 0;
    await own.run(from);
    expect(from.asked).toEqual(["checkpoint"]);
  });

  it("a folder whose file goes on without end is not read past what the leaf says", async () => {
    const own = await mirror();
    const from = new WatchedSource(sourceDir(record));
    from.onGet = (key) => {
      if (key === draft.key) throw new Oversized(key, draft.bytes);
    };
    expect((await own.run(from, { keys: keysOf(record) })).missing).toMatchObject([{ key: draft.key }]);
  });

  const bomb = compress(Buffer.alloc(200_000_000, 0x0a));
  const half = linesOf(DAY, 40).slice(0, -1);
  it.each<[string, File]>([
    ["unpacks without end", fileOf(DAY, linesOf(DAY, 3), bomb)],
    ["has fewer lines than it says", fileOf(DAY, linesOf(DAY, 3), undefined, { rows: 4 })],
    ["ends within a line", fileOf(DAY, half, undefined, { rows: 40 })],
  ])("a log that itself published a file that %s: it is missing for good and never exposed", async (_, file) => {
    const lying = await PublicRecord.open();
    await publishKeys(lying);
    const key = await publish(lying, file);
    const own = await mirror();
    const from = new WatchedSource(sourceDir(lying));
    for (const tries of [1, 2]) {
      expect(await own.run(from, { keys: keysOf(lying) })).toMatchObject({ tree_size: 2, missing: [{ key, tries }] });
      expect(await own.publicStore.head(key)).toBeNull();
    }
    await lying.close();
  });

  it.each<[string, File]>([
    [
      "is called by another hash",
      fileOf(DAY, linesOf(DAY, 3), undefined, { key: evidenceKey(DAY, 3, "0".repeat(64)) }),
    ],
    ["lies in another day's folder", fileOf(DAY, linesOf(DAY, 3), undefined, { day: "2026-11-09" })],
    [
      "claims to unpack to more than anybody reads",
      fileOf(DAY, linesOf(DAY, 3), undefined, { unpacked_bytes: 2 ** 40 }),
    ],
    ["is said to be nothing and has a name", fileOf(DAY, linesOf(DAY, 3), undefined, { holds: "nothing" })],
  ])("a log that itself published a leaf whose file %s is refused", async (_, file) => {
    const lying = await PublicRecord.open();
    await publishKeys(lying);
    await publish(lying, file);
    const own = await mirror();
    await expect(own.run(new WatchedSource(sourceDir(lying)), { keys: keysOf(lying) })).rejects.toThrow(Unproven);
    expect(await own.publicStore.get("checkpoint")).toBeNull();
    await lying.close();
  });
});
