import { decompress } from "zstd-napi";
import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { type AuditReport, audit } from "../../pipelines/audit/audit.ts";
import type { Finding } from "../../pipelines/audit/findings.ts";
import { RecordReader, readCheckpoint } from "../../pipelines/published/reader.ts";
import type { Source } from "../../pipelines/published/source.ts";
import { openSourceTreeHead } from "../../pipelines/published/trust.ts";
import { archiveFileKey, dayOfManifest } from "../../pipelines/record/archive.ts";
import type { ArchiveLeaf, Leaf } from "../../pipelines/record/leaf.ts";

/** A public record as our own readers and our own auditor read it. prove-record.ts reads it without them. */

export async function leavesOf(store: Store, trust: CheckpointTrust): Promise<Leaf[]> {
  const reader = await RecordReader.open(store, (await readCheckpoint(store, trust))!);
  const leaves: Leaf[] = [];
  for await (const { leaf } of reader.leaves()) leaves.push(leaf);
  return leaves;
}

export const ofKind = <K extends Leaf["kind"]>(leaves: readonly Leaf[], kind: K) =>
  leaves.filter((leaf): leaf is Extract<Leaf, { kind: K }> => leaf.kind === kind);

/** Lines of a packed file of the public store. */
export async function linesAt(store: Pick<Store, "get">, key: string): Promise<string[]> {
  const text = decompress((await store.get(key))!.bytes).toString("utf8");
  return text === "" ? [] : text.trimEnd().split("\n");
}

/** Its lines, parsed. */
export const valuesAt = async (store: Pick<Store, "get">, key: string): Promise<Record<string, unknown>[]> =>
  (await linesAt(store, key)).map((line) => JSON.parse(line));

export const fileKeyOf = ({ manifest }: ArchiveLeaf): string =>
  archiveFileKey(manifest.subject, dayOfManifest(manifest), manifest.content_hash);

/** Record ids in the standing files of probes: whoever reads the archive reads these, and no other. */
export async function archivedIds(store: Pick<Store, "get">, leaves: readonly Leaf[]): Promise<string[]> {
  const archive = ofKind(leaves, "archive");
  const replaced = new Set(archive.map(({ supersedes }) => supersedes));
  const ids: string[] = [];
  for (const leaf of archive) {
    if (replaced.has(leaf.manifest.id) || !leaf.manifest.subject.endsWith("_probes")) continue;
    for (const { record_id } of await valuesAt(store, fileKeyOf(leaf))) ids.push(String(record_id));
  }
  return ids;
}

/** What an auditor says of a source whose keys it takes as the source names them. */
export const auditOf = async (source: Source, more: Partial<Parameters<typeof audit>[0]> = {}): Promise<AuditReport> =>
  audit({ source, head: await openSourceTreeHead(source, {}, () => undefined), ...more });

export const notOk = ({ findings }: AuditReport): Finding[] => findings.filter(({ result }) => result !== "ok");
