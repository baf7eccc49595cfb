import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import { Failure } from "../../infra/errors.ts";
import { createDraft, type Draft } from "../1-observe/recorder.ts";
import type { BodyOf } from "../record/bodies.ts";
import { idOf } from "../record/ids.ts";
import { rfc3339 } from "../record/time.ts";
import { OUR_FAULTS } from "../record/vocabulary.ts";
import type { EndpointRecord } from "./endpoint-record.ts";
import { NotInRecord } from "./errors.ts";

/** An operator's command to withdraw records of one endpoint. */
export interface CorrectionOrder {
  /** Ids of the records to withdraw, or every record observed before now. */
  records: readonly string[] | "all_before_now";
  /** `computed_at` of the wrong grade, or null. */
  gradeAt: string | null;
  /** A key of `OUR_FAULTS`. */
  fault: string;
  /** What was wrong, in the operator's words, which are published. */
  says: string;
}

/**
 * Largest number of records that one command may name. They fit into one batch of the log, which is written whole or
 * not at all.
 */
const MAX_RECORDS = 1_000;
const MAX_REASON_LENGTH = 2_000;
const LONE_SURROGATE = /\p{Surrogate}/u;
const RFC3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/;

/** Checks a text that is to be published. @throws Failure `usage` */
function checkReason(says: string): string {
  const text = says.trim();
  if (text.length === 0) throw new Failure("usage", "--says: say what was got wrong");
  if (text.length > MAX_REASON_LENGTH)
    throw new Failure("usage", `--says: at most ${MAX_REASON_LENGTH} characters, these are ${text.length}`);
  if (LONE_SURROGATE.test(text)) throw new Failure("usage", "--says: half a character cannot be published");
  return text;
}

function checkTime(text: string | null, now: Date): string | null {
  if (text === null) return null;
  const time = RFC3339.test(text) ? new Date(text) : null;
  if (!time || Number.isNaN(time.getTime()) || rfc3339(time).slice(0, 10) !== text.slice(0, 10)) {
    throw new Failure(
      "usage",
      `--grade-at: expected a time such as 2026-11-21T06:00:00.000Z, got ${JSON.stringify(text)}`,
    );
  }
  if (time > now) throw new Failure("usage", `--grade-at: ${text} is still to come`);
  return rfc3339(time);
}

/**
 * Checks an operator's command against the endpoint's record and makes its corrections. Writes nothing.
 * @throws Failure `usage`, NotInRecord, Failure `already`: then none of the corrections may be written
 */
export function planCorrections(record: EndpointRecord, order: CorrectionOrder, now: Date): BodyOf<"correction">[] {
  if (!Object.hasOwn(OUR_FAULTS, order.fault)) {
    const knownFaults = Object.keys(OUR_FAULTS).join(", ");
    throw new Failure("usage", `--fault: ${JSON.stringify(order.fault)} is none of our faults: ${knownFaults}`);
  }
  const grade_at = checkTime(order.gradeAt, now);
  const commonMembers = { grade_at, fault: order.fault, says: checkReason(order.says), issued_at: rfc3339(now) };
  const targets =
    order.records === "all_before_now"
      ? [targetAllRecords(record, commonMembers.issued_at)]
      : findTargets(record, order.records, grade_at);
  return targets.map(({ record_id, observed_at }) => {
    const { fault, says, issued_at } = commonMembers;
    const id = `cor_${idOf([record.cap, record_id ?? "", grade_at ?? "", fault, says, issued_at])}`;
    return { id, record_id, observed_at, ...commonMembers };
  });
}

interface Target {
  record_id: string | null;
  /**
   * When the withdrawn record was observed; only later letters (grades) can rest on it. null: the correction
   * withdraws all records.
   */
  observed_at: string | null;
}

function findTargets(record: EndpointRecord, ids: readonly string[], gradeAt: string | null): Target[] {
  const uniqueIds = [...new Set(ids)];
  if (uniqueIds.length === 0) throw new Failure("usage", "--record: name a record, or say --all-before-now");
  if (uniqueIds.length > MAX_RECORDS) throw new Failure("usage", `--record: at most ${MAX_RECORDS} records at once`);
  return uniqueIds.map((id) => findTarget(record, id, gradeAt));
}

function findTarget({ cap, records, correctionRecords }: EndpointRecord, id: string, gradeAt: string | null): Target {
  const namedRecord = records.get(id);
  if (!namedRecord) throw new NotInRecord(`${id} is not in the record of ${cap}`);
  if (namedRecord.sampleId !== null)
    throw new Failure("usage", `${id} is a ${namedRecord.type}: name its paid.intent, ${namedRecord.sampleId}`);
  const { observedAt } = namedRecord;
  const correction = correctionRecords.findWithdrawing(id, observedAt);
  if (correction)
    throw new Failure("already", `${id} is withdrawn already, by ${correction.id} of ${correction.issuedAt}`);
  if (gradeAt !== null && gradeAt <= observedAt) {
    throw new Failure("usage", `--grade-at: a grade of ${gradeAt} did not stand on ${id}, observed at ${observedAt}`);
  }
  return { record_id: id, observed_at: observedAt };
}

function targetAllRecords(record: EndpointRecord, now: string): Target {
  if (countNotWithdrawn(record, now) === 0)
    throw new Failure("already", `${record.cap} has no record left that counts before ${now}`);
  return { record_id: null, observed_at: null };
}

/**
 * Number of samples observed before `before` that no correction has withdrawn. A record with a `sampleId` only adds to
 * the sample of another record, so it is not counted.
 */
export const countNotWithdrawn = ({ records, correctionRecords }: EndpointRecord, before: string): number =>
  [...records].filter(
    ([id, { sampleId, observedAt }]) =>
      sampleId === null && observedAt < before && !correctionRecords.findWithdrawing(id, observedAt),
  ).length;

/** Makes the reinstatement, which revokes a correction. @throws Failure `already`, NotInRecord */
export function planReinstatement(
  { corrections, reinstated }: EndpointRecord["correctionRecords"],
  id: string,
  says: string,
): { cap: string; body: BodyOf<"reinstated"> } {
  const correction = corrections.get(id);
  if (!correction) throw new NotInRecord(`no correction ${id} is in the record`);
  if (reinstated.has(id)) throw new Failure("already", `${id} was taken back already`);
  return { cap: correction.cap, body: { correction: id, says: checkReason(says) } };
}

/**
 * Makes a record of the topic `corrections`. Its id is computed from the hash of its body (records.md, Envelope), so
 * that a copy of it is recognised and dropped.
 */
export const createCorrectionDraft = <T extends "correction" | "reinstated" | "dispute">(
  type: T,
  cap: string,
  body: BodyOf<T>,
  at: Date,
): Draft => createDraft({ type, cap, slot: sha256hex(canonicalText(body)), at, body } as Draft<T>);
