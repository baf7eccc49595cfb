import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { canonicalBytes, canonicalText } from "../../infra/canonical.ts";
import { signObject } from "../../infra/keys/sign.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { signCheckpoint } from "../../infra/tree/checkpoint.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../infra/tree/note.ts";
import { SEGMENT_LEAVES } from "../../infra/tree/path.ts";
import { writeTree } from "../../pipelines/4-publish/apply.ts";
import { PublishedFold } from "../../pipelines/4-publish/fold.ts";
import { writeIndex } from "../../pipelines/4-publish/index-build.ts";
import { writeKeys } from "../../pipelines/4-publish/keys.ts";
import type { Draft } from "../../pipelines/4-publish/leaves.ts";
import { EMPTY_LIVE, grow } from "../../pipelines/4-publish/live.ts";
import { checkpointKeys } from "../../pipelines/4-publish/publisher.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";
import { capOf, cardOf } from "../helpers/public-record.ts";
import { JWKS, SIGNERS } from "../pipelines/4-publish/world.ts";

const ORIGIN = "bench.example/tree";
const AT = "2026-11-21T12:00:00.000Z";
const specOf = (i: number) => ({ url: `https://seller${i % 9_973}.example/api/v1/resource/${i}` });
/** Says nothing; as long as a digest. */
const hashOf = (i: number): string => (Math.imul(i + 1, 2_654_435_761) >>> 0).toString(16).padStart(8, "0").repeat(8);

/** A signed record in a folder: keys, a listing and a card of every endpoint, an index of them all. */
export interface BenchRecord {
  dir: string;
  keys: { log: string; witness: string };
  leaves: number;
  remove: () => Promise<void>;
}

/** Cards differ in what real ones differ in, so that they pack as those do; every signature is a real one. */
export async function makeRecord(cards: number): Promise<BenchRecord> {
  const dir = await mkdtemp(join(tmpdir(), "record-bench-"));
  const store = await openDirectoryStore(join(dir, "public"));
  const fold = new PublishedFold();
  let live = EMPTY_LIVE;
  let entries: Buffer[] = [];
  const flush = async () => {
    const growth = grow(live, entries);
    await writeTree(store, growth);
    live = growth.live;
    entries = [];
  };
  const put = async (draft: Draft) => {
    const leaf = { ...draft, index: fold.size, seq: fold.nextSeq.get(draft.kind) ?? 0, at: AT } as Leaf;
    fold.apply(leaf);
    entries.push(Buffer.from(canonicalText(leaf)));
    if (entries.length === SEGMENT_LEAVES) await flush();
  };
  await put((await writeKeys(store, fold, JWKS, SIGNERS.cards, new Date(AT)))!);
  for (let i = 0; i < cards; i++) for (const draft of endpoint(i)) await put(draft);
  await put((await writeIndex(store, fold, SIGNERS.cards))!);
  await flush();
  const keys = checkpointKeys(ORIGIN, SIGNERS);
  const head = { origin: ORIGIN, size: fold.size, root: live.tree.root() };
  await store.create("checkpoint", signCheckpoint(head, keys.log, keys.witness, new Date(AT)));
  await store.create("hint/keys.json", canonicalBytes(fold.keys));
  await store.create("hint/index.json", canonicalBytes(fold.index));
  await store.close();
  return {
    dir,
    keys: { log: formatVkey(keys.log, ED25519), witness: formatVkey(keys.witness, COSIGNATURE) },
    leaves: fold.size,
    remove: () => rm(dir, { recursive: true, force: true }),
  };
}

/** Listing and card of endpoint i. */
export function endpoint(i: number): Draft[] {
  const spec = specOf(i);
  const { components, ...plain } = cardOf(spec);
  const share = (at: number): number => Number(((hashOf(i * 7 + at).charCodeAt(at % 8) % 97) / 97).toFixed(6));
  const own = Object.fromEntries(
    Object.entries(components!).map(([name, one], at) => [
      name,
      { ...one, point: share(at), n_eff: 30 + share(at + 9) },
    ]),
  );
  const card = signObject(SIGNERS.cards, {
    ...{ ...plain, components: own, composite: share(20), sample_count: 30 + (i % 400) },
    evidence_sample: [hashOf(i), hashOf(i + 1), hashOf(i + 2)],
  });
  return [
    {
      ...{ kind: "listing", capability_id: capOf(spec), url: spec.url, method: "GET", tool: null, class: "any" },
      ...{ description: `resource ${i} of a seller`, seller_controlled: true, defects: [] },
    } as Draft,
    {
      ...{ kind: "grade", day: "2026-11-21", raw_band: "B", headline: true, why: `B: ${30 + (i % 400)} paid calls.` },
      inputs: { positions: { "observations.free": i, "observations.paid": i }, digest: hashOf(i), kin: hashOf(1) },
      card,
    } as unknown as Draft,
  ];
}
