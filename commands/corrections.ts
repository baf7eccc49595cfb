import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { draftOf, planCorrections, planReinstatement, standing } from "../pipelines/corrections/correct.ts";
import { CorrectionRecords, findEndpoint } from "../pipelines/corrections/endpoint-record.ts";
import { recorderOf, withDone } from "./opening.ts";

export interface CorrectOptions {
  record?: string[];
  allBeforeNow?: boolean;
  method?: string;
  gradeAt?: string;
  fault: string;
  says: string;
  json?: boolean;
}

/** Where the change shows. */
export const lookAt = (config: Config, cap: string): string => `${config.base_url.replace(/\/+$/, "")}/v1/trust/${cap}`;

/** What follows, and where it can be seen. */
const nextLines = (config: Config, cap: string): string[] => [
  "Letters that may change: those of every tier of this endpoint, at the next grade run (a running service grades every 10 s;",
  "else: touchstone grade --once). Flags of endpoints with the same payee or domain follow if it had taken money.",
  `Look: ${lookAt(config, cap)}`,
];

/** `touchstone correct`: records of an endpoint are withdrawn, each with the fault of ours that made it wrong. */
export const correct = (config: Config, endpoint: string, options: CorrectOptions): Promise<void> =>
  withDone(config, options.json, async (reading, parts) => {
    if ((options.record === undefined) === (options.allBeforeNow !== true)) {
      throw new Failure("usage", "say which records: either --record ID.. or --all-before-now");
    }
    const record = await findEndpoint(reading, endpoint, options.method?.toUpperCase());
    const now = systemClock.now();
    const order = {
      records: options.record ?? ("all_before_now" as const),
      gradeAt: options.gradeAt ?? null,
      fault: options.fault,
      says: options.says,
    };
    const bodies = planCorrections(record, order, now);
    const counted = standing(record, now.toISOString());
    await recorderOf(parts).append(bodies.map((body) => draftOf("correction", record.cap, body, now)));
    const withdrawn = options.record ? bodies.length : counted;
    const { cap } = record;
    return {
      facts: { capability_id: cap, corrections: bodies, withdrawn, of: counted, look: lookAt(config, cap) },
      lines: [
        `Withdrawn: ${withdrawn} of the ${counted} records of ${cap} that counted.`,
        ...bodies.map((body) => `  ${body.id}  ${body.record_id ?? `every record before ${body.issued_at}`}`),
        ...nextLines(config, cap),
        `To take it back: touchstone reinstate ${bodies[0]!.id} --says TEXT`,
      ],
    };
  });

/** `touchstone reinstate`: a correction was itself wrong; its records count again from the next run. */
export const reinstate = (config: Config, id: string, options: { says: string; json?: boolean }): Promise<void> =>
  withDone(config, options.json, async (reading, parts) => {
    const records = new CorrectionRecords();
    for (let partition = 0; partition < reading.partitions; partition++) {
      for await (const fact of reading.facts("corrections", partition, null)) records.add(fact);
    }
    const { cap, body } = planReinstatement(records, id, options.says);
    await recorderOf(parts).append([draftOf("reinstated", cap, body, systemClock.now())]);
    return {
      facts: { capability_id: cap, correction: id, look: lookAt(config, cap) },
      lines: [`Taken back: ${id} of ${cap}; its records count again.`, ...nextLines(config, cap)],
    };
  });
