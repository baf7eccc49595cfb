import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import {
  countNotWithdrawn,
  createCorrectionDraft,
  planCorrections,
  planReinstatement,
} from "../pipelines/corrections/correct.ts";
import {
  checkPayee,
  disputeBody,
  disputeId,
  readDispute,
  type SignedDispute,
} from "../pipelines/corrections/dispute.ts";
import { CorrectionRecords, findEndpoint, readEndpoint } from "../pipelines/corrections/endpoint-record.ts";
import { BadDispute, NotInRecord } from "../pipelines/corrections/errors.ts";
import { readNamedJsonFile } from "./files.ts";
import { recorderOf, withResult } from "./opening.ts";
import type { OptionsOf } from "./table.ts";

/** Returns the url at which the service shows the card of an endpoint. @param cap capability id of the endpoint */
const trustUrl = (config: Config, cap: string): string => `${config.base_url.replace(/\/+$/, "")}/v1/trust/${cap}`;

/** Returns the lines that tell the operator when letters may change, and where to see it. */
const nextLines = (config: Config, cap: string): string[] => [
  "The letters of this endpoint may change at the next grade run: within 10 s if a service is running,",
  "else: touchstone grade --once",
  "If it took money, the flags of endpoints with the same payee or domain may change too.",
  `next: ${trustUrl(config, cap)}`,
];

/** `touchstone correct`: withdraws records of an endpoint that an error of this service made wrong. */
export const correct = (config: Config, endpoint: string, options: OptionsOf<"correct">): Promise<void> =>
  withResult(config, options.json, async (reading, parts) => {
    if ((options.record === undefined) === (options.allBeforeNow !== true)) {
      throw new Failure("usage", "which records? Give either --record ID.. or --all-before-now");
    }
    const record = await findEndpoint(reading, endpoint, options.method?.toUpperCase());
    const now = systemClock.now();
    const request = {
      records: options.record ?? ("all_before_now" as const),
      gradeAt: options.gradeAt ?? null,
      fault: options.fault,
      says: options.says,
    };
    const bodies = planCorrections(record, request, now);
    const notWithdrawnCount = countNotWithdrawn(record, now.toISOString());
    await recorderOf(parts).append(bodies.map((body) => createCorrectionDraft("correction", record.cap, body, now)));
    const withdrawnCount = options.record ? bodies.length : notWithdrawnCount;
    const { cap } = record;
    return {
      facts: {
        capability_id: cap,
        corrections: bodies,
        withdrawn: withdrawnCount,
        of: notWithdrawnCount,
        look: trustUrl(config, cap),
      },
      lines: [
        `Withdrawn: ${withdrawnCount} of ${notWithdrawnCount} records of ${cap}.`,
        ...bodies.map((body) => `  ${body.id}  ${body.record_id ?? `every record before ${body.issued_at}`}`),
        ...nextLines(config, cap),
        `To take it back: touchstone reinstate ${bodies[0]!.id} --says TEXT`,
      ],
    };
  });

/**
 * `touchstone reinstate`: takes back a correction that was wrong. The records that it withdrew count again from the
 * next grade run.
 */
export const reinstate = (config: Config, id: string, options: OptionsOf<"reinstate">): Promise<void> =>
  withResult(config, options.json, async (reading, parts) => {
    const records = new CorrectionRecords();
    for (let partition = 0; partition < reading.partitions; partition++) {
      for await (const fact of reading.readFacts("corrections", partition, null)) records.add(fact);
    }
    const { cap, body } = planReinstatement(records, id, options.says);
    await recorderOf(parts).append([createCorrectionDraft("reinstated", cap, body, systemClock.now())]);
    return {
      facts: { capability_id: cap, correction: id, look: trustUrl(config, cap) },
      lines: [`Taken back: ${id} of ${cap}; its records count again.`, ...nextLines(config, cap)],
    };
  });

/** `touchstone dispute`: records a seller's signed dispute from a file, such as one received by mail. */
export const dispute = (config: Config, file: string, options: OptionsOf<"dispute">): Promise<void> =>
  withResult(config, options.json, async (reading, parts) => {
    const now = systemClock.now();
    const signedDispute = await readDisputeFile(file, new URL(config.base_url).origin, now);
    const record = await readEndpoint(reading, signedDispute.capability_id);
    await checkPayee(signedDispute, record.payTos);
    if (signedDispute.record_id !== null && !record.records.has(signedDispute.record_id))
      throw new NotInRecord(`${signedDispute.record_id} is not in the record of ${record.cap}`);
    const id = disputeId(signedDispute);
    if (record.correctionRecords.disputes.has(id))
      throw new Failure("already", `dispute ${id} is in the record already`);
    await recorderOf(parts).append([
      createCorrectionDraft("dispute", record.cap, disputeBody(signedDispute, now), now),
    ]);
    return {
      facts: { capability_id: record.cap, dispute: id, look: trustUrl(config, record.cap) },
      lines: [
        `Recorded: ${id} of ${signedDispute.pay_to} about ${signedDispute.record_id ?? "every record"} of ${record.cap}.`,
        "A dispute changes no letter. The endpoint is flagged `disputed` until a correction withdraws the disputed record.",
        `next: ${trustUrl(config, record.cap)}`,
      ],
    };
  });

/** Reads a signed dispute from a file. @throws Failure `unreadable` with the first problem of the file, or `usage` */
async function readDisputeFile(file: string, serviceOrigin: string, now: Date): Promise<SignedDispute> {
  const value = await readNamedJsonFile(file);
  try {
    return readDispute(value, serviceOrigin, now);
  } catch (error) {
    if (!(error instanceof BadDispute)) throw error;
    const [{ pointer, detail } = { pointer: "", detail: "" }] = error.errors;
    throw new Failure(
      "unreadable",
      `${file} is not a signed dispute: ${pointer || "it"} ${detail}; docs/corrections.md shows one`,
    );
  }
}
