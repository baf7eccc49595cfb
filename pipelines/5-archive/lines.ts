import { canonicalText } from "../../infra/canonical.ts";
import type { BodyOf } from "../record/bodies.ts";
import type { AmendmentLine, EvidenceLine, SampleLine } from "../record/evidence.ts";
import { plannedSlot } from "../record/ids.ts";
import { BLOCK_MS, blockStart, DAY_MS, rfc3339 } from "../record/time.ts";
import { type PaidFact, type PaidState, paidState } from "./paid-state.ts";

/** One record of the event log. */
export interface Fact extends PaidFact {
  /** Id of the sample that the record is about; of a correction without a record id, the id of the capability. */
  subjectId: string;
  cap: string;
  topic: string;
}

/** Converts an amount, a text with always six decimals, to the number in a row. */
const toPrice = (money: string | null): number | null => (money === null ? null : Number(money.replace(".", "")) / 1e6);

const plannedAt = ({ block, minute }: { block: number; minute: number }): string =>
  rfc3339(new Date(blockStart(block).getTime() + minute * 60_000));

const identityOf = ({ subjectId, cap, topic }: Fact) => ({ obs_id: subjectId, capability_id: cap, topic });

/** Makes the line of a handshake. A handshake is one record and is never amended. */
function probeSample(fact: Fact): SampleLine {
  const { slot, planned, state, live, honest, wall, fault, latency_ms, price, ...rest } =
    fact.body as BodyOf<"handshake">;
  return {
    // Members of the body that this version does not know are kept too.
    ...rest,
    ...identityOf(fact),
    position: fact.offset,
    first: fact.offset,
    t: rfc3339(new Date(fact.t)),
    kind: 0,
    payer: null,
    w: 1,
    fault: fault ?? (wall ? "blocked" : null),
    ...{ live, honest, wall, state, planned, latency_ms },
    ...{ settled: false, delivered: null, refunded: false, delivery: null, outcome: null, schema_ok: null },
    price: toPrice(price),
    input: null,
    response_sha256: null,
    slot: plannedSlot(slot.block, slot.minute),
    block: Math.floor(fact.t / BLOCK_MS),
    planned_at: plannedAt(slot),
    attempt: null,
    blind: null,
    request_sha256: null,
  };
}

/** Lists the members of `to` whose values differ from those of `from`. */
function changedMembers<S extends object>(from: S, to: S): [string, unknown][] {
  const names = Object.keys(to) as (keyof S & string)[];
  return names.flatMap((name): [string, unknown][] =>
    canonicalText(from[name]) === canonicalText(to[name]) ? [] : [[name, to[name]]],
  );
}

/** The state of a row after one of the records that make or change it. */
interface Step<S> {
  offset: number;
  state: S;
  fact: Fact;
}

/**
 * A kind of row that later records change: the type of its first record, a function that computes the row's state
 * after some of its records, and one that makes the row's line.
 */
interface RowKind<S extends object> {
  head: "paid.intent" | "paid.published";
  stateOf(head: Fact, facts: readonly Fact[]): S;
  lineOf(head: Fact, steps: readonly Step<S>[]): SampleLine;
}

/**
 * Computes the state of a row after each of its records in the order of the log, beginning with the first record of
 * type `kind.head`; null when there is no such record.
 */
function rowSteps<S extends object>(facts: readonly Fact[], kind: RowKind<S>): { head: Fact; steps: Step<S>[] } | null {
  const ordered = [...facts].sort((a, b) => a.offset - b.offset);
  const headIndex = ordered.findIndex(({ type }) => type === kind.head);
  const head = ordered[headIndex];
  if (!head) return null;
  const steps = ordered.slice(headIndex).map((fact, i) => ({
    offset: fact.offset,
    fact,
    state: kind.stateOf(head, ordered.slice(0, headIndex + i + 1)),
  }));
  return { head, steps };
}

/** Makes the member `before` of a line: the states before the last one, each as its differences from the last one. */
function earlierStates(steps: readonly Step<object>[]): NonNullable<SampleLine["before"]> {
  const currentState = steps.at(-1)!.state;
  const earlierEntries = steps.slice(0, -1).map(({ state }, i) => {
    return { upto: steps[i + 1]!.offset, ...Object.fromEntries(changedMembers(currentState, state)) };
  });
  // Of equal consecutive states only the last becomes an entry; a state equal to the line's own is left out.
  const isSameState = (a: object, b: object | undefined) =>
    b !== undefined && canonicalText({ ...a, upto: 0 }) === canonicalText({ ...b, upto: 0 });
  return earlierEntries.filter((entry, i) => !isSameState(entry, earlierEntries[i + 1] ?? { upto: 0 }));
}

function paidLine(intent: Fact, steps: readonly Step<PaidState>[]): SampleLine {
  const body = intent.body as BodyOf<"paid.intent">;
  const before = earlierStates(steps);
  const { state, offset } = steps.at(-1)!;
  return {
    ...identityOf(intent),
    ...state,
    position: offset,
    first: intent.offset,
    ...(before.length > 0 ? { before } : {}),
    t: rfc3339(new Date(intent.t)),
    kind: 1,
    payer: null,
    w: body.w,
    price: toPrice(body.quote.price),
    input: body.input,
    pay_to: body.quote.pay_to,
    slot: plannedSlot(body.slot.block, body.slot.minute),
    block: Math.floor(intent.t / BLOCK_MS),
    planned_at: body.planned_at,
    attempt: body.attempt,
    retest: body.retest,
    blind: body.blind,
    wallet: body.wallet,
    request_sha256: body.request_sha256,
    schema_sha256: body.schema_sha256,
    listing_record: body.listing_record,
    quote: body.quote,
    terms: body.first_leg.terms,
    first_leg: {
      honest: body.first_leg.honest,
      latency_ms: body.first_leg.latency_ms,
      differs: body.first_leg.differs,
    },
    deadline: body.deadline,
  };
}

const PAID_ROW: RowKind<PaidState> = {
  head: "paid.intent",
  stateOf: (intent, facts) => paidState({ ...intent, body: intent.body as BodyOf<"paid.intent"> }, facts),
  lineOf: paidLine,
};

/**
 * HTTP statuses by which a seller rejects the request itself. A failure with such a status is not counted against the
 * seller.
 */
const REFUSING_STATUSES: ReadonlySet<number | null> = new Set([400, 404, 405, 406, 409, 410, 411, 413, 414, 415, 422]);

/**
 * The state of a call that a buyer published, after some of its records. `fault` is null if its failure counts
 * against the seller, or if it did not fail. sql/samples/published computes the current state in the lake; this
 * function computes it for any position of the log.
 */
function publishedState({ body, t }: Fact, facts: readonly Fact[]): { fault: string | null } {
  const { pass, status } = body as BodyOf<"paid.published">;
  if (pass) return { fault: null };
  if (REFUSING_STATUSES.has(status)) return { fault: "bad_input" };
  const verdicts = facts.filter((fact) => {
    const { kind } = fact.body as BodyOf<"paid.followup">;
    const isVerdict = kind === "reproduced" || kind === "not_reproduced";
    return fact.type === "paid.followup" && isVerdict && fact.t >= t - DAY_MS;
  });
  const [firstVerdict] = verdicts.sort((a, b) => a.t - b.t || (a.event_id < b.event_id ? -1 : 1));
  if (!firstVerdict) return { fault: "unconfirmed" };
  return { fault: (firstVerdict.body as BodyOf<"paid.followup">).kind === "reproduced" ? null : "not_reproduced" };
}

/**
 * Makes the line of a call that a buyer published. It leaves out the order's id, since anyone with the id could read
 * the order and find the buyer's wallet.
 */
function publishedLine(head: Fact, steps: readonly Step<{ fault: string | null }>[]): SampleLine {
  const body = head.body as BodyOf<"paid.published">;
  const before = earlierStates(steps);
  const { state, offset } = steps.at(-1)!;
  return {
    ...identityOf(head),
    ...state,
    position: offset,
    first: head.offset,
    ...(before.length > 0 ? { before } : {}),
    t: rfc3339(new Date(head.t)),
    kind: 2,
    payer: body.payer,
    w: 1,
    ...{ live: true, honest: null, settled: true, refunded: false, outcome: null },
    ...{ delivered: body.delivered, delivery: body.delivery, schema_ok: body.schema_ok, latency_ms: body.latency_ms },
    price: toPrice(body.price),
    input: null,
    pay_to: body.pay_to,
    block: Math.floor(head.t / BLOCK_MS),
    ...{ url: body.url, method: body.method, network: body.network, asset: body.asset, tx: body.tx },
    ...{ pass: body.pass, status: body.status, checks: body.checks, content_type: body.content_type },
    ...{ request_sha256: body.request_sha256, request_bytes: body.request_bytes },
    ...{ response_sha256: body.response_sha256, response_bytes: body.response_bytes },
  };
}

const PUBLISHED_ROW: RowKind<{ fault: string | null }> = {
  head: "paid.published",
  stateOf: publishedState,
  lineOf: publishedLine,
};

const createAmendment = (fact: Fact, field: string, value: unknown): AmendmentLine => ({
  of: fact.subjectId,
  capability_id: fact.cap,
  topic: fact.topic,
  position: fact.offset,
  observed_at: rfc3339(new Date(fact.t)),
  field,
  value,
});

/**
 * Makes the lines of one call. If the call's first record belongs to the file (is a member), the call's line covers
 * this record and the members directly after it, up to the first record that is no member. Each later member becomes
 * amendments, one for each field of the row that it changed. Without the call's first record there are no lines.
 */
function callLines<S extends object>(facts: readonly Fact[], kind: RowKind<S>): EvidenceLine[] {
  const rowHistory = rowSteps(facts, kind);
  if (!rowHistory) return [];
  const { head, steps } = rowHistory;
  const firstOutside = steps.findIndex(({ fact }) => !fact.member);
  const mergedSteps = head.member ? (firstOutside < 0 ? steps.length : firstOutside) : 0;
  const lines: EvidenceLine[] = mergedSteps > 0 ? [kind.lineOf(head, steps.slice(0, mergedSteps))] : [];
  for (const [i, { fact, state }] of steps.entries()) {
    // Records that precede the call's first record in the log are part of every state, so they make no amendment.
    if (i < Math.max(mergedSteps, 1) || !fact.member) continue;
    for (const [field, value] of changedMembers(steps[i - 1]!.state, state))
      lines.push(createAmendment(fact, field, value));
  }
  return lines;
}

/**
 * Makes all lines of a file about one sample, or about the corrections of one capability.
 * @param facts all records of the sample or capability in the log; those that the file has to contain are marked as
 * members
 */
export function linesOf(facts: readonly Fact[]): EvidenceLine[] {
  const paidFacts = facts.filter(({ topic }) => topic === "observations.paid");
  const lines: EvidenceLine[] = [...callLines(paidFacts, PAID_ROW), ...callLines(paidFacts, PUBLISHED_ROW)];
  for (const fact of facts) {
    if (!fact.member) continue;
    switch (fact.type) {
      case "handshake":
      case "mcp.probe":
        lines.push(probeSample(fact));
        break;
      case "mcp.paid":
        lines.push(createAmendment(fact, "mcp", fact.body));
        break;
      case "correction":
      case "reinstated":
      case "dispute":
        lines.push(createAmendment(fact, fact.type, fact.body));
    }
  }
  return lines.sort(compareLines);
}

/** Orders lines for a file: a sample's line first, then amendments by topic, log position and field name. */
function compareLines(a: EvidenceLine, b: EvidenceLine): number {
  const sortKey = (line: EvidenceLine) => [
    "obs_id" in line ? 0 : 1,
    line.topic,
    line.position,
    "field" in line ? String(line.field) : "",
  ];
  const [x, y] = [sortKey(a), sortKey(b)];
  const firstDifference = x.findIndex((value, i) => value !== y[i]);
  return firstDifference < 0 ? 0 : x[firstDifference]! < y[firstDifference]! ? -1 : 1;
}
