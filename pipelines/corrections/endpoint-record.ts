import { Failure } from "../../infra/errors.ts";
import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { newDraftsOf } from "../4-publish/known.ts";
import type { CorrectionDraft } from "../4-publish/take-lines.ts";
import type { PublishedFold } from "../published/fold.ts";
import { capId, isId, partitionOf } from "../record/ids.ts";
import { addressKey } from "../record/networks.ts";
import { BadUrl, normaliseUrl, toolInUrl } from "../record/url.ts";
import { METHODS } from "../record/vocabulary.ts";
import type { CorrectionRecord } from "../record/volatile.ts";
import { NotInRecord } from "./errors.ts";
import type { LogFact, LogHistoryReader } from "./reading.ts";

/** A correction as recorded in the event log. */
export interface LoggedCorrection {
  id: string;
  cap: string;
  /** null: the correction withdraws every record observed before `issuedAt`. */
  recordId: string | null;
  issuedAt: string;
}

/** The corrections, disputes and reinstatements in the topic `corrections`. They are added in the order of the log. */
export class CorrectionRecords {
  readonly corrections = new Map<string, LoggedCorrection>();
  /** Ids of corrections that were revoked. */
  readonly reinstated = new Set<string>();
  /** Ids of disputes. */
  readonly disputes = new Set<string>();

  add({ type, key, body, observedAt }: LogFact): void {
    if (type === "reinstated") this.reinstated.add(String(body.correction));
    if (type === "dispute") this.disputes.add(String(body.id));
    if (type !== "correction") return;
    const recordId = typeof body.record_id === "string" ? body.record_id : null;
    const issuedAt = typeof body.issued_at === "string" ? body.issued_at : observedAt;
    this.corrections.set(String(body.id), { id: String(body.id), cap: key, recordId, issuedAt });
  }

  /** Returns the first correction that withdraws this record and was not revoked, or null. */
  findWithdrawing(recordId: string, observedAt: string): LoggedCorrection | null {
    for (const correction of this.corrections.values()) {
      if (this.reinstated.has(correction.id)) continue;
      if (correction.recordId === null ? observedAt < correction.issuedAt : correction.recordId === recordId)
        return correction;
    }
    return null;
  }
}

/** Types of records that are samples. A paid sample has the id of its `paid.intent` record (records.md, Evidence). */
const SAMPLES: ReadonlySet<string> = new Set(["handshake", "mcp.probe", "paid.intent"]);
const OBSERVATION_TOPICS = ["observations.free", "observations.paid", "observations.mcp"] as const;

export interface LoggedRecord {
  type: string;
  observedAt: string;
  /** Event id of the sample to which this record belongs, or null when it is a sample itself. */
  sampleId: string | null;
}

/** The parts of one endpoint's record that a correction or a dispute needs. */
export interface EndpointRecord {
  cap: string;
  /** Every observation by its id. */
  records: ReadonlyMap<string, LoggedRecord>;
  /**
   * Addresses, in {@link addressKey} form, that a 402 answer of this endpoint to us has named. Addresses in listings
   * do not count, since anybody may write a listing.
   */
  payTos: ReadonlySet<string>;
  correctionRecords: CorrectionRecords;
}

const textOf = (value: unknown): string | null => (typeof value === "string" ? value : null);
const memberOf = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;

/** Returns all addresses that the 402 answer of this observation named. */
function payTosOf({ body }: LogFact): string[] {
  const terms = [body.terms, memberOf(body.first_leg, "terms")].flatMap((one) => memberOf(one, "offers") ?? []);
  const addressValues = [
    body.pay_to,
    memberOf(body.quote, "pay_to"),
    ...terms.map((offer) => memberOf(offer, "pay_to")),
  ];
  return addressValues.flatMap((one) => {
    const address = textOf(one);
    return address === null ? [] : [addressKey(address)];
  });
}

/**
 * Reads an endpoint's record.
 * @throws NotInRecord when there is neither a listing nor an observation of the endpoint
 */
export async function readEndpoint(historyReader: LogHistoryReader, cap: string): Promise<EndpointRecord> {
  const record = await readIfRecorded(historyReader, cap);
  if (!record) throw new NotInRecord(`${cap} is not in the record: no listing, no observation`);
  return record;
}

async function readIfRecorded(historyReader: LogHistoryReader, cap: string): Promise<EndpointRecord | null> {
  const partition = partitionOf(cap, historyReader.partitions);
  const records = new Map<string, LoggedRecord>();
  const payTos = new Set<string>();
  const correctionRecords = new CorrectionRecords();
  for (const topic of OBSERVATION_TOPICS) {
    for await (const fact of historyReader.readFacts(topic, partition, cap)) {
      const sampleId = SAMPLES.has(fact.type) ? null : (textOf(fact.body.intent) ?? textOf(fact.body.of));
      records.set(fact.eventId, { type: fact.type, observedAt: fact.observedAt, sampleId });
      for (const payTo of payTosOf(fact)) payTos.add(payTo);
    }
  }
  if (records.size === 0 && !(await isListed(historyReader, partition, cap))) return null;
  for await (const fact of historyReader.readFacts("corrections", partition, cap)) correctionRecords.add(fact);
  return { cap, records, payTos, correctionRecords };
}

async function isListed(historyReader: LogHistoryReader, partition: number, cap: string): Promise<boolean> {
  for await (const _ of historyReader.readFacts("listings", partition, cap)) return true;
  return false;
}

/** Returns the ids of the tools that were ever listed at the url of an MCP server, by name; none for any other url. */
async function readTools(historyReader: LogHistoryReader, url: string): Promise<Map<string, string>> {
  const capsByTool = new Map<string, string>();
  for (let partition = 0; partition < historyReader.partitions; partition++) {
    for await (const { type, key, body } of historyReader.readFacts("listings", partition, null)) {
      const tool = type === "listing" && body.normalised_url === url ? textOf(memberOf(body.claims, "tool")) : null;
      if (tool !== null) capsByTool.set(tool, key);
    }
  }
  return capsByTool;
}

/**
 * Finds the endpoint that an id or a url names; a tool of an MCP server is named as `url#tool`.
 * @throws NotInRecord; Failure `usage` when the text is neither, or when several methods or tools of the url are in the
 * record and none was given
 */
export async function findEndpoint(
  historyReader: LogHistoryReader,
  idOrUrl: string,
  method?: string,
): Promise<EndpointRecord> {
  if (isId("cap", idOrUrl)) return readEndpoint(historyReader, idOrUrl);
  const url = normaliseOrFail(idOrUrl);
  const tool = toolInUrl(idOrUrl);
  const record = tool === null ? await findByUrl(historyReader, url, method) : null;
  if (record !== null) return record;
  const tools = await readTools(historyReader, url);
  if (tools.size > 1 && tool === null) {
    const names = [...tools.keys()].sort().map((name) => `${url}#${encodeURIComponent(name)}`);
    throw new Failure("usage", `${url} is in the record with several tools: name one of ${names.join(", ")}`);
  }
  const cap = tool === null ? [...tools.values()][0] : tools.get(tool);
  if (cap !== undefined) return readEndpoint(historyReader, cap);
  // A fragment names a tool only at an MCP server.
  const recordAtUrl = tool !== null && tools.size === 0 ? await findByUrl(historyReader, url, method) : null;
  if (recordAtUrl === null) throw new NotInRecord(`${idOrUrl} is not in the record`);
  return recordAtUrl;
}

/**
 * Finds the endpoint at this url that is no tool; null if the record has none.
 * @throws Failure `usage` when several methods of the url are in the record and none was given
 */
async function findByUrl(
  historyReader: LogHistoryReader,
  url: string,
  method?: string,
): Promise<EndpointRecord | null> {
  const records: EndpointRecord[] = [];
  for (const tryMethod of method === undefined ? METHODS : [method]) {
    const record = await readIfRecorded(historyReader, capId(tryMethod, url));
    if (record) records.push(record);
  }
  if (records.length <= 1) return records[0] ?? null;
  throw new Failure(
    "usage",
    `${url} is in the record with several methods: name one of ${records.map((one) => one.cap)}`,
  );
}

function normaliseOrFail(url: string): string {
  try {
    return normaliseUrl(url);
  } catch (error) {
    if (!(error instanceof BadUrl)) throw error;
    throw new Failure("usage", `${JSON.stringify(url.slice(0, 120))} is neither a capability id nor an http(s) url`);
  }
}

interface CorrectionRow {
  type: CorrectionDraft["kind"];
  cap: string;
  body: string;
  /** Partition and offset of the record in the topic `corrections`. */
  part: number;
  log_offset: bigint;
}

const toCorrectionDraft = ({ type, cap, body, log_offset }: CorrectionRow): CorrectionDraft => ({
  kind: type,
  capability_id: cap,
  position: Number(log_offset),
  body: JSON.parse(body) as Record<string, unknown>,
});

type LakeReader = Pick<Statements, "all">;

/**
 * Returns the corrections that a run (one grading) had read, as drafts of their leaves. A card may be published as
 * the consequence of a correction only if its run had read that correction.
 * @param positions {topic: {partition: next offset}} of the run
 */
export async function readCorrectionsBelow(
  lake: LakeReader,
  positions: Record<string, Record<string, number>>,
): Promise<CorrectionDraft[]> {
  const rows = await lake.all<CorrectionRow>(sql("queries/record:corrections"));
  const nextOffsets = positions.corrections ?? {};
  return rows
    .filter(({ part, log_offset }) => Number(log_offset) < (nextOffsets[String(part)] ?? 0))
    .map(toCorrectionDraft);
}

/**
 * Returns the corrections, disputes and reinstatements that are in the event log but not yet in the tree, by
 * capability. Serving shows them before their leaves are published.
 * @param caps endpoints to which the result is limited (default: all)
 */
export async function readUnpublishedCorrections(
  lake: LakeReader,
  fold: PublishedFold,
  caps?: ReadonlySet<string>,
): Promise<Map<string, CorrectionRecord[]>> {
  const rows = await lake.all<CorrectionRow>(sql("queries/record:corrections"));
  const drafts = rows.filter(({ cap }) => caps?.has(cap) ?? true).map(toCorrectionDraft);
  const correctionsByCap = new Map<string, CorrectionRecord[]>();
  for (const draft of newDraftsOf(fold, drafts) as CorrectionDraft[]) {
    const { kind, capability_id: cap, body } = draft;
    correctionsByCap.set(cap, [...(correctionsByCap.get(cap) ?? []), { kind, body }]);
  }
  return correctionsByCap;
}
