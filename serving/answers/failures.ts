import { bucketOf } from "../../pipelines/record/ids.ts";
import { dayStart } from "../../pipelines/record/time.ts";
import { Problem } from "../http/problem.ts";
import type { FailedCall, FailuresAnswer } from "../schemas/trust.ts";
import {
  applyFacts,
  type EndpointPaidCalls,
  hasNotFailed,
  type PaidFact,
  type PaidRow,
  type PaidRows,
} from "../tables/paid-rows.ts";
import type { EvidenceFile, View } from "../tables/view.ts";
import { correctionsOf, isWithdrawn } from "./corrections.ts";
import { shellWord } from "./reproduce.ts";

/** Which page a client asks for, and how much may be read from the store for it. */
export interface PageRequest {
  /**
   * `next` of the previous page: time (unix ms) and id of its last call, joined by a hyphen. With an empty id the page
   * begins with the newest call before that time. Absent: the first page.
   */
  cursor?: string | undefined;
  /** Largest number of calls on the page. */
  limit: number;
  /** Largest number of files that may be read for the page because they are not cached. */
  maxFiles: number;
  /** Largest number of compressed bytes of those files. */
  maxBytes: number;
  /** Address of this service, with which the addresses of files begin. */
  baseUrl: string;
}

export type FailuresPage = Omit<FailuresAnswer, "schema" | "capability_id">;

/** Position of a call in the list: the newest calls come first; calls of one moment are ordered by descending id. */
interface CallPosition {
  ms: number;
  id: string;
}

const isBehind = (a: CallPosition, b: CallPosition): boolean => a.ms < b.ms || (a.ms === b.ms && a.id < b.id);
const positionOf = ({ t, obs_id }: PaidRow): CallPosition => ({ ms: Date.parse(t), id: obs_id });
const cursorOf = ({ ms, id }: CallPosition): string => `${ms}-${id}`;

function parseCursor(cursor: string | undefined): CallPosition {
  if (cursor === undefined) return { ms: Number.POSITIVE_INFINITY, id: "" };
  const at = cursor.indexOf("-");
  return { ms: Number(cursor.slice(0, at)), id: cursor.slice(at + 1) };
}

/** Groups files by their UTC day, the newest first. */
function groupByDay(files: readonly EvidenceFile[]): [string, EvidenceFile[]][] {
  const days = new Map<string, EvidenceFile[]>();
  for (const file of files) days.set(file.day, [...(days.get(file.day) ?? []), file]);
  return [...days].sort(([a], [b]) => (a < b ? 1 : -1));
}

/** Reads files within the limits of one answer; cached files cost nothing. */
class BoundedReads {
  readonly skippedFiles: string[] = [];
  #filesLeft: number;
  #bytesLeft: number;

  constructor(
    private readonly paid: PaidRows,
    { maxFiles, maxBytes }: PageRequest,
  ) {
    this.#filesLeft = maxFiles;
    this.#bytesLeft = maxBytes;
  }

  /**
   * Returns the paid calls of an endpoint in these files, and the facts about its calls in them: what became known
   * after a call, such as a late settlement. A file that is too long is skipped and noted. Returns null when reading a
   * file would exceed what is left of this answer's limits.
   */
  async readEndpoint(
    files: readonly EvidenceFile[],
    cap: string,
  ): Promise<{ key: string; part: EndpointPaidCalls }[] | null> {
    const parts: { key: string; part: EndpointPaidCalls }[] = [];
    for (const file of files) {
      if (this.paid.isTooLong(file)) {
        this.skippedFiles.push(file.key);
        continue;
      }
      let content = this.paid.getCached(file);
      if (!content) {
        if (this.#filesLeft === 0 || file.bytes > this.#bytesLeft) return null;
        this.#filesLeft--;
        this.#bytesLeft -= file.bytes;
        content = await this.paid.read(file);
      }
      const part = content.get(cap);
      if (part) parts.push({ key: file.key, part });
    }
    return parts;
  }
}

/**
 * Returns the failed paid calls of an endpoint, newest first, from the published evidence. Left out are calls whose
 * `fault` is set (they failed by our own fault, or a buyer's claim is not confirmed) and calls that a correction
 * withdrew. Files are read from the newest day on, so that later facts about a call are known before the call is
 * judged.
 * @throws Problem unavailable when the limits were reached before the page began (the files stay cached, so the next
 * request gets further); errors of {@link PaidRows.read}
 */
export async function failuresOf(view: View, cap: string, paid: PaidRows, request: PageRequest): Promise<FailuresPage> {
  const { baseUrl } = request;
  const start = parseCursor(request.cursor);
  const corrections = correctionsOf(view, cap);
  const reads = new BoundedReads(paid, request);
  const laterFacts = new Map<string, PaidFact[]>();
  const failures: FailedCall[] = [];
  let lastReadDay: string | null = null;
  const page = (next: CallPosition | null): FailuresPage => ({
    evidence_until: view.evidence.newestDay,
    failures: failures,
    left_out: reads.skippedFiles,
    next: next && cursorOf(next),
  });
  for (const [day, files] of groupByDay(view.evidence.filesOf(bucketOf(cap)))) {
    const parts = await reads.readEndpoint(files, cap);
    if (!parts) {
      if (lastReadDay !== null) return page({ ms: dayStart(lastReadDay).getTime(), id: "" });
      throw new Problem("unavailable", "older evidence is being read", { headers: { "retry-after": "1" } });
    }
    for (const fact of parts.flatMap(({ part }) => part.facts)) {
      laterFacts.set(fact.callId, [...(laterFacts.get(fact.callId) ?? []), fact]);
    }
    if (dayStart(day).getTime() >= start.ms) continue;
    lastReadDay = day;
    const calls = parts
      .flatMap(({ part, key }) => part.rows.map((row) => ({ row, key, facts: laterFacts.get(row.obs_id) ?? [] })))
      .map(({ row, key, facts }) => ({ row: applyFacts(row, facts), files: [key, ...facts.map(({ file }) => file)] }))
      .filter(({ row }) => row.fault === null && !hasNotFailed(row) && isBehind(positionOf(row), start))
      .filter(({ row }) => !isWithdrawn(corrections, row.obs_id, row.t))
      .sort((a, b) => (isBehind(positionOf(a.row), positionOf(b.row)) ? 1 : -1));
    for (const { row, files: keys } of calls) {
      if (failures.length === request.limit) return page(lastOf(failures));
      failures.push(toFailedCall(row, [...new Set(keys)], baseUrl));
    }
  }
  return page(null);
}

const lastOf = (found: readonly FailedCall[]): CallPosition => {
  const { at, id } = found.at(-1)!;
  return { ms: Date.parse(at), id };
};

/** What each of our own checks requires of an answer, in words. Checks of buyers have other names. */
const EXPECTED: Readonly<Record<string, string>> = {
  bytes_came: "an answer before the deadline",
  status: "a status from 200 to 299",
  parses: "JSON, as it declares",
  no_error_page: "an answer and no error page",
  truth: "the known answer to what was asked",
  schema: "an answer of its advertised schema",
  terms: "the terms of its listing and its 402",
};

const expectationOf = (name: string): string =>
  EXPECTED[name] ??
  (name.startsWith("class_") ? `an answer of the class ${name.slice(6)}` : `the check ${name} to pass`);

interface FailedCheck {
  name: string;
  /** What came instead of what the check requires, in words. */
  received: string;
}

/**
 * Returns the failed checks in the order in which they ran. Terms that the seller did not keep come last, as `terms`.
 */
function failedChecks({ checks, differs, honest, delivered }: PaidRow): FailedCheck[] {
  const failed = (checks ?? [])
    .filter(({ ok }) => !ok)
    .map(({ name, says }) => ({ name, received: receivedWords(name, says) }));
  const otherTerms = differs?.map(({ says }) => says).join(", ");
  if (honest === false) failed.push({ name: "terms", received: otherTerms || "other terms" });
  // A process that ended during the call recorded no checks.
  return failed.length === 0 && !delivered ? [{ name: "bytes_came", received: "nothing" }] : failed;
}

function receivedWords(name: string, says = ""): string {
  if (name === "bytes_came") return says || "nothing";
  return says === "" || says.startsWith("scored") ? `another answer${says && ` (${says})`}` : says;
}

/** Longest text, in characters, about what was expected, what was received or what happened. */
const MAX_CHARS = 300;
const shorten = (text: string): string => (text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS - 1)}…` : text);
const joinWords = (texts: readonly string[]): string => shorten([...new Set(texts)].join("; "));

/** Describes what happened to the money and the answer. */
function outcomeWords({ delivered, settled, refunded, price }: PaidRow, failed: readonly FailedCheck[]): string {
  const money = price === null ? "its price" : price.toFixed(6).replace(/(\.\d{2}\d*?)0+$/, "$1");
  if (delivered) {
    const names = failed.map(({ name }) => name).join(", ");
    const whatWasWrong = names === "terms" ? "on other terms than it had named" : `and its answer failed: ${names}`;
    return settled ? `It took ${money} ${whatWasWrong}.` : `It never took the payment ${whatWasWrong}.`;
  }
  if (!settled) return "Nothing came back, and the payment never settled.";
  return refunded ? `Nothing came back, and ${money} was paid back.` : `It took ${money} and nothing came back.`;
}

function toFailedCall(row: PaidRow, keys: readonly string[], baseUrl: string): FailedCall {
  const files = keys.map((key) => `${baseUrl}/${key}`);
  const { settlement, quote, status = null } = row;
  const failed = failedChecks(row);
  const receivedTexts = failed.map(({ received }) => received);
  const isStatusOmitted = status === null || failed.some(({ name }) => name === "status") || row.kind === 2;
  return {
    id: row.obs_id,
    at: row.t,
    paid_by: row.kind === 2 ? "a_buyer" : "us",
    says: shorten(outcomeWords(row, failed)),
    failed: failed.map(({ name }) => name),
    expected: joinWords(failed.map(({ name }) => expectationOf(name))),
    came: joinWords(isStatusOmitted ? receivedTexts : [`status ${status}`, ...receivedTexts]),
    ...{ status, latency_ms: row.latency_ms, price: row.price === null ? null : row.price.toFixed(6) },
    network: settlement?.network ?? quote?.network ?? row.network ?? null,
    asset: settlement?.asset ?? quote?.asset ?? row.asset ?? null,
    pay_to: row.pay_to,
    tx: settlement?.tx ?? row.tx ?? null,
    refunded: row.refunded === true,
    ...{ request_sha256: row.request_sha256 ?? null, response_sha256: row.response_sha256 },
    evidence: files,
    reproduce: `curl -fsS ${files.map(shellWord).join(" ")} | zstd -dc | grep -F ${row.obs_id}`,
  };
}
