/**
 * What an audit spends its time on: unpacking and hashing a file against `zstd -dc FILE | sha256sum` of the same run, and
 * an index rebuilt after one in a hundred cards changed against one rebuilt whole.
 * Run: npx tsx test/bench/audit.bench.ts [MB unpacked, default 256] [endpoints, default 20,000]
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compress } from "zstd-napi";
import { sha256hex } from "../../infra/canonical.ts";
import { computeIndexList } from "../../pipelines/audit/log-reading.ts";
import { endpointOf } from "../../pipelines/published/endpoint.ts";
import { readFile } from "../../pipelines/published/files.ts";
import { PublishedFold } from "../../pipelines/published/fold.ts";
import { type IndexEntry, indexEntryOf } from "../../pipelines/published/index-lines.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";
import { shardsOf } from "../helpers/market-index.ts";
import { against, type Cost, ratio, shown, timed } from "./ratio.ts";
import { endpoint } from "./record-data.ts";

const [megabytes = 256, endpoints = 20_000] = process.argv.slice(2).map(Number);
const ROUNDS = 3;

const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
/** Long as a sample of the evidence is, and as alike as those are. */
const lineOf = (i: number): string =>
  `{"capability_id":"cap_${hash(`cap ${i % 500}`).slice(0, 26)}","delivered":${i % 9 > 0},"latency_ms":${(i * 7_919) % 2_000},` +
  `"obs_id":"rec_${hash(`rec ${i}`).slice(0, 26)}","position":${i},"response_sha256":"${hash(`body ${i}`)}","t":"${new Date(i * 1_000).toISOString()}",` +
  `"terms":{"amount":"1000","pay_to":"0x${hash(`seller ${i % 50}`).slice(0, 40)}"},"topic":"observations.paid"}\n`;

async function rehash(): Promise<void> {
  const parts: Buffer[] = [];
  let rows = 0;
  for (let size = 0; size < megabytes * 1_000_000; ) {
    const part = Buffer.from(Array.from({ length: 10_000 }, () => lineOf(rows++)).join(""));
    parts.push(part);
    size += part.length;
  }
  const text = Buffer.concat(parts);
  const packed = compress(text, { compressionLevel: 3 });
  const sha = { sha256: sha256hex(packed), unpacked_sha256: sha256hex(text) };
  const file = { key: "evidence", rows, bytes: packed.length, unpacked_bytes: text.length, ...sha };
  const dir = await mkdtemp(join(tmpdir(), "audit-bench-"));
  const path = join(dir, "file.zst");
  await writeFile(path, packed);
  const shell = async () => {
    const [code] = (await once(spawn("sh", ["-c", `zstd -dc '${path}' | sha256sum >/dev/null`]), "close")) as [number];
    if (code !== 0) throw new Error("zstd and sha256sum are needed");
  };
  const best = (costs: Cost[]): Cost => costs.reduce((least, one) => (one.wall < least.wall ? one : least));
  const [ours, theirs]: [Cost[], Cost[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    theirs.push(await timed(shell));
    ours.push(await timed(() => readFile(packed, file)));
  }
  await rm(dir, { recursive: true });
  console.log(`${(text.length / 1e6).toFixed(0)} MB in ${(packed.length / 1e6).toFixed(0)} MB, best of ${ROUNDS}`);
  console.log(`zstd -dc | sha256sum     ${shown(best(theirs))} (CPU of other processes)`);
  console.log(`ours, lines counted too  ${shown(best(ours))}`);
  const wall = (best(ours).wall / best(theirs).wall).toFixed(2);
  ratio("audit re-hash / zstd -dc | sha256sum, wall", wall, "<= 1.0");
}

async function indexes(): Promise<void> {
  const published = new PublishedFold();
  const [entries, lines] = [new Map<string, IndexEntry>(), new WeakMap()];
  const put = (draft: object & { kind: string }) => {
    const place = {
      index: published.size,
      seq: published.nextSeq.get(draft.kind) ?? 0,
      at: "2026-11-21T12:00:00.000Z",
    };
    const leaf = { ...draft, ...place } as unknown as Leaf;
    published.apply(leaf);
    const cap = endpointOf(leaf);
    const entry = cap === null ? null : indexEntryOf(published.caps.get(cap)!);
    if (entry) entries.set(entry.listing.capability_id, entry);
  };
  for (let i = 0; i < endpoints; i++) for (const draft of endpoint(i)) put(draft);
  computeIndexList([...entries.values()], lines);
  for (let i = 0; i < endpoints; i += 100) put(endpoint(i)[1]!);
  const whole = await timed(async () => shardsOf(published));
  const next = await timed(async () => computeIndexList([...entries.values()], lines));
  console.log(`index of ${endpoints}: whole ${shown(whole)}; after 1 % of the cards ${shown(next)}`);
  ratio(`index of ${endpoints} after 1 % of the cards / rebuilt whole`, against(next, whole), "< 1");
}

await rehash();
await indexes();
