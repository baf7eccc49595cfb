import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { sha256hex } from "../infra/canonical.ts";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import type { Checkpoint } from "../infra/tree/checkpoint.ts";
import { type AskLive, type AuditReport, audit, type Copy, type ForkSeen } from "../pipelines/audit/audit.ts";
import type { Finding, PackingMode } from "../pipelines/audit/findings.ts";
import { openCommitment } from "../pipelines/audit/log.ts";
import { refuseStale } from "../pipelines/mirror/state.ts";
import { CHECKPOINT } from "../pipelines/published/objects.ts";
import { openSource } from "../pipelines/published/open-source.ts";
import type { Source } from "../pipelines/published/source.ts";
import { openSourceTreeHead } from "../pipelines/published/trust.ts";
import { SALT_BYTES } from "../pipelines/record/commitment.ts";
import { readNamed, withOpen } from "./files.ts";
import { ProgressLine, print, say } from "./printer.ts";
import { recomputeCommand } from "./recompute.ts";

export interface AuditCommandOptions {
  logKey?: string;
  witnessKey?: string;
  /** Other copies of the same record. */
  also: string[];
  /** Light mode: one endpoint's cards only. */
  endpoint?: string;
  /** File with bytes that a commitment is to be opened with, and the salt (64 hex digits) that their buyer was given. */
  open?: string;
  salt?: string;
  /** `content`: packed bytes that no leaf names are validated by what they unpack to alone. */
  packing?: PackingMode;
  json?: boolean;
  /** Refuse a checkpoint cosigned longer ago than this many seconds (default: any age). */
  maxAge?: number;
  /** File with a checkpoint that was kept from an earlier time. */
  since?: string;
  /** Folder for files of forks (default: the one we are in). */
  forksIn?: string;
  /** Settings with the credentials of a bucket. */
  settings?: () => Pick<Config, "stores">;
}

/** The record does not hold. The findings say where. */
export function failed(findings: readonly Finding[]): Failure {
  const broken = findings.filter(({ result }) => result === "broken").map(({ check }) => check);
  return new Failure("tampered", `the record does not hold: ${broken.join(", ")}`);
}

/** Two signed histories that no one log can have. */
const forked = (forks: readonly ForkSeen[], files: readonly string[]): Failure =>
  new Failure(
    "fork",
    `fork: ${forks.map(({ says }) => says).join("; ")}; both signed notes are in ${files.join(", ")}: keep and publish`,
  );

/** Longest wait for one live answer, ms, and its most bytes. */
const LIVE_MS = 10_000;
const LIVE_BYTES = 1024 * 1024;

const askLive =
  (base: string): AskLive =>
  async (path) => {
    const answer = await fetch(base.replace(/\/+$/, "") + path, {
      signal: AbortSignal.timeout(LIVE_MS),
      redirect: "error",
    });
    if (!answer.ok) return null;
    const text = await answer.text();
    if (text.length > LIVE_BYTES) return null;
    return JSON.parse(text) as unknown;
  };

/** One line a check, its problems below it. */
export function linesOf({ check, result, checked, open, not_run, says, problems }: Finding): string[] {
  const mark = { ok: "ok     ", broken: "BROKEN ", "not run": "not run" }[result];
  const unrun = not_run > 0 ? `; ${not_run} could not be run` : "";
  const left = `${open > 0 ? `; ${open} not provable yet` : ""}${unrun}${open + not_run > 0 ? ` (${says})` : ""}`;
  const lines = problems.flatMap(({ key, expected, got }) => [
    `          ${key}`,
    `            expected ${expected}`,
    `            got      ${got}`,
  ]);
  return [`${mark} ${check}: ${checked}${left}`, ...lines];
}

/** A checkpoint file, verified under the keys that the source's is believed by. @throws Failure `usage`, Unproven */
async function keptCheckpoint(file: string, of: Source, logKey?: string, witnessKey?: string): Promise<Checkpoint> {
  const note = await readNamed(file);
  const source: Source = {
    name: file,
    get: async (key, maxBytes) => (key === CHECKPOINT ? note : of.get(key, maxBytes)),
    close: async () => undefined,
  };
  return openSourceTreeHead(source, { log: logKey, witness: witnessKey }, () => undefined, systemClock);
}

async function writeFork({ says, ours, theirs }: ForkSeen, folder = "."): Promise<string> {
  const file = join(folder, `fork-${sha256hex(ours + theirs).slice(0, 16)}.txt`);
  await writeFile(file, `${says}\n\n== one copy ==\n${ours}\n== the other ==\n${theirs}`);
  return file;
}

export function conclude(report: AuditReport, tookS: number): string {
  const open = report.findings.reduce((sum, finding) => sum + finding.open, 0);
  const verdict = report.proven ? "proven" : "NOT proven";
  return (
    `${verdict}: ${report.tree_size} leaves of ${report.origin}, root ${report.root}, cosigned at ${report.cosigned_at ?? "no time"}` +
    `${open ? `; ${open} things are open until their evidence or salt is published` : ""}; ${tookS} s`
  );
}

/**
 * `touchstone audit`: a whole public record proven again from its first leaf; docs/audit.md.
 * @throws Failure `tampered` when anything does not hold, `fork` where histories differ; Rollback and Stale against what
 * was asked, and what a source throws that cannot be asked
 */
export async function auditCommand(from: string, options: AuditCommandOptions): Promise<void> {
  const { endpoint, logKey, witnessKey, json, also } = options;
  if (options.open !== undefined || options.salt !== undefined) return openCommand(from, options);
  if (endpoint) return recomputeCommand(endpoint, { from, logKey, witnessKey, json });
  const began = systemClock.monotonic();
  const line = new ProgressLine();
  const opened: Copy[] = [];
  try {
    for (const name of [from, ...also]) {
      const source = await openSource(name, systemClock, options.settings);
      const keys = { log: logKey, witness: witnessKey };
      opened.push({ source, head: await openSourceTreeHead(source, keys, say, systemClock) });
    }
    const [{ source, head }, ...copies] = opened as [Copy, ...Copy[]];
    if (options.maxAge !== undefined) refuseStale(head, systemClock, options.maxAge);
    const since =
      options.since === undefined ? {} : { since: await keptCheckpoint(options.since, source, logKey, witnessKey) };
    const report = await audit({
      ...{ source, head, copies, packing: options.packing, ...since },
      ...(/^https?:/.test(from) ? { ask: askLive(from) } : {}),
      onFinding: (finding) => {
        line.end();
        print({ json }, finding, linesOf(finding));
      },
      onProgress: (text) => line.show(text),
    });
    const tookS = Math.round((systemClock.monotonic() - began) / 10) / 100;
    const { findings, forks, ...summary } = report;
    const files: string[] = [];
    for (const fork of forks) files.push(await writeFork(fork, options.forksIn));
    print({ json }, { ...summary, took_s: tookS }, [conclude(report, tookS)]);
    if (forks.length > 0) throw forked(forks, files);
    if (!report.proven) throw failed(findings);
  } finally {
    for (const { source } of opened) await source.close();
  }
}

/** Most bytes of a file that is opened: a bought answer is far smaller. */
const MAX_OPENED = 256 * 1024 * 1024;

/**
 * `touchstone audit SOURCE --open FILE --salt HEX`: proves that the log commits to these bytes under this salt, and
 * since when; docs/audit.md, Commitments.
 * @throws Failure `usage` for words that cannot be used, `unknown` for other bytes, and what the reading of a log throws
 */
export async function openCommand(from: string, options: AuditCommandOptions): Promise<void> {
  const { open: file, salt, logKey, witnessKey, json } = options;
  if (file === undefined || salt === undefined) throw new Failure("usage", "--open and --salt need each other");
  if (options.endpoint || options.also.length > 0)
    throw new Failure("usage", "--open goes with neither --endpoint nor --also");
  if (!new RegExp(`^[0-9a-f]{${SALT_BYTES * 2}}$`, "i").test(salt))
    throw new Failure("usage", `a salt is ${SALT_BYTES} bytes, ${SALT_BYTES * 2} hex digits`);
  const bytes = await readNamed(file, MAX_OPENED);
  return withOpen(openSource(from, systemClock, options.settings), async (source) => {
    const line = new ProgressLine();
    const head = await openSourceTreeHead(source, { log: logKey, witness: witnessKey }, say, systemClock);
    const leaf = await openCommitment(source, head, Buffer.from(salt, "hex"), bytes, (leaves) =>
      line.show(`log: ${leaves} of ${head.size} leaves`),
    );
    line.end();
    const root = head.root.toString("hex");
    const cosigned_at = head.cosignedAt?.toISOString() ?? null;
    const proof = {
      proven: true,
      origin: head.origin,
      tree_size: head.size,
      root,
      cosigned_at,
      leaf,
      bytes: bytes.length,
    };
    print({ json }, proof, [
      `proven: leaf ${leaf.index} of ${head.origin} commits to these ${bytes.length} bytes`,
      `  of a call to ${leaf.capability_id}, ended in the hour of ${leaf.moment}, published at ${leaf.at}`,
      `  under the root ${root} of ${head.size} leaves, cosigned at ${cosigned_at ?? "no time"}`,
      `next: touchstone audit ${from} --endpoint ${leaf.capability_id}`,
    ]);
  });
}
