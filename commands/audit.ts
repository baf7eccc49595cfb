import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { sha256hex } from "../infra/canonical.ts";
import { systemClock } from "../infra/clock.ts";
import { Failure } from "../infra/errors.ts";
import type { Checkpoint } from "../infra/tree/checkpoint.ts";
import { MissingObject } from "../infra/tree/tiles.ts";
import { type AskLive, type AuditReport, audit, type ForkSeen } from "../pipelines/audit/audit.ts";
import type { Finding } from "../pipelines/audit/findings.ts";
import { openCommitment } from "../pipelines/audit/log.ts";
import { checkAge } from "../pipelines/mirror/state.ts";
import { Unproven } from "../pipelines/published/errors.ts";
import { MAX_BYTES } from "../pipelines/published/limits.ts";
import { CHECKPOINT } from "../pipelines/published/objects.ts";
import { openSource } from "../pipelines/published/open-source.ts";
import type { Source } from "../pipelines/published/source.ts";
import { type GivenKeys, openSourceTreeHead } from "../pipelines/published/trust.ts";
import { SALT_BYTES } from "../pipelines/record/commitment.ts";
import { readNamedFile, withOpen } from "./files.ts";
import { ProgressLine, print } from "./printer.ts";
import { recomputeCommand } from "./recompute.ts";
import { stopwatch } from "./report.ts";
import { fetchBounded, keysOf, type OpenRecord, openRecord, type RecordOptions } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

/**
 * The options of `touchstone audit`. Code that calls the command directly may leave out options that have a default.
 */
export type AuditOptions = Partial<OptionsOf<"audit">> & {
  /** Folder for the files that prove a fork (default: the current folder). */
  forksIn?: string;
} & RecordOptions;

/** Returns the failure for a record that is not proven. The message names the checks that failed. */
export function unprovenFailure(findings: readonly Finding[]): Failure {
  const broken = findings.filter(({ result }) => result === "broken").map(({ check }) => check);
  return new Failure("tampered", `the record is not proven; these checks failed: ${broken.join(", ")}`);
}

/** Returns the failure for a fork: two signed checkpoints that one append-only log cannot both have. */
const forkFailure = (forks: readonly ForkSeen[], files: readonly string[]): Failure =>
  new Failure(
    "fork",
    `fork: ${forks.map(({ says }) => says).join("; ")}; both signed notes are in ${files.join(", ")}: keep the files, and publish them`,
  );

/** Limits for one response of the audited service, which is compared with the record. */
const LIVE_ANSWER = { waitMs: 10_000, maxBytes: 1024 * 1024 };

/** Returns a function that requests a path from the audited service; its result is null unless the status is 2xx. */
const askLive =
  (base: string): AskLive =>
  async (path) => {
    const { status, text } = await fetchBounded(base.replace(/\/+$/, "") + path, {}, LIVE_ANSWER);
    return status >= 200 && status < 300 && text !== null ? (JSON.parse(text) as unknown) : null;
  };

/** Formats the result of one check as lines: the check with its result, then the problems that it found. */
export function linesOf({ check, result, checked, open, not_run, says, problems }: Finding): string[] {
  const mark = { ok: "ok     ", broken: "BROKEN ", "not run": "not run" }[result];
  const notRunText = not_run > 0 ? `; ${not_run} could not be run` : "";
  const unprovenText = `${open > 0 ? `; ${open} not provable yet` : ""}${notRunText}${open + not_run > 0 ? ` (${says})` : ""}`;
  const lines = problems.flatMap(({ key, expected, got }) => [
    `          ${key}`,
    `            expected ${expected}`,
    `            got      ${got}`,
  ]);
  return [`${mark} ${check}: ${checked}${unprovenText}`, ...lines];
}

/**
 * Verifies the checkpoint (a signed tree head) of another copy, or the saved checkpoint of --since. It uses the given
 * keys or, without them, the log keys of the audited record, retired ones included. The keys that another copy shows
 * would prove nothing about the audited log.
 * @param name name of the copy or the file, for messages
 * @throws Failure `usage` when it is of another log; Unproven, Unwitnessed
 */
async function openSameLog(name: string, note: Uint8Array, audited: OpenRecord, keys: GivenKeys): Promise<Checkpoint> {
  const source: Source = {
    name,
    get: async (key, maxBytes) => (key === CHECKPOINT ? note : audited.source.get(key, maxBytes)),
    close: async () => undefined,
  };
  let head: Checkpoint;
  try {
    head = await openSourceTreeHead(source, keys, () => undefined, systemClock);
  } catch (error) {
    if (!(error instanceof Unproven)) throw error;
    throw new Unproven(`${error.key} of ${name}`, error.expected, error.got);
  }
  const { origin } = audited.head;
  if (head.origin !== origin) throw new Failure("usage", `${name} shows the log ${head.origin}, not ${origin}`);
  return head;
}

/** Opens a copy of --also. @throws what {@link openSameLog} throws; MissingObject, SourceDown, Failure `unreadable` */
async function openCopy(name: string, audited: OpenRecord, options: AuditOptions): Promise<OpenRecord> {
  const source = await openSource(name, systemClock, options.settings);
  const close = () => source.close();
  try {
    const note = await source.get(CHECKPOINT, MAX_BYTES.note);
    if (!note) throw new MissingObject(CHECKPOINT);
    return { source, head: await openSameLog(name, note, audited, await keysOf(options)), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Reads the checkpoint in the file of --since. @throws Failure `unreadable`; what {@link openSameLog} throws */
async function readSavedCheckpoint(file: string, audited: OpenRecord, options: AuditOptions): Promise<Checkpoint> {
  const note = await readNamedFile(file);
  const { policy, ...keys } = await keysOf(options);
  // The saved checkpoint may be older than the witnesses, so no cosignatures are required. The policy must still name
  // its log.
  return openSameLog(file, note, audited, { ...keys, policy: policy && { ...policy, rule: null } });
}

/** Writes the two checkpoints of a fork, which contradict each other, to one file. @returns the path of the file */
async function writeFork({ says, ours, theirs }: ForkSeen, folder = "."): Promise<string> {
  const file = join(folder, `fork-${sha256hex(ours + theirs).slice(0, 16)}.txt`);
  await writeFile(file, `${says}\n\n== one copy ==\n${ours}\n== the other ==\n${theirs}`);
  return file;
}

/** Formats the verdict of the audit as one line. @param tookS duration of the audit, seconds */
export function conclude(report: AuditReport, tookS: number): string {
  const open = report.findings.reduce((sum, finding) => sum + finding.open, 0);
  const verdict = report.proven ? "proven" : "NOT proven";
  return (
    `${verdict}: ${report.tree_size} leaves of ${report.origin}, root ${report.root}, cosigned at ${report.cosigned_at ?? "no time"}` +
    `${open ? `; ${open} items cannot be proven until their evidence or salt is published` : ""}; ${tookS} s`
  );
}

/**
 * `touchstone audit`: proves a whole public record, from the first entry (leaf) of its log; docs/audit.md.
 * @throws Failure `tampered` when a check fails, `fork` when two signed histories differ; Rollback with --since, Stale
 * with --max-age; errors of opening and reading a source
 */
export async function auditCommand(sourceAddress: string, options: AuditOptions): Promise<void> {
  const { endpoint, also = [] } = options;
  if (options.open !== undefined || options.salt !== undefined) return openCommand(sourceAddress, options);
  if (endpoint && (also.length > 0 || options.since !== undefined))
    throw new Failure("usage", "--endpoint makes the cards of one endpoint again, without --also and --since");
  if (endpoint) return recomputeCommand(endpoint, { ...options, from: sourceAddress });
  const elapsedSeconds = stopwatch();
  const line = new ProgressLine();
  const opened: OpenRecord[] = [];
  try {
    // The age is checked once the copies were compared: a source that froze may show another history.
    const audited = await openRecord(sourceAddress, { ...options, maxAge: undefined });
    opened.push(audited);
    for (const name of also) opened.push(await openCopy(name, audited, options));
    const { source, head } = audited;
    const copies = opened.slice(1);
    const since =
      options.since === undefined ? {} : { since: await readSavedCheckpoint(options.since, audited, options) };
    const report = await audit({
      ...{ source, head, copies, packing: options.packing, ...since },
      // --max-age applies to the audited source only: the copies named by --also may be older.
      onNoFork: () => options.maxAge !== undefined && checkAge(head, systemClock, options.maxAge),
      ...(/^https?:/.test(sourceAddress) ? { ask: askLive(sourceAddress) } : {}),
      onFinding: (finding) => {
        line.end();
        print(options, finding, linesOf(finding));
      },
      onProgress: (text) => line.show(text),
    });
    const took_s = elapsedSeconds();
    const { findings, forks, ...summary } = report;
    const files: string[] = [];
    for (const fork of forks) files.push(await writeFork(fork, options.forksIn));
    print(options, { ...summary, took_s }, [conclude(report, took_s)]);
    if (forks.length > 0) throw forkFailure(forks, files);
    if (!report.proven) throw unprovenFailure(findings);
  } finally {
    for (const record of opened) await record.close();
  }
}

/** Largest file for --open, bytes. The answer of a bought call is far smaller. */
const MAX_OPENED = 256 * 1024 * 1024;

/**
 * `touchstone audit SOURCE --open FILE --salt HEX`: proves that an entry of the log commits to the bytes of FILE with
 * this salt, and prints when that entry was published; docs/audit.md, Commitments.
 * @throws Failure `usage` for wrong options, `unknown` if no entry commits to these bytes; errors of opening and
 * reading a source
 */
export async function openCommand(sourceAddress: string, options: AuditOptions): Promise<void> {
  const { open: file, salt, endpoint, also = [], since } = options;
  if (file === undefined || salt === undefined) throw new Failure("usage", "--open and --salt need each other");
  if (endpoint || also.length > 0 || since !== undefined)
    throw new Failure("usage", "--open goes with none of --endpoint, --also and --since");
  if (!new RegExp(`^[0-9a-f]{${SALT_BYTES * 2}}$`, "i").test(salt))
    throw new Failure("usage", `--salt: expected ${SALT_BYTES} bytes as ${SALT_BYTES * 2} hex digits`);
  const content = await readNamedFile(file, MAX_OPENED);
  return withOpen(openRecord(sourceAddress, options), async ({ source, head }) => {
    const line = new ProgressLine();
    const leaf = await openCommitment(source, head, Buffer.from(salt, "hex"), content, (leaves) =>
      line.show(`log: ${leaves} of ${head.size} leaves`),
    );
    line.end();
    const { origin, size: tree_size } = head;
    const root = head.root.toString("hex");
    const cosigned_at = head.cosignedAt?.toISOString() ?? null;
    const bytes = content.length;
    print(options, { proven: true, origin, tree_size, root, cosigned_at, leaf, bytes }, [
      `proven: leaf ${leaf.index} of ${origin} commits to these ${bytes} bytes`,
      `  of a call to ${leaf.capability_id}, ended in the hour of ${leaf.moment}, published at ${leaf.at}`,
      `  under the root ${root} of ${tree_size} leaves, cosigned at ${cosigned_at ?? "no time"}`,
      `next: touchstone audit ${sourceAddress} --endpoint ${leaf.capability_id}`,
    ]);
  });
}
