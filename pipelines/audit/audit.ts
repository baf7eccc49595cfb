import { eachAtOnce } from "../../infra/concurrency.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { callsOf, fetchCall, type NamedCall } from "../published/calls.ts";
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
import { type CardVerdict, recomputeGathered } from "./recompute.ts";
import { salvage } from "./salvage.ts";
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
  await auditRecord(options, found, onProgress);
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

/** Calls that are fetched at once. */
const CALLS_AT_ONCE = 8;

type Found = (...findings: Finding[]) => void;
type Progress = (text: string) => void;

/** The log is read once: each bundle goes through the tree and then, leaf by leaf, through every check of the log. */
async function auditRecord(options: AuditOptions, found: Found, onProgress: Progress): Promise<void> {
  const { source, head, ask } = options;
  const packing = new Packing(options.packing ?? "strict");
  const log = await readLog(options, packing, found, onProgress);
  if (!log) {
    found(packing.finding);
    for (const name of NEED_THE_TREE) {
      const check = new Check(name);
      check.notRun("the tree cannot be proven");
      found(check.finding);
    }
    return;
  }
  await log.end(head, onProgress);
  const hints = await auditHints(source, log.rules.fold, log.hasHoles);
  found(...log.findings, hints, packing.finding);
  await auditEvidence(source, log, found, onProgress);
  found(await auditCards(source, log, onProgress));
  if (ask) found(await auditLive(ask, log.rules.fold, log.rules.jwks));
}

/** The log through its checks; of a broken tree what can be proven of it, and null when that is nothing. */
async function readLog(
  { source, head }: AuditOptions,
  packing: Packing,
  found: Found,
  onProgress: Progress,
): Promise<LogReading | null> {
  let read = 0;
  const into = (log: LogReading) => async (entries: readonly Buffer[]) => {
    for (const entry of entries) await log.add(entry);
    read += entries.length;
    onProgress(`log: ${read} of ${head.size} leaves`);
  };
  const log = new LogReading(source, head.size, packing);
  const tree = await auditTree(source, head, packing, into(log));
  if (tree.leads) {
    found(...tree.findings);
    return log;
  }
  read = 0;
  const salvaged = new LogReading(source, head.size, packing);
  try {
    found(...(await salvage(source, head, into(salvaged), (first, count) => salvaged.skip(first, count))));
    return salvaged;
  } catch (error) {
    if (!problemOf(error)) throw error;
    found(...tree.findings);
    return null;
  }
}

async function auditEvidence(source: Source, log: LogReading, found: Found, onProgress: Progress): Promise<void> {
  const files = new Check("evidence files");
  const schedules = new ScheduleAudit(log.rules.fold);
  const calls = new Map<string, NamedCall>();
  for (const leaf of log.rules.evidence) {
    onProgress(`evidence: ${leaf.day}`);
    const holds = await files.look(async () => {
      const file = evidenceFileOf(leaf);
      if (!file) return;
      const samples: SampleLine[] = [];
      const named: NamedCall[] = [];
      await readFile(await fetchFile(source, file), file, (line) => {
        if (file.holds === "rows") named.push(...callsOf(line));
        const sample = file.holds === "rows" ? SampleLine.safeParse(parseJson(line)).data : undefined;
        if (sample) samples.push(sample);
      });
      for (const sample of samples) {
        schedules.add(sample);
        log.rules.archive.line(leaf, sample);
      }
      for (const call of named) calls.set(call.sha256, call);
    });
    if (holds) continue;
    schedules.unread(leaf.holds === "rows" ? leaf.rows : 0);
    log.rules.archive.unread(leaf.day);
  }
  found(files.finding, ...schedules.findings, await auditCalls(source, [...calls.values()], onProgress));
  await log.rules.archive.read(source, log.rules.fold, onProgress);
  found(...log.rules.archive.findings);
}

/** The bytes of bought calls that their buyers published: each is what a line of the evidence says of it. */
async function auditCalls(source: Source, calls: readonly NamedCall[], onProgress: Progress): Promise<Finding> {
  const check = new Check("bought calls, published");
  await eachAtOnce(calls, CALLS_AT_ONCE, async (call) => {
    onProgress(`calls: ${call.sha256}`);
    await check.look(async () => void (await fetchCall(source, call)));
  });
  return check.finding;
}

async function auditCards(source: Source, log: LogReading, onProgress: Progress): Promise<Finding> {
  const check = new Check("cards, recomputed");
  try {
    const told = ({ capability_id, leaf, verdict, says, difference }: CardVerdict) => {
      onProgress(`cards: ${capability_id}`);
      if (verdict === "ok") check.ok();
      else if (verdict === "not run") check.notRun(says!);
      else if (verdict === "pending") check.open(says ?? "its evidence is not published yet");
      else {
        const { field, expected, got } = difference!;
        check.bad({ key: `card of leaf ${leaf} (${capability_id}): ${field}`, expected, got });
      }
    };
    await recomputeGathered(source, log.gathered(), told, true);
  } catch (error) {
    const problem = problemOf(error);
    if (!problem) throw error;
    check.bad(problem);
  }
  return check.finding;
}
