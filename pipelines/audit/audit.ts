import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { evidenceFileOf, fetchEvidence, readEvidence } from "../mirror/evidence.ts";
import type { Source } from "../mirror/source.ts";
import { parseJson } from "../mirror/state.ts";
import { SampleLine } from "../record/evidence.ts";
import { auditCopies, type Copy, type ForkSeen } from "./copies.ts";
import { Check, type Finding, problemOf } from "./findings.ts";
import { provenLeaves } from "./leaves.ts";
import { type AskLive, auditLive } from "./live.ts";
import { auditHints, IndexAudit, LogAudit } from "./log.ts";
import { recompute } from "./recompute.ts";
import { ScheduleAudit } from "./schedules.ts";
import { auditTree } from "./tree.ts";

export interface AuditOptions {
  source: Source;
  /** The source's checkpoint, verified. */
  head: Checkpoint;
  /** Other copies whose history must be the same. */
  copies?: readonly Copy[];
  /** The live service behind the source, if there is one. */
  ask?: AskLive;
  onFinding?: (finding: Finding) => void;
  onProgress?: (text: string) => void;
}

export interface AuditReport {
  origin: string;
  size: number;
  root: string;
  cosigned_at: string | null;
  proven: boolean;
  findings: Finding[];
  forks: ForkSeen[];
}

/**
 * Prove a whole public record from its first leaf, believing nothing but the keys of its checkpoint (publication.md,
 * Auditor): every object that the checkpoint needs, every leaf and signature, every index rebuilt, every evidence file,
 * the calls against the opened plans, and every card recomputed. Goes on after a finding as far as it can stand on what
 * is left; nothing is written.
 * @throws SourceDown and faults of our own; what is wrong with the record is in the report
 */
export async function audit(options: AuditOptions): Promise<AuditReport> {
  const { source, head, copies = [], ask, onFinding = () => undefined, onProgress = () => undefined } = options;
  const findings: Finding[] = [];
  const found = (...more: Finding[]) => {
    for (const finding of more) {
      findings.push(finding);
      onFinding(finding);
    }
  };
  const forks: ForkSeen[] = [];
  let read = 0;
  const onEntries = (entries: readonly Buffer[]) => {
    read += entries.length;
    onProgress(`tree: ${read} of ${head.size} leaves`);
  };
  found(...(await auditTree(source, head, onEntries)));
  if (findings.every(({ result }) => result === "ok")) {
    const log = await auditLog(source, head, found, onProgress);
    await auditEvidence(source, log, found, onProgress);
    found(await auditCards(source, head, onProgress));
    if (ask) found(await auditLive(ask, log.fold, log.jwks));
  } else {
    found(...NEED_THE_TREE.map((check) => ({ check, result: "not run" as const, checked: 0, open: 0, problems: [] })));
  }
  if (copies.length > 0) {
    const compared = await auditCopies({ source, head }, copies);
    found(compared.finding);
    forks.push(...compared.forks);
  }
  const { origin, size, root, cosignedAt } = head;
  const proven = findings.every(({ result }) => result === "ok");
  return {
    origin,
    size,
    root: root.toString("hex"),
    cosigned_at: cosignedAt?.toISOString() ?? null,
    proven,
    findings,
    forks,
  };
}

/** Checks that stand on a whole tree. */
const NEED_THE_TREE = ["leaves", "indexes, rebuilt from the log", "evidence files", "cards, recomputed"];

type Found = (...findings: Finding[]) => void;

async function auditLog(
  source: Source,
  head: Checkpoint,
  found: Found,
  onProgress: (text: string) => void,
): Promise<LogAudit> {
  const log = new LogAudit(source);
  for await (const { index, bytes } of provenLeaves(source, head)) {
    await log.add(bytes);
    if (index % 1_000 === 0) onProgress(`log: ${index} of ${head.size} leaves`);
  }
  found(...log.findings, await auditHints(source, log.fold));
  // A log with holes has no index to rebuild.
  if (log.leaves.finding.result !== "ok") return log;
  const indexes = new IndexAudit(source, log.indexes);
  for await (const { index, leaf } of provenLeaves(source, head)) {
    await indexes.add(leaf);
    if (index % 1_000 === 0) onProgress(`indexes: ${index} of ${head.size} leaves`);
  }
  await indexes.readShards();
  found(...indexes.findings);
  return log;
}

async function auditEvidence(
  source: Source,
  log: LogAudit,
  found: Found,
  onProgress: (text: string) => void,
): Promise<void> {
  const files = new Check("evidence files");
  const schedules = new ScheduleAudit(log.fold);
  for (const leaf of log.evidence) {
    onProgress(`evidence: ${leaf.day}`);
    await files.look(async () => {
      const file = evidenceFileOf(leaf);
      if (!file) return;
      const samples: SampleLine[] = [];
      await readEvidence(await fetchEvidence(source, file), file, (line) => {
        const sample = file.holds === "rows" ? SampleLine.safeParse(parseJson(line)).data : undefined;
        if (sample) samples.push(sample);
      });
      for (const sample of samples) schedules.add(sample);
    });
  }
  found(files.finding, ...schedules.findings);
}

async function auditCards(source: Source, head: Checkpoint, onProgress: (text: string) => void): Promise<Finding> {
  const check = new Check("cards, recomputed");
  try {
    await recompute(source, head, "all", ({ capability_id, leaf, verdict, says, difference }) => {
      onProgress(`cards: ${capability_id}`);
      if (verdict === "ok") check.ok();
      else if (verdict === "pending") check.open(says ?? "its evidence is not published yet");
      else {
        const { field, expected, got } = difference!;
        check.bad({ key: `card of leaf ${leaf} (${capability_id}): ${field}`, expected, got });
      }
    });
  } catch (error) {
    const problem = problemOf(error);
    if (!problem) throw error;
    check.bad(problem);
  }
  return check.finding;
}
