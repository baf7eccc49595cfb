import { VerifyPool } from "../../infra/keys/verify-pool.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { Rollback } from "../published/errors.ts";
import { evidenceFileOf, fetchFile, readFile } from "../published/files.ts";
import { parseJson } from "../published/parse.ts";
import type { Source } from "../published/source.ts";
import { SampleLine } from "../record/evidence.ts";
import { auditCopies, type Copy, type ForkSeen } from "./copies.ts";
import { Check, type Finding, problemOf } from "./findings.ts";
import { type AskLive, auditLive } from "./live.ts";
import { auditHints } from "./log.ts";
import { LogReading } from "./log-reading.ts";
import { Packing, type PackingMode } from "./packing.ts";
import { recomputeGathered } from "./recompute.ts";
import { ScheduleAudit } from "./schedules.ts";
import { auditTree } from "./tree.ts";

export interface AuditOptions {
  source: Source;
  /** The source's checkpoint, verified. */
  head: Checkpoint;
  /** Other copies whose history must be the same. */
  copies?: readonly Copy[];
  /** A checkpoint of this log that was kept from an earlier time; its history has to be the beginning of the source's. */
  since?: Checkpoint;
  /** The live service behind the source, if there is one. */
  ask?: AskLive;
  /** Default `strict`; packing.ts. */
  packing?: PackingMode;
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
 * @throws SourceDown, Rollback against `since`, and faults of our own; what is wrong with the record is in the report
 */
export async function audit(options: AuditOptions): Promise<AuditReport> {
  const { source, head, copies = [], since, onFinding = () => undefined, onProgress = () => undefined } = options;
  if (since && head.size < since.size) throw new Rollback(since.size, head.size);
  const findings: Finding[] = [];
  const found = (...more: Finding[]) => {
    for (const finding of more) {
      findings.push(finding);
      onFinding(finding);
    }
  };
  const forks: ForkSeen[] = [];
  const pool = new VerifyPool();
  try {
    await auditRecord(options, pool, found, onProgress);
  } finally {
    await pool.close();
  }
  const others = since ? [...copies, { source: kept, head: since }] : copies;
  if (others.length > 0) {
    const compared = await auditCopies({ source, head }, others);
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

/** Where a checkpoint that was kept comes from: of no larger tree than the source's, so nothing else is asked of it. */
const kept: Source = { name: "the checkpoint that was kept", get: async () => null, close: async () => undefined };

/** Checks that stand on a whole tree. */
const NEED_THE_TREE = ["leaves", "indexes, rebuilt from the log", "evidence files", "cards, recomputed"];

type Found = (...findings: Finding[]) => void;
type Progress = (text: string) => void;

/** The log is read once: each bundle goes through the tree and then, leaf by leaf, through every check of the log. */
async function auditRecord(options: AuditOptions, pool: VerifyPool, found: Found, onProgress: Progress): Promise<void> {
  const { source, head, ask } = options;
  const packing = new Packing(options.packing ?? "strict");
  const log = new LogReading(source, head.size, pool, packing);
  let read = 0;
  const tree = await auditTree(source, head, packing, async (entries) => {
    for (const entry of entries) await log.add(entry);
    read += entries.length;
    onProgress(`log: ${read} of ${head.size} leaves`);
  });
  found(...tree);
  if (tree.some(({ result }) => result !== "ok")) {
    found(packing.finding);
    found(...NEED_THE_TREE.map((check) => ({ check, result: "not run" as const, checked: 0, open: 0, problems: [] })));
    return;
  }
  await log.end(head, onProgress);
  found(...log.findings, await auditHints(source, log.rules.fold), packing.finding);
  await auditEvidence(source, log, found, onProgress);
  found(await auditCards(source, log, onProgress));
  if (ask) found(await auditLive(ask, log.rules.fold, log.rules.jwks));
}

async function auditEvidence(source: Source, log: LogReading, found: Found, onProgress: Progress): Promise<void> {
  const files = new Check("evidence files");
  const schedules = new ScheduleAudit(log.rules.fold);
  for (const leaf of log.rules.evidence) {
    onProgress(`evidence: ${leaf.day}`);
    await files.look(async () => {
      const file = evidenceFileOf(leaf);
      if (!file) return;
      const samples: SampleLine[] = [];
      await readFile(await fetchFile(source, file), file, (line) => {
        const sample = file.holds === "rows" ? SampleLine.safeParse(parseJson(line)).data : undefined;
        if (sample) samples.push(sample);
      });
      for (const sample of samples) {
        schedules.add(sample);
        log.rules.archive.line(leaf, sample);
      }
    });
  }
  found(files.finding, ...schedules.findings);
  await log.rules.archive.read(source, log.rules.fold, onProgress);
  found(...log.rules.archive.findings);
}

async function auditCards(source: Source, log: LogReading, onProgress: Progress): Promise<Finding> {
  const check = new Check("cards, recomputed");
  try {
    await recomputeGathered(source, log.gathered(), ({ capability_id, leaf, verdict, says, difference }) => {
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
