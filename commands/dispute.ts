import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { draftOf } from "../pipelines/corrections/correct.ts";
import {
  checkPayee,
  disputeBody,
  disputeId,
  readDispute,
  type SignedDispute,
} from "../pipelines/corrections/dispute.ts";
import { type EndpointRecord, readEndpoint } from "../pipelines/corrections/endpoint-record.ts";
import { BadDispute, NotInRecord } from "../pipelines/corrections/errors.ts";
import { lookAt } from "./corrections.ts";
import { readNamedJson } from "./files.ts";
import { recorderOf, withDone } from "./opening.ts";

/** `touchstone dispute`: a seller's signed dispute from a file, for one that came by mail. */
export const dispute = (config: Config, file: string, options: { json?: boolean }): Promise<void> =>
  withDone(config, options.json, async (reading, parts) => {
    const now = systemClock.now();
    const signed = await disputeIn(file, new URL(config.base_url).origin, now);
    const record = await readEndpoint(reading, signed.capability_id);
    await checkPayee(signed, record.payTos);
    refuseUnknown(record, signed.record_id);
    const id = disputeId(signed);
    if (record.correctionRecords.disputes.has(id))
      throw new Failure("already", `dispute ${id} is in the record already`);
    await recorderOf(parts).append([draftOf("dispute", record.cap, disputeBody(signed, now), now)]);
    return {
      facts: { capability_id: record.cap, dispute: id, look: lookAt(config, record.cap) },
      lines: [
        `Recorded: ${id} of ${signed.pay_to} about ${signed.record_id ?? "every record"} of ${record.cap}.`,
        "It changes no number. The endpoint is flagged disputed until a correction of the same record names our fault.",
        `Look: ${lookAt(config, record.cap)}`,
      ],
    };
  });

function refuseUnknown({ records, cap }: EndpointRecord, id: string | null): void {
  if (id !== null && !records.has(id)) throw new NotInRecord(`${id} is not in the record of ${cap}`);
}

/** Which file is no dispute, and the first reason: the page shows one that is. @throws Failure `unreadable` or `usage` */
async function disputeIn(file: string, service: string, now: Date): Promise<SignedDispute> {
  const value = await readNamedJson(file);
  try {
    return readDispute(value, service, now);
  } catch (error) {
    if (!(error instanceof BadDispute)) throw error;
    const [{ pointer, detail } = { pointer: "", detail: "" }] = error.errors;
    throw new Failure(
      "unreadable",
      `${file} is not a signed dispute: ${pointer || "it"} ${detail}; docs/corrections.md shows one`,
    );
  }
}
