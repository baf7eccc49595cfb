import { describe, expect, test } from "vitest";
import { compress } from "zstd-napi";
import { sha256hex } from "../../../infra/canonical.ts";

import { ArchiveUnproven } from "../../../pipelines/5-archive/errors.ts";
import { LineIds } from "../../../pipelines/5-archive/line-ids.ts";
import { readBack } from "../../../pipelines/5-archive/read-back.ts";
import { fc } from "../../helpers/histories.ts";
import { MemoryStore } from "../mirror/memory-store.ts";

const idOf = (n: number): string => `rec_${n.toString(36).toUpperCase().padStart(26, "0")}`;
/** As lines of probes are: a text before the member may say what it likes, since its quotes are escaped. */
const lineOf = (id: string, said = ""): string => `${JSON.stringify({ fault: said, record_id: id, state: "asked" })}\n`;
const hashOf = (ids: readonly string[]): string => sha256hex(ids.join(""));

describe("ids that a text tells", () => {
  test("are those of its lines in their order, wherever the text is cut", () => {
    const said = fc.oneof(fc.string(), fc.constantFrom(',"record_id":"', idOf(7), "é".repeat(40), "\n"));
    const lines = fc.array(fc.tuple(fc.nat(1_000), said), { maxLength: 40 });
    fc.assert(
      fc.property(lines, fc.array(fc.nat(4_000), { maxLength: 60 }), (rows, cuts) => {
        const ids = rows.map(([n]) => idOf(n));
        const text = Buffer.from(rows.map(([n, words]) => lineOf(idOf(n), words)).join(""));
        const places = [0, ...cuts.filter((at) => at < text.length).sort((a, b) => a - b), text.length];
        const read = new LineIds();
        for (const [i, at] of places.entries()) read.read(text.subarray(at, places[i + 1] ?? text.length));
        const added = new LineIds();
        added.add(Buffer.from(ids.join("")));
        expect(read.digest()).toBe(hashOf(ids));
        expect(added.digest()).toBe(hashOf(ids));
      }),
    );
  });

  test("more than are kept at once are all read", () => {
    const ids = Array.from({ length: 10_001 }, (_, n) => idOf(n));
    const read = new LineIds();
    const text = Buffer.from(ids.map((id) => lineOf(id)).join(""));
    for (let at = 0; at < text.length; at += 65_536) read.read(text.subarray(at, at + 65_536));
    expect(read.digest()).toBe(hashOf(ids));
  });
});

describe("a file that is read back with the very bytes that were made", () => {
  const ids = [idOf(1), idOf(2), idOf(3)];
  const told = hashOf(ids);
  const through = async (lines: readonly string[]) => {
    const text = Buffer.from(lines.join(""));
    const store = new MemoryStore();
    await store.create("file", compress(text));
    const made = { key: "file", contentHash: sha256hex(text), unpackedBytes: text.length, rows: 3, told };
    return readBack(store, made);
  };

  test("holds when its lines tell the ids of its rows", async () => {
    expect(await through(ids.map((id) => lineOf(id)))).toBeInstanceOf(Uint8Array);
  });

  test.each<[string, string[]]>([
    ["tells the id of another row", [lineOf(ids[0]!), lineOf(idOf(9)), lineOf(ids[2]!)]],
    ["tells one twice", [lineOf(ids[0]!), lineOf(ids[0]!), lineOf(ids[2]!)]],
    ["tells them in another order", [lineOf(ids[1]!), lineOf(ids[0]!), lineOf(ids[2]!)]],
    ["has a line without one", [lineOf(ids[0]!), '{"state":"asked"}\n', lineOf(ids[2]!)]],
  ])("is refused when it %s", async (_, lines) => {
    await expect(through(lines)).rejects.toThrow(ArchiveUnproven);
  });
});
