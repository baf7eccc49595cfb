import { decompress } from "zstd-napi";
import { sha256hex } from "../../../../infra/canonical.ts";
import { numberedKey } from "../../../../infra/store/numbered.ts";
import type { Store } from "../../../../infra/store/store.ts";
import { type Generation, generationKey } from "../../../../pipelines/4-publish/generation.ts";
import { RecordBroken } from "../../../helpers/prove-record.ts";

const positionsOf = ({ positions }: Generation): [string, number][] =>
  Object.entries(positions).flatMap(([topic, offsets]) =>
    Object.entries(offsets).map(([partition, next]): [string, number] => [`${topic}/${partition}`, next]),
  );

/**
 * The private side of a record: generations are dense, each goes on where the one before it ended, none takes input back,
 * each has its staging bundle, and the newest is what the checkpoint says; every run was taken. Not by the publisher's
 * own reader.
 * @param settled nobody is at work: the checkpoint may not lag behind.
 */
export async function proveGenerations(
  store: Store,
  checkpoint: { size: number; root: Buffer } | null,
  settled: boolean,
): Promise<void> {
  const problems: string[] = [];
  const keys = (await store.list("generation/")).map(({ key }) => key);
  let before: Generation | null = null;
  for (const [n, key] of keys.entries()) {
    const bytes = (await store.get(key))!.bytes;
    const generation = JSON.parse(Buffer.from(bytes).toString("utf8")) as Generation;
    if (key !== generationKey(n) || generation.n !== n) problems.push(`${key} is not generation ${n}`);
    if (before && JSON.stringify(before.new) !== JSON.stringify(generation.old)) problems.push(`${key} forks`);
    if ((before?.run ?? -1) > (generation.run ?? -1)) problems.push(`${key} takes runs back`);
    const now = new Map(positionsOf(generation));
    for (const [place, next] of before ? positionsOf(before) : []) {
      if ((now.get(place) ?? -1) < next) problems.push(`${key} takes ${place} back to ${now.get(place)}`);
    }
    const staged = await store.get(generation.staging);
    if (!staged || `staging/${sha256hex(decompress(staged.bytes))}` !== generation.staging) {
      problems.push(`${generation.staging} of ${key} is missing or something else`);
    }
    before = generation;
  }
  const [size, root] = [checkpoint?.size ?? 0, checkpoint?.root.toString("hex")];
  if ((before?.new.size ?? 0) < size) problems.push(`the checkpoint of ${size} is ahead of every generation`);
  if (settled && before && (before.new.size !== size || before.new.root !== root)) {
    problems.push(`the checkpoint of ${size} is not the newest generation, of ${before.new.size}`);
  }
  const runs = await store.list("runs/");
  if (settled && runs.length > 0 && numberedKey("runs", before?.run ?? -1) !== runs.at(-1)!.key) {
    problems.push(`run ${before?.run} is the newest taken, ${runs.at(-1)!.key} is there`);
  }
  if (problems.length) throw new RecordBroken(problems);
}
