import { sha256hex } from "../infra/canonical.ts";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { originOf, trustOf } from "../infra/tree/checkpoint.ts";
import { computeCoveredRoot, deriveDayBytes, drawCalls } from "../pipelines/1-observe/plan/plan.ts";
import { readPlan } from "../pipelines/4-publish/day-plan.ts";
import { RecordReader, readCheckpoint } from "../pipelines/published/reader.ts";
import type { DayPlan, PlannedCall } from "../pipelines/record/plan.ts";
import { blockOf, dayStart } from "../pipelines/record/time.ts";
import { openParts, type Parts } from "../pipelines/roles/parts.ts";
import { makeKeysFor } from "../pipelines/roles/record-identity.ts";
import { requireDataFolder, withOpen } from "./files.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** What is published about a day's plan: the commitment, and the salt once the day is over. */
export interface PublishedPlan {
  salt_hash: string;
  covered_root: string;
  covered: number;
  /** 32 bytes as hex, or null while the day is not over. */
  salt: string | null;
}

const isSameCall = (a: PlannedCall, b: PlannedCall): boolean =>
  a.block === b.block && a.minute === b.minute && a.kind === b.kind && a.blind === b.blind;

/**
 * Do an endpoint's calls follow from the salt? A plan that was made during the day lacks the calls that were due
 * before.
 */
function followsFromSalt(calls: readonly PlannedCall[], all: readonly PlannedCall[]): boolean {
  const from = all.findIndex((call) => calls[0] !== undefined && isSameCall(call, calls[0]));
  if (calls.length === 0) return true;
  return from >= 0 && all.length - from === calls.length && calls.every((call, i) => isSameCall(call, all[from + i]!));
}

/**
 * Compares a day's plan with its published commitment. The times of the calls can be checked only once the salt is
 * published. @returns the differences, one sentence each
 */
export function checkPlan(plan: DayPlan, committed: PublishedPlan): string[] {
  const wrong: string[] = [];
  const covered = plan.lines.filter((line) => line.covered).map((line) => line.cap);
  if (plan.salt_hash !== committed.salt_hash) wrong.push("its salt differs from the committed one");
  if (computeCoveredRoot(covered) !== committed.covered_root)
    wrong.push("its covered endpoints differ from the committed ones");
  if (covered.length !== committed.covered)
    wrong.push(`it covers ${covered.length} endpoints, and ${committed.covered} were committed`);
  if (committed.salt === null) return wrong;
  const salt = Buffer.from(committed.salt, "hex");
  if (sha256hex(salt) !== committed.salt_hash) wrong.push("the published salt differs from the committed one");
  const first = blockOf(dayStart(plan.day));
  for (const line of plan.lines) {
    const all = drawCalls(deriveDayBytes(salt, line.cap), first, line.base_per_day, line.covered);
    if (!followsFromSalt(line.calls, all)) wrong.push(`the calls of ${line.cap} do not follow from the salt`);
  }
  return wrong;
}

/** Reads the day's commitment and its salt from the proven log. */
async function committedOf({ config, keys, publicStore }: Parts, day: string): Promise<PublishedPlan | null> {
  const trust = trustOf(originOf(config.base_url), keys.ring, systemClock.now());
  const head = await readCheckpoint(publicStore, trust);
  if (!head) return null;
  const reader = await RecordReader.open(publicStore, head);
  let found: PublishedPlan | null = null;
  let salt: string | null = null;
  for await (const { leaf } of reader.leaves(0, head.size)) {
    if (leaf.kind !== "schedule") continue;
    // Only the first commitment counts: a later one may have been made during the day.
    if (leaf.day === day) found ??= { ...leaf, salt: null };
    if (leaf.opens?.day === day) salt ??= leaf.opens.salt;
  }
  return found && { ...found, salt };
}

/**
 * `touchstone plan show DAY`: compares the plan of a day with the commitment that was published before the day and the
 * salt that was published after it.
 * @throws Failure `unknown` without a plan, `tampered` if the plan differs
 */
export async function showPlan(config: Config, day: string, options: OptionsOf<"plan show">): Promise<void> {
  requireDataFolder(config);
  await makeKeysFor(config, systemClock.now());
  return withOpen(openParts(config, systemClock), async (parts) => {
    const plan = await readPlan(parts.privateStore, day);
    if (!plan) throw new Failure("unknown", `there is no plan of ${day} in ${config.data_dir}`);
    const committed = await committedOf(parts, day);
    if (!committed) throw new Failure("unknown", `no plan of ${day} was published`);
    const wrong = checkPlan(plan, committed);
    const covered = plan.lines.filter((line) => line.covered);
    const calls = covered.flatMap((line) => line.calls.filter((call) => call.kind === "paid"));
    const facts = {
      ...{ day, salt_hash: committed.salt_hash, covered_root: committed.covered_root, opened: committed.salt !== null },
      ...{ endpoints: plan.lines.length, covered: covered.length, paid_calls: calls.length },
      ...{ blind: calls.filter((call) => call.blind).length, fits: wrong.length === 0, wrong },
    };
    const text = [
      `Plan of ${day}: ${facts.endpoints} endpoints, ${facts.covered} covered, ${facts.paid_calls} paid calls, ${facts.blind} of them blind`,
      `committed: salt ${facts.salt_hash}, covered ${facts.covered_root}`,
      wrong.length > 0
        ? `The plan differs from its commitment: ${wrong.slice(0, 10).join("; ")}`
        : facts.opened
          ? "Exactly these calls follow from the published salt."
          : "The plan matches its commitment. The times of its calls can be checked once the day is over and the salt is published.",
      "next: touchstone budget",
    ];
    print(options, { ...facts, lines: plan.lines }, text);
    if (wrong.length > 0) throw new Failure("tampered", wrong.join("; "));
  });
}
