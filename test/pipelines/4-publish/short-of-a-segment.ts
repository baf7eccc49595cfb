import type { Store } from "../../../infra/store/store.ts";
import { signCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { EMPTY_ROOT } from "../../../infra/tree/hash.ts";
import { SEGMENT_LEAVES } from "../../../infra/tree/path.ts";
import {
  type Generation,
  generationBytes,
  generationKey,
  stageLeaves,
} from "../../../pipelines/4-publish/generation.ts";
import { EMPTY_TREE, growTree } from "../../../pipelines/4-publish/live.ts";
import { writeTree } from "../../../pipelines/4-publish/recover.ts";
import { ORIGIN, TRUST } from "./world.ts";

/** Leaves of {@link shortOfASegment}. */
export const BEFORE = SEGMENT_LEAVES - 6;

/** Endpoint of leaf i: each is delisted once. */
export const goneCap = (i: number): string => `cap_${String(i).padStart(26, "0")}`;

/** A log just short of a segment, as another writer left it: made of the smallest leaves there are. */
export async function shortOfASegment(privateStore: Store, publicStore: Store, at: Date): Promise<void> {
  const entries = Array.from({ length: BEFORE }, (_, i) =>
    Buffer.from(
      `{"at":"${at.toISOString()}","capability_id":"${goneCap(i)}","index":${i},"kind":"delisting","seq":${i}}`,
    ),
  );
  const growth = growTree(EMPTY_TREE, entries);
  await writeTree(publicStore, growth);
  const root = growth.live.tree.root();
  const note = signCheckpoint({ origin: ORIGIN, size: BEFORE, root }, TRUST.log, TRUST.witness, at);
  await publicStore.swap("checkpoint", note, null);
  const generation: Generation = {
    v: 1,
    n: 0,
    old: { size: 0, root: EMPTY_ROOT.toString("hex") },
    new: { size: BEFORE, root: root.toString("hex") },
    staging: await stageLeaves(privateStore, entries),
    run: null,
    log: null,
    positions: {},
    writer: "another",
    at: at.toISOString(),
  };
  await privateStore.create(generationKey(0), generationBytes(generation));
}
