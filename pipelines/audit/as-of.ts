import type { Endpoint } from "../3-grade/pure.ts";
import type { Sample } from "../3-grade/sample.ts";
import type { AmendmentLine, EvidenceLine, SampleLine } from "../record/evidence.ts";

/** Values of `field` in amendments that were made from records of the topic `corrections`. They change no row. */
const CORRECTION_FIELDS: readonly string[] = ["correction", "reinstated", "dispute"];

/** The evidence of one endpoint. Its lines are added in the order of the files. */
export class EndpointEvidence {
  readonly samples = new Map<string, SampleLine>();
  /** Sample id -> amendments (later changes of the sample), without those in `#corrections`. */
  readonly #amendments = new Map<string, AmendmentLine[]>();
  readonly #corrections: AmendmentLine[] = [];

  add(line: EvidenceLine): void {
    if ("obs_id" in line) {
      this.samples.set((line as SampleLine).obs_id, line as SampleLine);
      return;
    }
    const amendment = line as AmendmentLine;
    if (CORRECTION_FIELDS.includes(amendment.field)) this.#corrections.push(amendment);
    else {
      const sampleAmendments = this.#amendments.get(amendment.of);
      if (sampleAmendments) sampleAmendments.push(amendment);
      else this.#amendments.set(amendment.of, [amendment]);
    }
  }

  /**
   * Returns the endpoint as a grading run had read it: with the records below these positions of the event log.
   * @param positions {topic: next offset} of the card's leaf
   * @param domain registrable domain of the endpoint's url, null when unknown
   */
  endpointAsOf(cap: string, positions: Readonly<Record<string, number>>, domain: string | null): Endpoint {
    const rows = [...this.samples.values()].flatMap((line): Row[] => {
      const row = this.#rowAsOf(line, positions[line.topic] ?? 0);
      return row ? [row] : [];
    });
    const records = this.#corrections.filter((line) => line.position < (positions[line.topic] ?? 0));
    const { pay_to } = newestTerms(rows);
    return { cap, pay_to, domain, disputed: isDisputed(records), rows, withdrawn: withdrawnSamples(rows, records) };
  }

  /** Returns a sample as it was when the run had read its topic up to `nextOffset`; null if it was not there yet. */
  #rowAsOf(line: SampleLine, nextOffset: number): Row | null {
    if (line.first >= nextOffset) return null;
    const earlierState = nextOffset <= line.position ? line.before?.find(({ upto }) => nextOffset <= upto) : undefined;
    const row: SampleLine = { ...line, ...earlierState };
    const amendments = (this.#amendments.get(line.obs_id) ?? [])
      .filter(({ topic, position }) => topic === line.topic && position < nextOffset)
      .sort((a, b) => a.position - b.position);
    for (const { field, value } of amendments) (row as Record<string, unknown>)[field] = value;
    return { ...row, t: new Date(line.t) };
  }
}

type Row = Sample & Pick<SampleLine, "state">;

/** Returns the payTo in the newest 402 answer to a free or paid call. It counts as the endpoint's payTo. */
function newestTerms(rows: readonly Row[]): { pay_to: string | null } {
  let newest: Row | null = null;
  for (const row of rows) {
    if (row.kind !== 1 && row.state !== "asked" && row.state !== "malformed") continue;
    const isLater =
      !newest || row.t > newest.t || (row.t.getTime() === newest.t.getTime() && row.obs_id > newest.obs_id);
    if (isLater) newest = row;
  }
  return { pay_to: newest?.pay_to ?? null };
}

const bodyOf = (line: AmendmentLine) => line.value as Record<string, unknown>;

/**
 * Returns the time at which a correction was issued; the time of the correction's record if `issued_at` is no valid
 * time (as does query `corrections` in sql/staging/records.sql).
 */
function issuedAt(line: AmendmentLine): number {
  const issued = Date.parse(String(bodyOf(line).issued_at));
  return Number.isNaN(issued) ? Date.parse(line.observed_at) : issued;
}

/** Returns the corrections that no reinstatement has revoked. */
function correctionsInForce(records: readonly AmendmentLine[]): AmendmentLine[] {
  const reinstatedIds = new Set(
    records.flatMap((line) => (line.field === "reinstated" ? [bodyOf(line).correction] : [])),
  );
  return records.filter((line) => line.field === "correction" && !reinstatedIds.has(bodyOf(line).id));
}

const recordIdOf = (line: AmendmentLine): unknown => bodyOf(line).record_id ?? null;

/**
 * Returns the ids of the rows that corrections withdraw. A correction without a record id withdraws every record
 * observed before it was issued.
 */
function withdrawnSamples(rows: readonly Row[], records: readonly AmendmentLine[]): Set<string> {
  const recordIds = new Set<unknown>();
  let allBefore = Number.NEGATIVE_INFINITY;
  for (const line of correctionsInForce(records)) {
    const record = recordIdOf(line);
    if (record === null) allBefore = Math.max(allBefore, issuedAt(line));
    else recordIds.add(record);
  }
  const isWithdrawn = ({ obs_id, t }: Row): boolean => recordIds.has(obs_id) || t.getTime() < allBefore;
  return new Set(rows.filter(isWithdrawn).map(({ obs_id }) => obs_id));
}

/**
 * Returns whether there is an open dispute. A dispute is open until a correction of its record, or of all records,
 * follows that is not revoked (as in query `site` in sql/samples/touched.sql).
 */
function isDisputed(records: readonly AmendmentLine[]): boolean {
  /** When the newest correction in force was observed, by the record that it is of; null: of all records. */
  const newest = new Map<unknown, string>();
  for (const line of correctionsInForce(records)) {
    const record = recordIdOf(line);
    if (line.observed_at > (newest.get(record) ?? "")) newest.set(record, line.observed_at);
  }
  const isSettled = (dispute: AmendmentLine): boolean =>
    [null, recordIdOf(dispute)].some((record) => (newest.get(record) ?? "") >= dispute.observed_at);
  return records.some((line) => line.field === "dispute" && !isSettled(line));
}
