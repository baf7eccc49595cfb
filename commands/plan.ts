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
import { openCommandParts, type Parts } from "../pipelines/roles/parts.ts";
import { requireDataFolder, withOpen } from "./files.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/**
 * What is published about the plan of a day (which endpoints are called, and when): before the day a commitment, and
 * after it the salt from which the times of the calls follow.
 */
export interface PublishedPlan {
  /** sha256 of the salt, as hex. */
  salt_hash: string;
  /** Merkle root over the ids of the covered endpoints, those that get paid calls. */
  covered_root: string;
  /** Number of covered endpoints. */
  covered: number;
  /** The salt, 32 bytes as hex; null while the day is not over. */
  salt: string | null;
}

const isSameCall = (a: PlannedCall, b: PlannedCall): boolean =>
  a.block === b.block && a.minute === b.minute && a.kind === b.kind && a.blind === b.blind;

/**
 * Are the planned calls of an endpoint those that are drawn from the salt? A plan that was made during the day lacks
 * the calls that were due before that moment.
 */
function followsFromSalt(calls: readonly PlannedCall[], drawnCalls: readonly PlannedCall[]): boolean {
  const firstIndex = drawnCalls.findIndex((call) => calls[0] !== undefined && isSameCall(call, calls[0]));
  if (calls.length === 0) return true;
  return (
    firstIndex >= 0 &&
    drawnCalls.length - firstIndex === calls.length &&
    calls.every((call, i) => isSameCall(call, drawnCalls[firstIndex + i]!))
  );
}

/**
 * Compares a day's plan with its published commitment. The times of the calls can be checked only once the salt is
 * published.
 * @returns the differences, one sentence each
 */
export function checkPlan(plan: DayPlan, commitment: PublishedPlan): string[] {
  const differences: string[] = [];
  const covered = plan.lines.filter((line) => line.covered).map((line) => line.cap);
  if (plan.salt_hash !== commitment.salt_hash) differences.push("its salt differs from the committed one");
  if (computeCoveredRoot(covered) !== commitment.covered_root)
    differences.push("its covered endpoints differ from the committed ones");
  if (covered.length !== commitment.covered)
    differences.push(`it covers ${covered.length} endpoints, and ${commitment.covered} were committed`);
  if (commitment.salt === null) return differences;
  const salt = Buffer.from(commitment.salt, "hex");
  if (sha256hex(salt) !== commitment.salt_hash) differences.push("the published salt differs from the committed one");
  const firstBlock = blockOf(dayStart(plan.day));
  for (const line of plan.lines) {
    const drawnCallsOfLine = drawCalls(deriveDayBytes(salt, line.cap), firstBlock, line.base_per_day, line.covered);
    if (!followsFromSalt(line.calls, drawnCallsOfLine))
      differences.push(`the calls of ${line.cap} do not follow from the salt`);
  }
  return differences;
}

/**
 * Reads the commitment to a day's plan, and the salt, from the public log, whose proofs it verifies; null if there is
 * none.
 */
async function readCommitment({ config, keys, publicStore }: Parts, day: string): Promise<PublishedPlan | null> {
  const trust = trustOf(originOf(config.base_url), keys.ring, systemClock.now());
  const head = await readCheckpoint(publicStore, trust);
  if (!head) return null;
  const reader = await RecordReader.open(publicStore, head);
  let commitment: PublishedPlan | null = null;
  let salt: string | null = null;
  for await (const { leaf } of reader.leaves(0, head.size)) {
    if (leaf.kind !== "schedule") continue;
    // Only the first commitment counts: a later one may have been made during the day.
    if (leaf.day === day) commitment ??= { ...leaf, salt: null };
    if (leaf.opens?.day === day) salt ??= leaf.opens.salt;
  }
  return commitment && { ...commitment, salt };
}

/**
 * `touchstone plan show DAY`: compares the plan of a day with the commitment that was published before the day and the
 * salt that was published after it.
 * @throws Failure `unknown` without a plan, `tampered` if the plan differs
 */
export async function showPlan(config: Config, day: string, options: OptionsOf<"plan show">): Promise<void> {
  requireDataFolder(config);
  return withOpen(openCommandParts(config, systemClock), async (parts) => {
    const plan = await readPlan(parts.privateStore, day);
    if (!plan) throw new Failure("unknown", `there is no plan of ${day} in ${config.data_dir}`);
    const commitment = await readCommitment(parts, day);
    if (!commitment) throw new Failure("unknown", `no plan of ${day} was published`);
    const differences = checkPlan(plan, commitment);
    const covered = plan.lines.filter((line) => line.covered);
    const calls = covered.flatMap((line) => line.calls.filter((call) => call.kind === "paid"));
    const facts = {
      ...{
        day,
        salt_hash: commitment.salt_hash,
        covered_root: commitment.covered_root,
        opened: commitment.salt !== null,
      },
      ...{ endpoints: plan.lines.length, covered: covered.length, paid_calls: calls.length },
      ...{ blind: calls.filter((call) => call.blind).length, fits: differences.length === 0, wrong: differences },
    };
    const textLines = [
      `Plan of ${day}: ${facts.endpoints} endpoints, ${facts.covered} covered, ${facts.paid_calls} paid calls, ${facts.blind} of them blind`,
      `committed: salt ${facts.salt_hash}, covered ${facts.covered_root}`,
      differences.length > 0
        ? `The plan differs from its commitment: ${differences.slice(0, 10).join("; ")}`
        : facts.opened
          ? "Exactly these calls follow from the published salt."
          : "The plan matches its commitment. The times of its calls can be checked once the day is over and the salt is published.",
      "next: touchstone budget",
    ];
    print(options, { ...facts, lines: plan.lines }, textLines);
    if (differences.length > 0) throw new Failure("tampered", differences.join("; "));
  });
}
