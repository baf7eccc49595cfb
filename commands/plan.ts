import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { knownPlan } from "../pipelines/4-publish/day-plan.ts";
import { type Committed, checkPlan } from "../pipelines/budget/check-plan.ts";
import { RecordReader, readCheckpoint } from "../pipelines/published/reader.ts";
import { originOf } from "../pipelines/roles/assemble.ts";
import { makeKeys, openParts, type Parts } from "../pipelines/roles/parts.ts";
import { needsData } from "./files.ts";
import { trustOf } from "./serving-tier.ts";

/** There is no plan of that day here, or none was published. */
export class NoPlan extends Error {
  constructor(says: string) {
    super(says);
    this.name = "NotInRecord";
  }
}

/** The plan is not the one that was published. */
export class PlanDiffers extends Error {
  constructor(readonly wrong: readonly string[]) {
    super(wrong.join("; "));
    this.name = "Tampered";
  }
}

/** The day's commitment and its opening, from the proven log. */
async function committedOf({ config, keys, publicStore }: Parts, day: string): Promise<Committed | null> {
  const trust = trustOf(originOf(config.base_url), keys.ring, systemClock.now());
  const head = await readCheckpoint(publicStore, trust);
  if (!head) return null;
  const reader = await RecordReader.open(publicStore, head);
  let found: Committed | null = null;
  let salt: string | null = null;
  for await (const { leaf } of reader.leaves(0, head.size)) {
    if (leaf.kind !== "schedule") continue;
    // The first one counts: what was committed before the day.
    if (leaf.day === day) found ??= { ...leaf, salt: null };
    if (leaf.opens?.day === day) salt ??= leaf.opens.salt;
  }
  return found && { ...found, salt };
}

/**
 * `touchstone plan show DAY`: the plan of a day, held against what the log committed to before it and opened after it.
 * @throws NoPlan, PlanDiffers
 */
export async function showPlan(config: Config, day: string, options: { json?: boolean }): Promise<void> {
  needsData(config);
  makeKeys(config.data_dir, systemClock.now());
  const parts = await openParts(config, systemClock);
  try {
    const plan = await knownPlan(parts.privateStore, day);
    if (!plan) throw new NoPlan(`there is no plan of ${day} in ${config.data_dir}`);
    const committed = await committedOf(parts, day);
    if (!committed) throw new NoPlan(`no plan of ${day} was published`);
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
        ? `It does not fit: ${wrong.slice(0, 10).join("; ")}`
        : facts.opened
          ? "The opened salt gives exactly these calls."
          : "It is what was committed. Where its calls lie can be checked once the day is over and the salt is open.",
      "next: touchstone budget",
    ];
    process.stdout.write(
      options.json ? `${JSON.stringify({ ...facts, lines: plan.lines })}\n` : `${text.join("\n")}\n`,
    );
    if (wrong.length > 0) throw new PlanDiffers(wrong);
  } finally {
    await parts.close();
  }
}
