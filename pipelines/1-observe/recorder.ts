import { systemClock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import type { RecordType } from "../record/bodies.ts";
import { envelopeOf, sealEnvelope, type Unsealed } from "../record/envelope.ts";
import { recordId } from "../record/ids.ts";

/** A record of an endpoint before it is sealed. */
export interface Draft<T extends RecordType = RecordType> extends Omit<Unsealed<T>, "key" | "producer"> {
  cap: string;
}

/** The log did not confirm these records; any prefix of them, or none, may be there. */
export class NotRecorded extends Error {
  constructor(
    readonly eventIds: readonly string[],
    override readonly cause: unknown,
  ) {
    super(`the log did not take ${eventIds.length} record(s): ${(cause as Error)?.message ?? cause}`);
    this.name = "NotRecorded";
  }
}

/** Pauses before an append is tried again, in real ms: a full disk or a broker election, not a stranger's doing. */
const PAUSES_MS = [50, 500];

/** A draft of one type: binds the body's type to the record's. */
export const draft = <T extends RecordType>(of: Draft<T>): Draft => of as unknown as Draft;

/** Writes records to the log under ids that are known before the act. */
export class Recorder {
  constructor(
    private readonly with_: {
      log: Log;
      producer: string;
      metrics: Metrics;
      /** Told after every confirmed append: nothing it named may ever be missing. */
      onAck?: ((eventIds: readonly string[]) => void) | undefined;
    },
  ) {}

  static idOf(of: Pick<Draft, "type" | "cap" | "slot" | "attempt">): string {
    return recordId(of.type, of.cap, of.slot, of.attempt ?? 0);
  }

  /**
   * Appends drafts in order and returns their event ids once they are durable. An append that fails is tried again
   * with the same ids; a copy that this makes has the same id, so readers drop it.
   * @throws NotRecorded when the log keeps refusing; ZodError, before anything is written, when a body is malformed.
   */
  async append(drafts: readonly Draft[]): Promise<string[]> {
    const { log, producer, metrics, onAck } = this.with_;
    const records = drafts.map((one) => sealEnvelope(envelopeOf({ ...one, key: one.cap, producer }), log.partitions));
    const ids = records.map((record) => record.eventId);
    for (let i = 0; ; i++) {
      try {
        await log.append(records);
        break;
      } catch (error) {
        metrics.count("touchstone_observe_append_failures_total");
        if (i >= PAUSES_MS.length) throw new NotRecorded(ids, error);
        await systemClock.sleep(PAUSES_MS[i]!);
      }
    }
    onAck?.(ids);
    return ids;
  }
}
