import { systemClock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { LakeBusy } from "../../infra/lake/damage.ts";
import { createMemory } from "../../pipelines/2-ingest/memory.ts";
import { PublishedFold } from "../../pipelines/4-publish/fold.ts";
import { RecordReader, readCheckpoint } from "../../pipelines/4-publish/read.ts";
import { capsOf, openIngest, originOf } from "../../pipelines/assemble.ts";
import { type BudgetReport, budgetReport, keptReport } from "../../pipelines/budget/report.ts";
import { makeKeys, openParts, type Parts } from "../../pipelines/parts.ts";
import { dayOf } from "../../pipelines/record/time.ts";
import { budgetText } from "./budget-text.ts";
import { trustOf } from "./serving-tier.ts";

export interface BudgetOptions {
  day?: string;
  json?: boolean;
  all?: boolean;
}

/** Endpoints shown, and computed, without `--all`. */
const MOST = 40;

/** A running service owns the lake, and its report is of another day, or there is none yet. */
export class BudgetBusy extends Error {
  constructor(says: string) {
    super(says);
    this.name = "LakeBusy";
  }
}

async function publishedOf({ config, keys, publicStore }: Parts): Promise<PublishedFold> {
  const fold = new PublishedFold();
  const head = await readCheckpoint(publicStore, trustOf(originOf(config.base_url), keys.ring, systemClock.now()));
  if (!head) return fold;
  const reader = await RecordReader.open(publicStore, head);
  for await (const { leaf } of reader.leaves(0, head.size)) fold.apply(leaf);
  return fold;
}

async function computed(parts: Parts, day: string, most: number): Promise<BudgetReport> {
  const { lake, ingest } = await openIngest(parts, systemClock);
  try {
    await ingest.pass();
    const published = await publishedOf(parts);
    const { privateStore, config } = parts;
    const now = systemClock.now();
    const caps = capsOf(config.spend);
    return await budgetReport({ lake, memory: createMemory(lake), privateStore, caps, published, now }, day, most);
  } finally {
    await lake.close();
  }
}

async function kept(parts: Parts, day: string, asked: boolean): Promise<BudgetReport> {
  const report = await keptReport(parts.privateStore);
  if (!report)
    throw new BudgetBusy("a running service owns the lake, and it has kept no report yet: ask again in ten minutes");
  if (asked && report.day !== day) {
    throw new BudgetBusy(`a running service owns the lake, and its report is of ${report.day}: stop it to see ${day}`);
  }
  return report;
}

/**
 * `touchstone budget`: who is paid today and who is not and why, what was spent, and what the next letter of each
 * endpoint costs. Beside a running service it shows the report that the service keeps, ten minutes old at most.
 */
export async function budget(config: Config, options: BudgetOptions): Promise<void> {
  const day = options.day ?? dayOf(systemClock.now());
  makeKeys(config.data_dir, systemClock.now());
  const parts = await openParts(config, systemClock);
  try {
    const most = options.all ? Number.POSITIVE_INFINITY : MOST;
    const report = await computed(parts, day, options.json ? Number.POSITIVE_INFINITY : most).catch(
      (error: unknown) => {
        if (error instanceof LakeBusy) return kept(parts, day, options.day !== undefined);
        throw error;
      },
    );
    process.stdout.write(options.json ? `${JSON.stringify(report)}\n` : budgetText(report, most));
  } finally {
    await parts.close();
  }
}
