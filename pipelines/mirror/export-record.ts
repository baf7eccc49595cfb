import { parseUrl } from "../../infra/url.ts";
import { parseJson, parseLeaf } from "../published/errors.ts";
import { type EvidenceFile, evidenceFileOf, fetchFile, readFile } from "../published/files.ts";
import { componentColumns, componentValuesOf, compositeOf } from "../published/index-table.ts";
import { readProvenLeaves } from "../published/leaves.ts";
import { COLUMN, type Columns, type Row, toDate } from "../published/parquet-table.ts";
import type { Source } from "../published/source.ts";
import { type AmendmentLine, type EvidenceLine, parseEvidenceLine, SampleLine } from "../record/evidence.ts";
import { EvidenceLeaf, GradeLeaf, ListingLeaf } from "../record/leaf.ts";
import { BANDS, type Band } from "../record/vocabulary.ts";

/** A proven record that is read for analysis: its source, and the head up to which it is read. */
export interface RecordToRead {
  source: Source;
  head: { size: number; root: Buffer };
  origin: string;
  /** When the head was cosigned, RFC 3339; null if no witness is trusted. */
  asOf: string | null;
}

/** Facts of an endpoint, summed up over its samples. */
export interface EndpointSummary {
  price: number | null;
  asset: string | null;
  networks: string[];
  payTo: string | null;
  first: string;
  last: string;
  /** Number of our own paid calls, without those that buyers published. */
  paidCalls: number;
  /**
   * Time of the newest sample with a price, from which price and payTo are taken. Calls that buyers published do not
   * count.
   */
  termsAt: string;
}

interface Terms {
  offers?: { network?: unknown; asset?: unknown; payable?: unknown }[];
}

/** Returns the asset and the networks in the 402 answer of a sample; null and none if the line does not have them. */
function termsOf(line: SampleLine): { asset: string | null; networks: string[] } {
  const offers = (line as { terms?: Terms | null }).terms?.offers ?? [];
  const signable = offers.find(({ payable }) => payable === true) ?? offers[0];
  const names = offers.flatMap(({ network }) => (typeof network === "string" ? [network] : []));
  return { asset: typeof signable?.asset === "string" ? signable.asset : null, networks: [...new Set(names)].sort() };
}

/** All letters that a card may have. */
export const LETTERS: readonly Band[] = [...BANDS, "UNRATED"];

/**
 * Facts that are collected from the leaves: the evidence files with samples, the raw letter of each card, and the url
 * and method in the listing of each endpoint.
 */
export interface LeafFacts {
  evidence: EvidenceFile[];
  /**
   * By log position: the raw letter (before the rule that delays a rise) as its index in LETTERS plus one; 0 if the
   * leaf has none.
   */
  rawLetters: Uint8Array;
  urls: Map<string, { url: string; method: string }>;
}

/**
 * Reads all leaves of the record once and collects their facts.
 * @throws Tampered, MissingObject, Unproven, SourceDown
 */
export async function readLeaves({ source, head }: RecordToRead): Promise<LeafFacts> {
  const facts: LeafFacts = { evidence: [], rawLetters: new Uint8Array(head.size), urls: new Map() };
  for await (const { leaf, index } of readProvenLeaves(source, head)) {
    if (leaf.kind === "listing") {
      const { capability_id, url, method } = parseLeaf(ListingLeaf, leaf);
      facts.urls.set(capability_id, { url, method });
    }
    if (leaf.kind === "grade") facts.rawLetters[index] = LETTERS.indexOf(leaf.raw_band) + 1;
    if (leaf.kind !== "evidence") continue;
    const file = evidenceFileOf(parseLeaf(EvidenceLeaf, leaf));
    if (file?.holds === "rows") facts.evidence.push(file);
  }
  return facts;
}

type AddSample = (line: SampleLine, file: EvidenceFile) => void;

/** Yields the lines of the evidence, file by file. Each file is proven by its leaf before its lines are yielded. */
async function* evidenceLines(source: Source, files: readonly EvidenceFile[]) {
  for (const file of files) {
    const lines: EvidenceLine[] = [];
    await readFile(await fetchFile(source, file), file, (bytes) => {
      const line = parseEvidenceLine(parseJson(bytes));
      if (line) lines.push(line);
    });
    yield { file, lines };
  }
}

const isSampleLine = (line: EvidenceLine): line is SampleLine => "obs_id" in line;

/** Sums up the samples of the evidence by capability id. */
export async function summarizeByEndpoint(
  { source }: RecordToRead,
  files: readonly EvidenceFile[],
): Promise<Map<string, EndpointSummary>> {
  const summaries = new Map<string, EndpointSummary>();
  const add: AddSample = (line) => {
    const emptyTerms = { price: null, asset: null, networks: [], payTo: null, paidCalls: 0, termsAt: "" };
    const summary = summaries.get(line.capability_id) ?? { ...emptyTerms, first: line.t, last: line.t };
    summaries.set(line.capability_id, summary);
    if (line.t < summary.first) summary.first = line.t;
    if (line.t > summary.last) summary.last = line.t;
    if (line.kind === 1) summary.paidCalls++;
    const { asset, networks } = termsOf(line);
    if (line.price === null || line.t < summary.termsAt || line.kind === 2) return;
    Object.assign(summary, { price: line.price, payTo: line.pay_to, termsAt: line.t });
    if (networks.length > 0) Object.assign(summary, { asset, networks });
  };
  for await (const { file, lines } of evidenceLines(source, files)) {
    for (const line of lines) if (isSampleLine(line)) add(line, file);
  }
  return summaries;
}

export const GRADE_COLUMNS: Columns = {
  leaf: COLUMN.count,
  published_at: COLUMN.moment,
  computed_at: COLUMN.moment,
  as_of: COLUMN.moment,
  capability_id: COLUMN.text,
  url: COLUMN.text,
  host: COLUMN.text,
  http_method: COLUMN.text,
  method_page: COLUMN.text,
  day: COLUMN.text,
  headline: COLUMN.yesNo,
  tier: COLUMN.text,
  band: COLUMN.text,
  raw_band: COLUMN.text,
  why: COLUMN.text,
  composite: COLUMN.number,
  sample_count: COLUMN.count,
  flags: COLUMN.texts,
  ...componentColumns(),
};

function gradeRow(
  { index, at, day, headline, raw_band, why, card }: GradeLeaf,
  facts: LeafFacts,
  asOf: Date | null,
): Row {
  const listing = facts.urls.get(card.capability_id);
  return {
    ...{ leaf: index, published_at: toDate(at), computed_at: toDate(card.computed_at), as_of: asOf },
    ...{ capability_id: card.capability_id, url: listing?.url, host: parseUrl(listing?.url ?? "")?.host },
    ...{ http_method: listing?.method, method_page: card.method, day, headline, tier: card.tier },
    ...{ band: card.band, raw_band, why, composite: compositeOf(card), sample_count: card.sample_count },
    flags: card.flags ?? [],
    ...componentValuesOf(card),
  };
}

/** Yields a row for every card that was ever published, in log order. */
export async function* gradeRows(record: RecordToRead): AsyncGenerator<Row> {
  const facts = await readLeaves(record);
  const asOf = toDate(record.asOf);
  for await (const { leaf } of readProvenLeaves(record.source, record.head)) {
    if (leaf.kind === "grade") yield gradeRow(parseLeaf(GradeLeaf, leaf), facts, asOf);
  }
}

export const SAMPLE_COLUMNS: Columns = {
  record_id: COLUMN.text,
  capability_id: COLUMN.text,
  observed_at: COLUMN.moment,
  as_of: COLUMN.moment,
  url: COLUMN.text,
  host: COLUMN.text,
  http_method: COLUMN.text,
  kind: COLUMN.text,
  state: COLUMN.text,
  status: COLUMN.count,
  fault: COLUMN.text,
  live: COLUMN.yesNo,
  honest: COLUMN.yesNo,
  settled: COLUMN.yesNo,
  delivered: COLUMN.yesNo,
  refunded: COLUMN.yesNo,
  schema_ok: COLUMN.yesNo,
  delivery: COLUMN.number,
  outcome: COLUMN.number,
  latency_ms: COLUMN.number,
  price: COLUMN.number,
  asset: COLUMN.text,
  networks: COLUMN.texts,
  pay_to: COLUMN.text,
  input: COLUMN.text,
  weight: COLUMN.number,
  blind: COLUMN.yesNo,
  retest: COLUMN.yesNo,
  payer: COLUMN.text,
  evidence: COLUMN.text,
};

/** Names of the kinds of samples. The `kind` of an evidence line is an index into this list. */
const KINDS = ["probe", "paid", "bought"];
const onlyBoolean = (value: unknown): boolean | null => (typeof value === "boolean" ? value : null);

function sampleRow(line: SampleLine, { key }: EvidenceFile, facts: LeafFacts, asOf: Date | null): Row {
  const listing = facts.urls.get(line.capability_id);
  const { status, blind, retest } = line as SampleLine & Record<string, unknown>;
  const { fault, delivery, outcome, latency_ms, price, pay_to, input, payer } = line;
  return {
    ...{ record_id: line.obs_id, capability_id: line.capability_id, observed_at: toDate(line.t), as_of: asOf },
    ...{
      url: listing?.url,
      host: parseUrl(listing?.url ?? "")?.host,
      http_method: listing?.method,
      kind: KINDS[line.kind],
    },
    ...{ state: line.state, status: Number.isInteger(status) ? status : null, fault },
    ...{ live: line.live, honest: line.honest, settled: line.settled, delivered: line.delivered },
    ...{ refunded: line.refunded, schema_ok: line.schema_ok, delivery, outcome, latency_ms, price },
    ...{ ...termsOf(line), pay_to, input, weight: line.w, payer, evidence: key },
    ...{ blind: onlyBoolean(blind), retest: onlyBoolean(retest) },
  };
}

/**
 * Yields a row for every sample of the evidence, in the order of its files. Amendments (changes of a sample that were
 * learned later) are applied to it. The files are read twice, since an amendment may be in a later file than its
 * sample.
 */
export async function* sampleRows(record: RecordToRead): AsyncGenerator<Row> {
  const facts = await readLeaves(record);
  const asOf = toDate(record.asOf);
  const amendmentsBySample = new Map<string, AmendmentLine[]>();
  for await (const { lines } of evidenceLines(record.source, facts.evidence)) {
    for (const line of lines)
      if (!isSampleLine(line)) amendmentsBySample.set(line.of, [...(amendmentsBySample.get(line.of) ?? []), line]);
  }
  for await (const { file, lines } of evidenceLines(record.source, facts.evidence)) {
    for (const line of lines.filter(isSampleLine)) {
      const amendments = (amendmentsBySample.get(line.obs_id) ?? []).sort((a, b) => a.position - b.position);
      const amendedSample = SampleLine.safeParse({
        ...line,
        ...Object.fromEntries(amendments.map(({ field, value }) => [field, value])),
      });
      yield sampleRow(amendedSample.data ?? line, file, facts, asOf);
    }
  }
}
