import { z } from "zod";
import { ByteCache } from "../../infra/bounded-map.ts";
import type { Store } from "../../infra/store/store.ts";
import { parseJson } from "../../pipelines/published/errors.ts";
import { fetchFile, readFile } from "../../pipelines/published/files.ts";
import { AmendmentLine, SampleLine } from "../../pipelines/record/evidence.ts";
import { Problem } from "../http/problem.ts";
import type { EvidenceFile } from "./view.ts";

const NullableText = z.string().nullish().catch(null);

/**
 * The members of a paid call's line in an evidence file that failure pages show. Later facts about the call overwrite
 * members of the same name.
 */
const PaidRow = z.object({
  ...SampleLine.pick({ obs_id: true, capability_id: true, t: true, kind: true, price: true, pay_to: true }).shape,
  ...SampleLine.pick({ fault: true, honest: true, settled: true, delivered: true, refunded: true }).shape,
  ...SampleLine.pick({ delivery: true, outcome: true, schema_ok: true, latency_ms: true, response_sha256: true }).shape,
  request_sha256: NullableText,
  status: z.int().nullish().catch(null),
  checks: z
    .array(z.object({ name: z.string(), ok: z.boolean(), says: z.string().optional() }))
    .nullish()
    .catch(null),
  differs: z
    .array(z.object({ defect: z.string(), says: z.string() }))
    .nullish()
    .catch(null),
  settlement: z.object({ tx: z.string(), network: z.string(), asset: z.string() }).nullish().catch(null),
  quote: z.object({ network: z.string(), asset: z.string() }).nullish().catch(null),
  /**
   * Members that only a call published by its buyer has (`kind` 2). Lines of our own calls have `quote` and
   * `settlement` instead.
   */
  ...{ pass: z.boolean().optional(), tx: NullableText, network: NullableText, asset: NullableText },
});
export type PaidRow = z.infer<typeof PaidRow>;

/** A later fact about a paid call. */
export interface PaidFact {
  /** `obs_id` of the call. */
  callId: string;
  /** Position in the log. Facts are applied in this order. */
  position: number;
  /** Member of {@link PaidRow} that the fact replaces, and its new value. */
  field: string;
  value: unknown;
  /** Key of the file that holds the fact. */
  file: string;
}

/** The paid calls of one endpoint in one evidence file. */
export interface EndpointPaidCalls {
  /** Calls that may have failed, judged by their own line. */
  rows: PaidRow[];
  facts: PaidFact[];
}

/** The paid calls in one evidence file, by capability id. */
export type PaidFile = ReadonlyMap<string, EndpointPaidCalls>;

/**
 * Returns true if nothing failed in a call, judged by its own line. Returns false if something failed, and also if the
 * line does not say that the answer came and passed. Later facts about such a call can only say what
 * became of the money; they cannot turn it into a failure.
 */
export const hasNotFailed = ({ kind, pass, delivered, delivery, outcome, schema_ok, honest }: PaidRow): boolean =>
  kind === 2
    ? pass === true
    : delivered === true && delivery === 1 && (outcome ?? 1) === 1 && schema_ok !== false && honest !== false;

/** Returns a row with its later facts applied in log order. Facts that do not match PaidRow are ignored. */
export function applyFacts(row: PaidRow, facts: readonly PaidFact[]): PaidRow {
  let current = row;
  for (const { field, value } of [...facts].sort((a, b) => a.position - b.position)) {
    current = PaidRow.safeParse({ ...current, [field]: value }).data ?? current;
  }
  return current;
}

export interface PaidRowBounds {
  /** Largest number of compressed bytes of a file; a longer one is not read. */
  maxFileBytes: number;
  /** Largest number of uncompressed bytes of a file; a longer one is not read. */
  maxUnpackedBytes: number;
  /** Largest number of bytes of text of all rows and facts in memory. */
  maxCachedBytes: number;
  /** Largest number of files that may wait to be read; further ones are refused. */
  maxWaiting: number;
}

const PAID_ROW_BOUNDS: PaidRowBounds = {
  maxFileBytes: 32 * 1024 * 1024,
  maxUnpackedBytes: 256 * 1024 * 1024,
  maxCachedBytes: 64 * 1024 * 1024,
  maxWaiting: 256,
};

/**
 * Every line about a paid call contains this text (RFC 8785 fixes how it is written), so lines without it are not
 * parsed.
 */
const PAID_TOPIC = Buffer.from('"topic":"observations.paid"');

/**
 * Failed paid calls, read from the evidence files when a page needs them. A file is used only if it has the hash that
 * its leaf states. Files never change under their key, so they stay cached; the least recently used one is evicted
 * first. One file is read at a time.
 */
export class PaidRows {
  readonly #cached: ByteCache<PaidFile>;
  readonly #pendingReads = new Map<string, Promise<PaidFile>>();
  #readQueue: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly store: Pick<Store, "get">,
    private readonly bounds: PaidRowBounds = PAID_ROW_BOUNDS,
  ) {
    this.#cached = new ByteCache(bounds.maxCachedBytes);
  }

  /** Returns true if a file is too long to be read for an answer, compressed or not, else false. */
  isTooLong({ bytes, unpacked_bytes }: EvidenceFile): boolean {
    return bytes > this.bounds.maxFileBytes || unpacked_bytes > this.bounds.maxUnpackedBytes;
  }

  /** Returns the cached content of a file, or undefined. Reads nothing. */
  getCached({ key }: EvidenceFile): PaidFile | undefined {
    return this.#cached.get(key);
  }

  /**
   * Reads a file, after the reads that began earlier.
   * @throws MissingObject, Unproven (it does not have the hash of its leaf), errors of the store; Problem unavailable
   * when too many files wait
   */
  read(file: EvidenceFile): Promise<PaidFile> {
    const pending = this.#pendingReads.get(file.key);
    if (pending) return pending;
    if (this.#pendingReads.size >= this.bounds.maxWaiting) {
      throw new Problem("unavailable", "too much evidence is being read", { headers: { "retry-after": "5" } });
    }
    const read = this.#readQueue.then(() => this.#read(file));
    this.#readQueue = read.catch(() => undefined);
    const pendingRead = read.finally(() => this.#pendingReads.delete(file.key));
    this.#pendingReads.set(file.key, pendingRead);
    return pendingRead;
  }

  async #read(file: EvidenceFile): Promise<PaidFile> {
    const get = async (key: string, maxBytes: number) => (await this.store.get(key, { maxBytes }))?.bytes ?? null;
    const packed = await fetchFile({ get }, file);
    const parts = new Map<string, EndpointPaidCalls>();
    let storedLength = 0;
    await readFile(packed, file, (line) => {
      if (line.includes(PAID_TOPIC)) storedLength += addLine(parts, file.key, parseJson(line));
    });
    this.#cached.set(file.key, parts, storedLength);
    return parts;
  }
}

/**
 * Adds a line to its endpoint's part if it is a paid call that may have failed, or a later fact about any paid call.
 * @returns length of the stored text; 0 if nothing was added
 */
function addLine(parts: Map<string, EndpointPaidCalls>, file: string, line: unknown): number {
  const row = PaidRow.safeParse(line).data;
  if (row) {
    if (hasNotFailed(row)) return 0;
    partOf(parts, row.capability_id).rows.push(row);
    return JSON.stringify(row).length;
  }
  const fact = AmendmentLine.safeParse(line).data;
  if (!fact || !(fact.field in PaidRow.shape)) return 0;
  const { capability_id, of, position, field, value } = fact;
  partOf(parts, capability_id).facts.push({ callId: of, position, field, value, file });
  return JSON.stringify(fact).length;
}

function partOf(parts: Map<string, EndpointPaidCalls>, cap: string): EndpointPaidCalls {
  const existing = parts.get(cap);
  if (existing) return existing;
  const part: EndpointPaidCalls = { rows: [], facts: [] };
  parts.set(cap, part);
  return part;
}
