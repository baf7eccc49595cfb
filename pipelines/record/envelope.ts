import { z } from "zod";
import { canonicalBytes } from "../../infra/canonical.ts";
import type { LogRecord, NewRecord } from "../../infra/log/log.ts";
import { BODIES, type BodyOf, type RecordType, TOPIC_OF } from "./bodies.ts";
import { isId, partitionOf, recordId } from "./ids.ts";
import { RFC3339, rfc3339 } from "./time.ts";
import type { Topic } from "./topics.ts";

/**
 * Version of the envelopes (the members that all records of the log have) that this code writes. Readers accept every
 * version that was ever written.
 */
export const ENVELOPE_VERSION = 1;

const Rfc3339 = z.string().regex(RFC3339);

/** The members that every record has (records.md, Envelope). Unknown members are kept. */
const EnvelopeShape = z.looseObject({
  v: z.int().min(1),
  type: z.string(),
  event_id: z.string().refine((id) => isId("rec", id), "not a record id"),
  cap: z
    .string()
    .refine((id) => isId("cap", id), "not a capability id")
    .optional(),
  key: z.string().min(1).max(512),
  observed_at: Rfc3339,
  producer: z.string().max(120),
  body: z.looseObject({}),
});

export interface Envelope<T extends RecordType = RecordType> {
  v: number;
  type: T;
  event_id: string;
  /** Capability id; absent for types that are not about one endpoint. */
  cap?: string;
  /**
   * Key that determines the record's partition: the capability id for most types, the host for an ask (a client's
   * request to probe a url), the key of the buyer's payment for an order.
   */
  key: string;
  observed_at: string;
  /** Name of the process or module that wrote the record. */
  producer: string;
  body: BodyOf<T>;
}

/**
 * The values from which an envelope is made. The event id is a hash over type, key, `slot` and `attempt`, so the id
 * of a call's record is known before the call (records.md).
 */
export interface EnvelopeInput<T extends RecordType>
  extends Pick<Envelope<T>, "type" | "cap" | "key" | "producer" | "body"> {
  slot: string;
  attempt?: number;
  at: Date;
}

/** Makes an envelope of the current version. */
export function envelopeOf<T extends RecordType>(input: EnvelopeInput<T>): Envelope<T> {
  const { type, cap, key, slot, attempt, at, producer, body } = input;
  const event_id = recordId(type, key, slot, attempt);
  const capMember = cap === undefined ? {} : { cap };
  return { v: ENVELOPE_VERSION, type, event_id, ...capMember, key, observed_at: rfc3339(at), producer, body };
}

/** `UPCASTS[n]` converts an envelope of version n to version n + 1. Empty, since there is only one version so far. */
const UPCASTS: Record<number, (raw: Record<string, unknown>) => Record<string, unknown>> = {};

/**
 * A decoder that throws for bytes that are no UTF-8. It is created once, since creating a decoder takes as long as
 * reading a record.
 */
const UTF8 = new TextDecoder("utf-8", { fatal: true });

export type ReadResult = { ok: true; envelope: Envelope } | { ok: false; reason: string };

/**
 * Reads the bytes of a log record. Never throws: for bytes that do not parse or validate, and for versions later than
 * ours, it returns the reason, which the caller stores with the rejected record.
 */
export function readEnvelope(bytes: Uint8Array): ReadResult {
  let raw: unknown;
  try {
    raw = JSON.parse(UTF8.decode(bytes));
  } catch (error) {
    return { ok: false, reason: `not JSON: ${(error as Error).message.slice(0, 120)}` };
  }
  if (typeof raw !== "object" || raw === null) return { ok: false, reason: "not an object" };
  let value = raw as Record<string, unknown>;
  for (let v = value.v; typeof v === "number" && v < ENVELOPE_VERSION; v = value.v) {
    const step = UPCASTS[v];
    if (!step) return { ok: false, reason: `version ${v} was never written` };
    value = step(value);
  }
  if (typeof value.v === "number" && value.v > ENVELOPE_VERSION) {
    return { ok: false, reason: `version ${value.v} is from the future` };
  }
  const shape = EnvelopeShape.safeParse(value);
  if (!shape.success) return { ok: false, reason: firstIssue("envelope", shape.error) };
  const type = shape.data.type as RecordType;
  const schema = Object.hasOwn(BODIES, type) ? BODIES[type] : undefined;
  if (!schema) return { ok: false, reason: `unknown type ${JSON.stringify(type).slice(0, 60)}` };
  const body = schema.safeParse(shape.data.body);
  if (!body.success) return { ok: false, reason: firstIssue(type, body.error) };
  return { ok: true, envelope: { ...shape.data, type, body: body.data } as Envelope };
}

function firstIssue(valueName: string, error: z.ZodError): string {
  const issue = error.issues[0]!;
  return `${valueName}: ${issue.path.join("/") || "value"}: ${issue.message}`.slice(0, 300);
}

/**
 * Makes a record for the log: validates the envelope, prints its canonical bytes, and finds topic and partition.
 * @throws ZodError when the body does not fit its type: a bug of ours, found before anything is written
 */
export function sealEnvelope<T extends RecordType>(envelope: Envelope<T>, partitions: number): NewRecord {
  const { body, ...otherMembers } = envelope;
  EnvelopeShape.parse({ ...otherMembers, body: {} });
  const validBody = BODIES[envelope.type].parse(body);
  return {
    topic: TOPIC_OF[envelope.type] satisfies Topic,
    partition: partitionOf(envelope.key, partitions),
    eventId: envelope.event_id,
    key: envelope.key,
    value: canonicalBytes({ ...otherMembers, body: validBody }),
  };
}

/** Reads a log record with {@link readEnvelope}. */
export const readRecord = (record: LogRecord): ReadResult => readEnvelope(record.value);
