import { systemClock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import type { RecordType } from "../record/bodies.ts";
import { type EnvelopeInput, envelopeOf, sealEnvelope } from "../record/envelope.ts";
import { recordId } from "../record/ids.ts";

/** A record about an endpoint before it gets its envelope. */
export interface Draft<T extends RecordType = RecordType> extends Omit<EnvelopeInput<T>, "key" | "producer"> {
  cap: string;
}

/**
 * The error for records whose append the log did not confirm. The log may hold none of them, all of them, or only the
 * first ones.
 */
export class NotConfirmed extends Failure {
  constructor(
    readonly eventIds: readonly string[],
    cause: unknown,
  ) {
    super("failed", `the log did not confirm ${eventIds.length} record(s): ${(cause as Error)?.message ?? cause}`, {
      cause,
    });
  }
}

/**
 * Pauses before an append is tried again, real ms: enough for a broker election or a full disk that is being cleared.
 */
const RETRY_PAUSES_MS = [50, 500];

/** Returns its argument as a draft. With it the compiler checks the draft's body against the record type. */
export const createDraft = <T extends RecordType>(draft: Draft<T>): Draft => draft as unknown as Draft;

/** Appends records to the log. Their ids are known before the call that they describe is made. */
export class Recorder {
  constructor(
    private readonly parts: {
      log: Log;
      producer: string;
      metrics: Metrics;
      /** Called with the event ids of every append that the log confirmed. These records are never lost. */
      onAck?: ((eventIds: readonly string[]) => void) | undefined;
    },
  ) {}

  static idOf(draft: Pick<Draft, "type" | "cap" | "slot" | "attempt">): string {
    return recordId(draft.type, draft.cap, draft.slot, draft.attempt ?? 0);
  }

  /**
   * Appends drafts in order and returns their event ids once they are durable. A failed append is tried again with the
   * same ids; readers drop a copy by its id.
   * @throws NotConfirmed when no attempt is confirmed; ZodError, before anything is written, when a body is malformed
   */
  async append(drafts: readonly Draft[]): Promise<string[]> {
    const { log, producer, metrics, onAck } = this.parts;
    const records = drafts.map((one) => sealEnvelope(envelopeOf({ ...one, key: one.cap, producer }), log.partitions));
    const ids = records.map((record) => record.eventId);
    for (let i = 0; ; i++) {
      try {
        await log.append(records);
        break;
      } catch (error) {
        metrics.count("touchstone_observe_append_failures_total");
        if (i >= RETRY_PAUSES_MS.length) throw new NotConfirmed(ids, error);
        await systemClock.sleep(RETRY_PAUSES_MS[i]!);
      }
    }
    onAck?.(ids);
    return ids;
  }
}
