import { canonicalText } from "../../infra/canonical.ts";
import type { BodyOf } from "../record/bodies.ts";
import type { AmendmentLine, EvidenceLine, SampleLine } from "../record/evidence.ts";
import { plannedSlot } from "../record/ids.ts";
import { BLOCK_MS, blockStart, rfc3339 } from "../record/time.ts";
import { type PaidFact, type PaidState, paidState } from "./paid-state.ts";

/** One record with what it speaks of: a sample by its id, or a capability. */
export interface Fact extends PaidFact {
  of: string;
  cap: string;
  topic: string;
}

/** Money of the record has six decimals, always; a row's price is the same as a number. */
const priceOf = (money: string | null): number | null => (money === null ? null : Number(money.replace(".", "")) / 1e6);

const plannedAt = ({ block, minute }: { block: number; minute: number }): string =>
  rfc3339(new Date(blockStart(block).getTime() + minute * 60_000));

const namesOf = ({ of, cap, topic }: Fact) => ({ obs_id: of, capability_id: cap, topic });

/** A handshake is one record and never amended. */
function probeSample(fact: Fact): SampleLine {
  const { slot, planned, state, live, honest, wall, fault, latency_ms, price, ...rest } =
    fact.body as BodyOf<"handshake">;
  return {
    // Members of a body that this reader does not know are facts all the same.
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

/** Members that differ, as the second one has them. */
function changes(from: PaidState, to: PaidState): [keyof PaidState, unknown][] {
  const names = Object.keys(to) as (keyof PaidState)[];
  return names.flatMap((name): [keyof PaidState, unknown][] =>
    canonicalText(from[name]) === canonicalText(to[name]) ? [] : [[name, to[name]]],
  );
}

interface Step {
  offset: number;
  state: PaidState;
  fact: Fact;
}

/** How the row read after each record, from the intent on, in the order of the log. */
function stepsOf(facts: readonly Fact[]): { intent: Fact; steps: Step[] } | null {
  const ordered = [...facts].sort((a, b) => a.offset - b.offset);
  const at = ordered.findIndex(({ type }) => type === "paid.intent");
  const intent = ordered[at];
  if (!intent) return null;
  const body = intent.body as BodyOf<"paid.intent">;
  const steps = ordered.slice(at).map((fact, i) => ({
    offset: fact.offset,
    fact,
    state: paidState({ ...intent, body }, ordered.slice(0, at + i + 1)),
  }));
  return { intent, steps };
}

/** Earlier readings of a row whose line holds the last of these steps. */
function beforeOf(steps: readonly Step[]): NonNullable<SampleLine["before"]> {
  const now = steps.at(-1)!.state;
  const earlier = steps.slice(0, -1).map(({ state }, i) => {
    return { upto: steps[i + 1]!.offset, ...Object.fromEntries(changes(now, state)) };
  });
  // Two readings in a row that are the same are one, and the last ones may be the line's own.
  const same = (a: object, b: object | undefined) =>
    b !== undefined && canonicalText({ ...a, upto: 0 }) === canonicalText({ ...b, upto: 0 });
  return earlier.filter((entry, i) => !same(entry, earlier[i + 1] ?? { upto: 0 }));
}

function paidLine(intent: Fact, steps: readonly Step[]): SampleLine {
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
 * Lines that a file has of one paid call: the call itself when its intent is a member, with every member that follows it
 * without a stranger in between; each later member as what it changed. Records that speak of no known call make none.
 */
function paidLines(facts: readonly Fact[]): EvidenceLine[] {
  const course = stepsOf(facts);
  if (!course) return [];
  const { intent, steps } = course;
  const stranger = steps.findIndex(({ fact }) => !fact.member);
  const merged = intent.member ? (stranger < 0 ? steps.length : stranger) : 0;
  const lines: EvidenceLine[] = merged > 0 ? [paidLine(intent, steps.slice(0, merged))] : [];
  for (const [i, { fact, state }] of steps.entries()) {
    // What was in the log before the intent is in every reading of the row already.
    if (i < Math.max(merged, 1) || !fact.member) continue;
    for (const [field, value] of changes(steps[i - 1]!.state, state)) lines.push(amendment(fact, field, value));
  }
  return lines;
}

/**
 * All lines of a file that speak of one thing: a sample, or a capability's corrections.
 * @param facts every record of it that is in the log, those that the file contains marked as members
 */
export function linesOf(facts: readonly Fact[]): EvidenceLine[] {
  const lines: EvidenceLine[] = paidLines(facts.filter(({ topic }) => topic === "observations.paid"));
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

/** The sample first, then what came later, by position in the log; one record's fields by name. */
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
