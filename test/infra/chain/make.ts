import type { Commit, SegmentRef } from "../../../infra/chain/commit.ts";
import type { Chain, CommitResult } from "../../../infra/chain/commits.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { RecordingFs } from "../store/recording-fs.ts";

export const PLACE = { logId: "00ff", topic: "observations.paid", partition: 3 };
export const FOLDER = "lake/00ff/observations.paid/3";
export const AT = new Date("2026-03-01T12:00:00.000Z");

/** The real directory store on a disk in memory. */
export const memoryStore = (): Promise<Store> => openDirectoryStore("/store", { fs: new RecordingFs() });

/** The file for positions first .. last; everybody who makes it makes the same bytes. */
export const bytesOf = (first: number, last: number): Buffer => Buffer.from(`rows ${first} to ${last}`);

export const put = (chain: Chain, first: number, last: number): Promise<SegmentRef> =>
  chain.putSegment(bytesOf(first, last), first, last, { rows: last - first + 1 });

/** Commit `n` records from the head as one file. */
export async function append(chain: Chain, n: number): Promise<CommitResult> {
  const { next: first } = await chain.head();
  const ref = await put(chain, first, first + n - 1);
  const next = first + n;
  return chain.commit({ first, next, lastEventId: `rec_${next - 1}`, add: [ref], remove: [], at: AT });
}

/** Replace all live files by one per run of positions without a hole between them. */
export async function compact(chain: Chain): Promise<CommitResult & { added: SegmentRef[] }> {
  const head = await chain.head();
  const runs: [number, number][] = [];
  for (const { first, last } of head.live) {
    const run = runs.at(-1);
    if (run && run[1] + 1 === first) run[1] = last;
    else runs.push([first, last]);
  }
  const added: SegmentRef[] = [];
  for (const [first, last] of runs) added.push(await put(chain, first, last));
  const remove = head.live.map((ref) => ref.file);
  const { next: first, lastEventId } = head;
  return { ...(await chain.commit({ first, next: first, lastEventId, add: added, remove, at: AT })), added };
}

/** All commits, proven one by one. */
export async function historyOf(chain: Chain): Promise<Commit[]> {
  const commits: Commit[] = [];
  for await (const commit of chain.history()) commits.push(commit);
  return commits;
}
