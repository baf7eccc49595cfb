import { canonicalText } from "../../infra/canonical.ts";
import type { BodyOf } from "../record/bodies.ts";
import type { AmendmentLine, EvidenceLine, SampleLine } from "../record/evidence.ts";
import { plannedSlot } from "../record/ids.ts";
import { BLOCK_MS, blockStart, DAY_MS, rfc3339 } from "../record/time.ts";
import { type PaidFact, type PaidState, paidState } from "./paid-state.ts";

/** One record and what it is about (`of`): a sample, or a capability. */
export interface Fact extends PaidFact {
  of: string;
  cap: string;
  topic: string;
}

/** Money in the record always has six decimals; a row's price is a number. */
const priceOf = (money: string | null): number | null => (money === null ? null : Number(money.replace(".", "")) / 1e6);

const plannedAt = ({ block, minute }: { block: number; minute: number }): string =>
  rfc3339(new Date(blockStart(block).getTime() + minute * 60_000));

const namesOf = ({ of, cap, topic }: Fact) => ({ obs_id: of, capability_id: cap, topic });

/** The line of a handshake, which is one record and never amended. */
function probeSample(fact: Fact): SampleLine {
  const { slot, planned, state, live, honest, wall, fault, latency_ms, price, ...rest } =
    fact.body as BodyOf<"handshake">;
  return {
    // Members of the body that are not known here are kept too.
    ...rest,
    ...namesOf(fact),
    position: fact.offset,
    first: fact.offset,
    t: rfc3339(new Date(fact.t)),
    kind: 0,
    payer: null,
    w: 1,
    fault: fault ?? (wall ? "blocked" : null),
    ...{ live, honest, wall, state, planned, latency_ms },
    ...{ settled: false, delivered: null, refunded: false, delivery: null, outcome: null, schema_ok: null },
    price: priceOf(price),
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

/** The members that differ, with the values of `to`. */
function changes<S extends object>(from: S, to: S): [string, unknown][] {
  const names = Object.keys(to) as (keyof S & string)[];
  return names.flatMap((name): [string, unknown][] =>
    canonicalText(from[name]) === canonicalText(to[name]) ? [] : [[name, to[name]]],
  );
}

interface Step<S> {
  offset: number;
  state: S;
  fact: Fact;
}

/**
 * A kind of row that later records change: the type of its first record, its state after some records, and its line.
 */
interface RowKind<S extends object> {
  head: "paid.intent" | "paid.published";
  stateOf(head: Fact, facts: readonly Fact[]): S;
  lineOf(head: Fact, steps: readonly Step<S>[]): SampleLine;
}

/** The state of the row after each record, from its first record on, in the order of the log. */
function stepsOf<S extends object>(facts: readonly Fact[], kind: RowKind<S>): { head: Fact; steps: Step<S>[] } | null {
  const ordered = [...facts].sort((a, b) => a.offset - b.offset);
  const at = ordered.findIndex(({ type }) => type === kind.head);
  const head = ordered[at];
  if (!head) return null;
  const steps = ordered.slice(at).map((fact, i) => ({
    offset: fact.offset,
    fact,
    state: kind.stateOf(head, ordered.slice(0, at + i + 1)),
  }));
  return { head, steps };
}

/** The member `before` of a line that holds the last of these states. */
function beforeOf(steps: readonly Step<object>[]): NonNullable<SampleLine["before"]> {
  const now = steps.at(-1)!.state;
  const earlier = steps.slice(0, -1).map(({ state }, i) => {
    return { upto: steps[i + 1]!.offset, ...Object.fromEntries(changes(now, state)) };
  });
  // Equal states in a row are one entry; a state that equals the line's own is left out.
  const same = (a: object, b: object | undefined) =>
    b !== undefined && canonicalText({ ...a, upto: 0 }) === canonicalText({ ...b, upto: 0 });
  return earlier.filter((entry, i) => !same(entry, earlier[i + 1] ?? { upto: 0 }));
}

function paidLine(intent: Fact, steps: readonly Step<PaidState>[]): SampleLine {
  const body = intent.body as BodyOf<"paid.intent">;
  const before = beforeOf(steps);
  const { state, offset } = steps.at(-1)!;
  return {
    ...namesOf(intent),
    ...state,
    position: offset,
    first: intent.offset,
    ...(before.length > 0 ? { before } : {}),
    t: rfc3339(new Date(intent.t)),
    kind: 1,
    payer: null,
    w: body.w,
    price: priceOf(body.quote.price),
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

const PAID: RowKind<PaidState> = {
  head: "paid.intent",
  stateOf: (intent, facts) => paidState({ ...intent, body: intent.body as BodyOf<"paid.intent"> }, facts),
  lineOf: paidLine,
};

/** Statuses with which a seller rejects the request itself: such a failure never counts. */
const REFUSED: ReadonlySet<number | null> = new Set([400, 404, 405, 406, 409, 410, 411, 413, 414, 415, 422]);

/**
 * The state of a published call after some records: whether its failure counts. sql/samples/published computes this in
 * the lake for now; here it is computed for any position of the log.
 */
function publishedState({ body, t }: Fact, facts: readonly Fact[]): { fault: string | null } {
  const { pass, status } = body as BodyOf<"paid.published">;
  if (pass) return { fault: null };
  if (REFUSED.has(status)) return { fault: "bad_input" };
  const verdicts = facts.filter((fact) => {
    const { kind } = fact.body as BodyOf<"paid.followup">;
    const verdict = kind === "reproduced" || kind === "not_reproduced";
    return fact.type === "paid.followup" && verdict && fact.t >= t - DAY_MS;
  });
  const [first] = verdicts.sort((a, b) => a.t - b.t || (a.event_id < b.event_id ? -1 : 1));
  if (!first) return { fault: "unconfirmed" };
  return { fault: (first.body as BodyOf<"paid.followup">).kind === "reproduced" ? null : "not_reproduced" };
}

/** The line leaves out the order's id: its holder may read the order, and would find the buyer's wallet in it. */
function publishedLine(head: Fact, steps: readonly Step<{ fault: string | null }>[]): SampleLine {
  const body = head.body as BodyOf<"paid.published">;
  const before = beforeOf(steps);
  const { state, offset } = steps.at(-1)!;
  return {
    ...namesOf(head),
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
    price: priceOf(body.price),
    input: null,
    pay_to: body.pay_to,
    block: Math.floor(head.t / BLOCK_MS),
    ...{ url: body.url, method: body.method, network: body.network, asset: body.asset, tx: body.tx },
    ...{ pass: body.pass, status: body.status, checks: body.checks, content_type: body.content_type },
    ...{ request_sha256: body.request_sha256, request_bytes: body.request_bytes },
    ...{ response_sha256: body.response_sha256, response_bytes: body.response_bytes },
  };
}

const PUBLISHED: RowKind<{ fault: string | null }> = {
  head: "paid.published",
  stateOf: publishedState,
  lineOf: publishedLine,
};

const amendment = (fact: Fact, field: string, value: unknown): AmendmentLine => ({
  of: fact.of,
  capability_id: fact.cap,
  topic: fact.topic,
  position: fact.offset,
  observed_at: rfc3339(new Date(fact.t)),
  field,
  value,
});

/**
 * The lines of a file for one call. If the call's first record is a member of the file, its line covers this record and
 * the members that follow it up to the first record that is not a member. Each later member becomes amendments with
 * what it changed. Records without the call's first record make no line.
 */
function callLines<S extends object>(facts: readonly Fact[], kind: RowKind<S>): EvidenceLine[] {
  const found = stepsOf(facts, kind);
  if (!found) return [];
  const { head, steps } = found;
  const stranger = steps.findIndex(({ fact }) => !fact.member);
  const merged = head.member ? (stranger < 0 ? steps.length : stranger) : 0;
  const lines: EvidenceLine[] = merged > 0 ? [kind.lineOf(head, steps.slice(0, merged))] : [];
  for (const [i, { fact, state }] of steps.entries()) {
    // What was in the log before the first record is part of every state already.
    if (i < Math.max(merged, 1) || !fact.member) continue;
    for (const [field, value] of changes(steps[i - 1]!.state, state)) lines.push(amendment(fact, field, value));
  }
  return lines;
}

/**
 * All lines of a file about one sample, or about one capability's corrections.
 * @param facts all its records in the log; those that the file is to contain are marked as members
 */
export function linesOf(facts: readonly Fact[]): EvidenceLine[] {
  const paid = facts.filter(({ topic }) => topic === "observations.paid");
  const lines: EvidenceLine[] = [...callLines(paid, PAID), ...callLines(paid, PUBLISHED)];
  for (const fact of facts) {
    if (!fact.member) continue;
    switch (fact.type) {
      case "handshake":
      case "mcp.probe":
        lines.push(probeSample(fact));
        break;
      case "mcp.paid":
        lines.push(amendment(fact, "mcp", fact.body));
        break;
      case "correction":
      case "reinstated":
      case "dispute":
        lines.push(amendment(fact, fact.type, fact.body));
    }
  }
  return lines.sort(inOrder);
}

/** The sample first, then amendments by position in the log; fields of one record by name. */
function inOrder(a: EvidenceLine, b: EvidenceLine): number {
  const key = (line: EvidenceLine) => [
    "obs_id" in line ? 0 : 1,
    line.topic,
    line.position,
    "field" in line ? String(line.field) : "",
  ];
  const [x, y] = [key(a), key(b)];
  const at = x.findIndex((value, i) => value !== y[i]);
  return at < 0 ? 0 : x[at]! < y[at]! ? -1 : 1;
}
