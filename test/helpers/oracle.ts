import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { StoreSource } from "../../pipelines/published/open-source.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";
import { type Accepted, countOf, type Ingested, logProblems, missing, notOnce, tell } from "./prove-log.ts";
import { nameOfCorrection, proveRecord, RecordBroken } from "./prove-record.ts";
import { archivedIds, auditOf, ofKind, valuesAt } from "./published.ts";

export interface Whole extends Omit<Ingested, "archived"> {
  publicStore: Store;
  trust: CheckpointTrust;
  /** Evidence of every day before this one has been published (UTC date). Absent: evidence is not looked at. */
  closedBefore?: string;
  /** Evidence is complete: every card must come out of it, none may be pending. Default true. */
  audited?: boolean;
}

/** What is wrong, each in a line; the oracle collects everything before it throws. */
export class OracleBroken extends Error {
  constructor(readonly problems: readonly string[]) {
    super(`the record is not whole, ${problems.length} times:\n${problems.slice(0, 30).join("\n")}`);
    this.name = "OracleBroken";
  }
}

type Bad = (says: string) => void;

const SAMPLES: readonly string[] = ["handshake", "mcp.probe", "paid.intent"];

/** Every sample of a closed day stands in the published evidence once. */
async function proveEvidence(whole: Whole, leaves: readonly Leaf[], accepted: readonly Accepted[], bad: Bad) {
  const ids: string[] = [];
  for (const leaf of ofKind(leaves, "evidence")) {
    if (leaf.holds !== "rows") continue;
    for (const { obs_id } of await valuesAt(whole.publicStore, leaf.key!)) if (obs_id) ids.push(String(obs_id));
  }
  const there = countOf(ids);
  const samples = accepted.filter(({ envelope, day }) => SAMPLES.includes(envelope.type) && day < whole.closedBefore!);
  const wanted = new Set(samples.map(({ envelope }) => envelope.event_id));
  tell(notOnce(there), "samples in evidence", bad);
  tell(missing(wanted, there), "samples in no evidence", bad);
  tell(missing(there.keys(), wanted), "samples from nowhere", bad);
}

/** Every correction, dispute and reinstatement of the log is one leaf. */
function proveCorrections(leaves: readonly Leaf[], accepted: readonly Accepted[], bad: Bad): void {
  const published = countOf(
    leaves.flatMap((leaf) => ("body" in leaf && leaf.kind !== "keys" ? [nameOf(leaf.body)] : [])),
  );
  const ids = accepted.flatMap(({ envelope: { type, body } }) =>
    ["correction", "dispute", "reinstated"].includes(type) ? [nameOf(body)] : [],
  );
  tell(notOnce(published), "corrections published", bad);
  tell(missing(new Set(ids), published), "corrections not published", bad);
}

const nameOf = (body: unknown): string => nameOfCorrection(body as Record<string, unknown>);

/**
 * The oracle of a whole deployment (engines.md, Kafka): every acknowledged offset once in the segments (or among the
 * rejected), every event id once in the lake or in the archive, every sample once in the evidence, every published change
 * once in the tree; the tree sound (prove-record.ts); and our own auditor finds nothing.
 * @returns leaves of the tree @throws OracleBroken with everything that is wrong
 */
export async function proveWhole(whole: Whole): Promise<readonly Leaf[]> {
  const problems: string[] = [];
  const bad: Bad = (says) => void problems.push(says);
  const leaves = await leavesOf(whole, bad);
  const archived = new Set(leaves ? await archivedIds(whole.publicStore, leaves) : []);
  const ingested = await logProblems({ ...whole, archived });
  problems.unshift(...ingested.problems);
  // Of a tree that cannot be read nothing more is said: every record of the log would be missing in it.
  if (leaves) {
    proveCorrections(leaves, ingested.accepted, bad);
    if (whole.closedBefore) await proveEvidence(whole, leaves, ingested.accepted, bad);
  }
  await auditTree(whole, bad);
  if (problems.length > 0) throw new OracleBroken(problems);
  return leaves!;
}

/** @returns the leaves, also of a tree that is not sound; null when they cannot be read */
async function leavesOf({ publicStore, trust }: Whole, bad: Bad): Promise<readonly Leaf[] | null> {
  try {
    // Leaves that say the same twice are found there.
    return (await proveRecord(publicStore, { trust, atRest: true })).leaves;
  } catch (error) {
    bad((error as Error).message);
    return error instanceof RecordBroken ? error.leaves : null;
  }
}

async function auditTree({ publicStore, audited = true }: Whole, bad: Bad): Promise<void> {
  try {
    const { findings } = await auditOf(new StoreSource("the public store", publicStore));
    for (const { check, result, open, problems } of findings) {
      const [first] = problems;
      if (result !== "ok")
        bad(`audit: ${check}: ${result} ${first ? `${first.key} ${first.expected} ${first.got}` : ""}`);
      // Plans are opened by whoever makes them: a schedule of appended records has none.
      if (audited && open > 0 && check.startsWith("cards")) bad(`audit: ${check}: ${open} open`);
    }
  } catch (error) {
    bad((error as Error).message);
  }
}
