import { z } from "zod";
import type { Store } from "../../infra/store/store.ts";
import { RelatedParties, type Thief } from "../3-grade/related.ts";
import { BadPrivate } from "../4-publish/generation.ts";
import { NO_RELATED_PARTIES } from "../published/evidence-fold.ts";
import type { KinLine } from "../record/evidence.ts";

/**
 * The payee and domain tables that runs graded with. A card's leaf names its table by hash alone (`inputs.kin`), and no
 * single endpoint's evidence contains it, so the tables are kept when they are used and published with the evidence.
 */
const Thieves = z.array(
  z.strictObject({ cap: z.string(), pay_to: z.string().nullable(), domain: z.string().nullable() }),
);

const tableKey = (sha256: string): string => `kin/${sha256}.json`;

/** Keep the table of a run, once. @throws Error when the table is not the one the run names: its cards could not be proven */
export async function keepRelated(privateStore: Store, sha256: string, thieves: readonly Thief[]): Promise<void> {
  const got = new RelatedParties(thieves).sha256;
  if (got !== sha256) throw new Error(`the run graded with table ${sha256}, the lake holds ${got}`);
  if (sha256 !== NO_RELATED_PARTIES) await privateStore.create(tableKey(sha256), Buffer.from(JSON.stringify(thieves)));
}

/** A kept table, ascending by capability, or null when no run of this store kept it. @throws BadPrivate when damaged */
async function keptRelated(privateStore: Store, sha256: string): Promise<Thief[] | null> {
  if (sha256 === NO_RELATED_PARTIES) return [];
  const object = await privateStore.get(tableKey(sha256));
  if (!object) return null;
  const { data } = Thieves.safeParse(parse(object.bytes));
  if (!data || new RelatedParties(data).sha256 !== sha256)
    throw new BadPrivate(tableKey(sha256), "is not what its name says");
  return [...data].sort((a, b) => (a.cap < b.cap ? -1 : 1));
}

/**
 * Lines of a day's file: each table as what differs from the line before it, the first from nobody.
 * @param names hashes in the order of their first card @param missing told of each one that was never kept
 */
export async function relatedLines(
  privateStore: Store,
  names: readonly string[],
  missing: (sha256: string) => void,
): Promise<KinLine[]> {
  const lines: KinLine[] = [];
  let before: readonly Thief[] = [];
  for (const kin of names) {
    const table = await keptRelated(privateStore, kin);
    if (!table) {
      missing(kin);
      continue;
    }
    const had = new Map(before.map((thief) => [thief.cap, thief]));
    const has = new Set(table.map(({ cap }) => cap));
    const same = (a: Thief, b: Thief | undefined) => b !== undefined && a.domain === b.domain && a.pay_to === b.pay_to;
    const add = table.filter((thief) => !same(thief, had.get(thief.cap))).map((thief) => ({ ...thief }));
    lines.push({ kin, add, remove: before.flatMap(({ cap }) => (has.has(cap) ? [] : [cap])) });
    before = table;
  }
  return lines;
}

function parse(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString("utf8"));
  } catch {
    return undefined;
  }
}
