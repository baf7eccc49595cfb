import { forEachConcurrent } from "../../infra/concurrency.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { sameHash } from "../../infra/tree/hash.ts";
import { headlineOf } from "../published/caps.ts";
import { parseJson, Rollback } from "../published/errors.ts";
import {
  evidenceFileOf,
  fetchCall,
  fetchFile,
  type NamedCall,
  publishedCallsOf,
  readFile,
  readProvenLines,
} from "../published/files.ts";
import type { PublishedFold } from "../published/fold.ts";
import { RecordReader } from "../published/reader.ts";
import { createSourceFetch, type Source } from "../published/source.ts";
import { SampleLine } from "../record/evidence.ts";
import { Check, type Finding, PackedBytesCheck, type PackingMode, problemOf } from "./findings.ts";
import { auditHints } from "./log.ts";
import { LogReading } from "./log-reading.ts";
import { type CardVerdict, recomputeGathered } from "./recompute.ts";
import { ScheduleAudit } from "./schedules.ts";
import { auditTree, salvage } from "./tree.ts";

export interface AuditOptions {
  source: Source;
  /** The source's checkpoint, whose signatures the caller has verified. */
  head: Checkpoint;
  /** Other copies of the record. They must have the same history as `source`. */
  copies?: readonly Copy[];
  /** A checkpoint of this log that the caller kept from an earlier time. The source's tree must begin with its tree. */
  since?: Checkpoint;
  /** Called after the copies were compared and show no fork. What it throws ends the audit. */
  onNoFork?: () => void;
  /** Requests a path from the source's live service. Without it live answers are not checked. */
  ask?: AskLive;
  /** Default `strict`; see findings.ts. */
  packing?: PackingMode;
  onFinding?: (finding: Finding) => void;
  onProgress?: (text: string) => void;
}

export interface AuditReport {
  origin: string;
  tree_size: number;
  root: string;
  cosigned_at: string | null;
  proven: boolean;
  findings: Finding[];
  forks: ForkSeen[];
}

/**
 * Proves a whole public record from its first leaf, trusting only the keys of its checkpoint (publication.md,
 * Auditor): every object that the checkpoint needs, every leaf and signature, every index, which is rebuilt, every
 * evidence and archive file, the calls against the plans whose salt was revealed, and every card, which is recomputed.
 * After a problem it continues with everything that does not depend on it. Nothing is written.
 * @throws SourceDown, Rollback against `since`, what `onNoFork` throws, and faults of our own, unless a fork was
 * found; faults of the record are in the report
 */
export async function audit(options: AuditOptions): Promise<AuditReport> {
  const { source, head, copies = [], since, onFinding = () => undefined, onProgress = () => undefined } = options;
  const findings: Finding[] = [];
  const addFindings = (...more: Finding[]) => {
    for (const finding of more) {
      findings.push(finding);
      onFinding(finding);
    }
  };
  const isRollback = since !== undefined && head.size < since.size;
  // A kept checkpoint has no tiles. If its tree is larger than the source's, the two cannot be compared.
  const otherCopies = since && !isRollback ? [...copies, { source: KEPT_CHECKPOINT_SOURCE, head: since }] : copies;
  const copiesCheck = new Check("other copies");
  const forks: ForkSeen[] = [];
  // The copies are compared first, so that the audited source cannot end the audit before a fork is found.
  let copiesError: unknown = null;
  await auditCopies({ source, head }, otherCopies, copiesCheck, forks).catch((error: unknown) => {
    copiesError = error;
  });
  try {
    if (forks.length === 0) options.onNoFork?.();
    if (isRollback) throw new Rollback(since.size, head.size);
    await auditRecord(options, addFindings, onProgress);
  } catch (error) {
    if (forks.length === 0) throw error;
    const check = new Check("the rest of the record");
    check.addProblem({ key: source.name, expected: "an audit to the end", got: (error as Error).message });
    addFindings(check.finding);
  }
  if (copiesError && forks.length === 0) throw copiesError;
  if (otherCopies.length > 0) addFindings(copiesCheck.finding);
  const { origin, size, root, cosignedAt } = head;
  const proven = findings.every(({ result }) => result === "ok");
  return {
    origin,
    tree_size: size,
    root: root.toString("hex"),
    cosigned_at: cosignedAt?.toISOString() ?? null,
    proven,
    findings,
    forks,
  };
}

/**
 * The source of `since`, a kept checkpoint. Its tree is not larger than the audited one, so nothing is fetched from it.
 */
const KEPT_CHECKPOINT_SOURCE: Source = {
  name: "the checkpoint that was kept",
  get: async () => null,
  close: async () => undefined,
};

/** Names of the checks that are reported as not run when the tree cannot be proven. */
const CHECKS_OF_PROVEN_TREE = ["leaves", "indexes, rebuilt from the log", "evidence files", "cards, recomputed"];

/** Number of bought calls that are fetched at once. */
const CALLS_AT_ONCE = 8;
/**
 * Largest number of calls that are held from the line that names them until they are fetched; each takes about 250
 * bytes.
 */
const MAX_HELD_CALLS = 1 << 18;

type AddFindings = (...findings: Finding[]) => void;
type Progress = (text: string) => void;

/** Runs all checks of the record: tree and log first, then evidence, archive, cards and live answers. */
async function auditRecord(options: AuditOptions, addFindings: AddFindings, onProgress: Progress): Promise<void> {
  const { source, head, ask } = options;
  const packing = new PackedBytesCheck(options.packing ?? "strict");
  const log = await readLog(options, packing, addFindings, onProgress);
  if (!log) {
    addFindings(packing.finding);
    for (const name of CHECKS_OF_PROVEN_TREE) {
      const check = new Check(name);
      check.countNotRun("the tree cannot be proven");
      addFindings(check.finding);
    }
    return;
  }
  await log.end(head, onProgress);
  const hints = await auditHints(source, log.logAudit.fold, log.hasHoles);
  addFindings(...log.findings, hints, packing.finding);
  await auditEvidence(source, log, addFindings, onProgress);
  addFindings(await auditCards(source, log, onProgress));
  if (ask) addFindings(await auditLive(ask, log.logAudit.fold, log.logAudit.jwks));
}

/**
 * Reads the log: checks each bundle of entries against the tree, and each leaf by all checks of the log. If the entries
 * do not give the signed root, it reads the log again, and then only the leaves that can be proven.
 * @returns null when no leaf can be proven
 */
async function readLog(
  { source, head }: AuditOptions,
  packing: PackedBytesCheck,
  addFindings: AddFindings,
  onProgress: Progress,
): Promise<LogReading | null> {
  let leavesRead = 0;
  const addEntriesTo = (log: LogReading) => async (entries: readonly Buffer[]) => {
    for (const entry of entries) await log.add(entry);
    leavesRead += entries.length;
    onProgress(`log: ${leavesRead} of ${head.size} leaves`);
  };
  const log = new LogReading(source, head.size, packing);
  const tree = await auditTree(source, head, packing, addEntriesTo(log));
  if (tree.givesRoot) {
    addFindings(...tree.findings);
    return log;
  }
  leavesRead = 0;
  const salvagedLog = new LogReading(source, head.size, packing);
  try {
    addFindings(
      ...(await salvage(source, head, addEntriesTo(salvagedLog), (first, count) => salvagedLog.skip(first, count))),
    );
    return salvagedLog;
  } catch (error) {
    if (!problemOf(error)) throw error;
    addFindings(...tree.findings);
    return null;
  }
}

/** Checks evidence files, bought calls, schedules and the archive. */
async function auditEvidence(
  source: Source,
  log: LogReading,
  addFindings: AddFindings,
  onProgress: Progress,
): Promise<void> {
  const files = new Check("evidence files");
  const schedules = new ScheduleAudit(log.logAudit.fold, log.hasHoles);
  const calls = new CallAudit(source, onProgress);
  for (const leaf of log.logAudit.evidence) {
    onProgress(`evidence: ${leaf.day}`);
    const isReadable = await files.runStep(async () => {
      const file = evidenceFileOf(leaf);
      if (!file) return;
      const packed = await fetchFile(source, file);
      if (file.holds !== "rows") return readFile(packed, file);
      await readProvenLines(packed, file, (line) => {
        for (const call of publishedCallsOf(line)) calls.add(call);
        const sample = SampleLine.safeParse(parseJson(line)).data;
        if (!sample) return;
        schedules.add(sample);
        log.logAudit.archiveAudit.addLine(leaf, sample);
      });
    });
    await calls.checkIfMany();
    if (isReadable) continue;
    schedules.noteUnreadLines(leaf.holds === "rows" ? leaf.rows : 0);
    log.logAudit.archiveAudit.noteUnreadFile(leaf.day);
  }
  await calls.check();
  addFindings(files.finding, ...schedules.findings, calls.finding);
  await log.logAudit.archiveAudit.checkFiles(source, log.logAudit.fold, onProgress);
  addFindings(...log.logAudit.archiveAudit.findings);
}

/**
 * Compares the requests and answers of bought calls that buyers published with the hashes in the evidence lines.
 */
class CallAudit {
  readonly #check = new Check("bought calls, published");
  readonly #held = new Map<string, NamedCall>();

  constructor(
    private readonly source: Source,
    private readonly onProgress: Progress,
  ) {}

  /** Adds a call, to be checked later. */
  add(call: NamedCall): void {
    if (this.#held.size < MAX_HELD_CALLS || this.#held.has(call.sha256)) this.#held.set(call.sha256, call);
    else this.#check.countNotRun("more calls in one file than are held");
  }

  /** Checks the added calls when they are so many that the next file could exceed the limit. */
  async checkIfMany(): Promise<void> {
    if (this.#held.size >= MAX_HELD_CALLS / 2) await this.check();
  }

  /** Checks the added calls. */
  async check(): Promise<void> {
    await forEachConcurrent(this.#held.values(), CALLS_AT_ONCE, async (call) => {
      this.onProgress(`calls: ${call.sha256}`);
      await this.#check.runStep(async () => void (await fetchCall(this.source, call)));
    });
    this.#held.clear();
  }

  get finding(): Finding {
    return this.#check.finding;
  }
}

/** Recomputes every card and compares it with the published one. */
async function auditCards(source: Source, log: LogReading, onProgress: Progress): Promise<Finding> {
  const check = new Check("cards, recomputed");
  let cardCount = 0;
  try {
    const onVerdict = ({ capability_id, leaf, verdict, says, difference }: CardVerdict) => {
      onProgress(`cards: ${++cardCount}`);
      if (verdict === "ok") check.countOk();
      else if (verdict === "not run") check.countNotRun(says!);
      else if (verdict === "pending") check.countOpen(says ?? "its evidence is not published yet");
      else {
        const { field, expected, got } = difference!;
        check.addProblem({ key: `card of leaf ${leaf} (${capability_id}): ${field}`, expected, got });
      }
    };
    await recomputeGathered(source, log.gatheredRecord(), onVerdict, true);
  } catch (error) {
    const problem = problemOf(error);
    if (!problem) throw error;
    check.addProblem(problem);
  }
  return check.finding;
}

/** Another copy of the record. Its checkpoint was verified under the keys of the audited one. */
export interface Copy {
  source: Source;
  head: Checkpoint;
}

/** Two signed checkpoints that cannot be of one append-only log: the holder of the log key signed two histories. */
export interface ForkSeen {
  says: string;
  ours: string;
  theirs: string;
}

/**
 * Checks that the audited record and each copy have one history: the larger tree must begin with the smaller one. A
 * consistency proof (RFC 6962) from the larger tree's tiles shows this. Forks are added to `forks` as they are found.
 * @throws SourceDown
 */
async function auditCopies(audited: Copy, others: readonly Copy[], check: Check, forks: ForkSeen[]): Promise<void> {
  for (const other of others) {
    await check.runStep(async () => {
      const [small, large] = audited.head.size <= other.head.size ? [audited, other] : [other, audited];
      if (await isBeginningOf(small.head, large)) return;
      const says = `${small.source.name} (${small.head.size} leaves) is not the beginning of ${large.source.name} (${large.head.size})`;
      forks.push({ says, ours: audited.head.bytes.toString("utf8"), theirs: other.head.bytes.toString("utf8") });
      check.addProblem({ key: other.source.name, expected: "one history", got: says });
    });
  }
}

async function isBeginningOf(small: Checkpoint, { source, head }: Copy): Promise<boolean> {
  if (small.size === head.size) return sameHash(small.root, head.root);
  return (await RecordReader.openWithFetch(createSourceFetch(source), head)).extends(small);
}

/** Requests a path from the live service; null when it answers with an error. Throws when the answer is not JSON. */
export type AskLive = (path: string) => Promise<unknown>;

/** Number of endpoints for which a live answer is requested, spread evenly over all listed ones. */
const ENDPOINTS_SAMPLED = 20;

/**
 * Checks that live answers agree with the log. Each sampled answer must be signed by the answers key, and must contain
 * the endpoint's newest headline card in the log. A card that is newer than the audited checkpoint counts as open.
 */
async function auditLive(ask: AskLive, fold: PublishedFold, jwks: Jwks | null): Promise<Finding> {
  const check = new Check("live answers");
  const caps = [...fold.caps.values()].filter(({ listed }) => listed).sort((a, b) => (a.cap < b.cap ? -1 : 1));
  const step = Math.max(1, Math.floor(caps.length / ENDPOINTS_SAMPLED));
  for (const cap of caps.filter((_, i) => i % step === 0).slice(0, ENDPOINTS_SAMPLED)) {
    const key = `/v1/check?url=${cap.cap}`;
    let answer: Record<string, unknown> | null;
    try {
      answer = (await ask(key)) as Record<string, unknown> | null;
    } catch (error) {
      // A failure (no JSON, a redirect, a timeout) is a problem, so that the audited party cannot end the audit by it.
      check.addProblem({ key, expected: "an answer", got: (error as Error).message });
      continue;
    }
    if (!answer) {
      check.addProblem({ key, expected: "an answer", got: "an error" });
      continue;
    }
    const [answeredAt, computedAt] = [answer.answered_at, answer.computedAt].map((one) =>
      typeof one === "string" ? one : "",
    ) as [string, string];
    const verdict = jwks && verifyObject(jwks, answer, { purpose: "answers", at: answeredAt });
    const expectedCard = headlineOf(cap)?.text ?? null;
    const isNewer = computedAt > cap.computedAt;
    if (!verdict?.ok)
      check.addProblem({ key, expected: "a signature of the answers key", got: verdict?.reason ?? "no keys" });
    else if (isNewer) check.countOpen("a card is newer than this checkpoint");
    else if (answer.scorecard !== expectedCard) {
      const got = `${JSON.stringify(answer.scorecard)}`.slice(0, 120);
      check.addProblem({ key, expected: `the card of ${cap.computedAt}`, got });
    } else check.countOk();
  }
  return check.finding;
}
