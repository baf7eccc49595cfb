import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { NewRecord } from "../../infra/log/log.ts";
import type { BodyOf } from "../record/bodies.ts";
import { ENVELOPE_VERSION, sealEnvelope } from "../record/envelope.ts";
import { recordId } from "../record/ids.ts";
import { rfc3339 } from "../record/time.ts";

export type WatcherType =
  | "watcher.created"
  | "watcher.stopped"
  | "watcher.delivered"
  | "watcher.failed"
  | "watcher.disabled";

/** A record of the topic `watchers`: its key is the watcher's id, so all of a watcher lies in one partition. */
export function watcherRecord<T extends WatcherType>(
  type: T,
  body: BodyOf<T>,
  by: { now: Date; producer: string },
  partitions: number,
): NewRecord {
  const { id } = body as { id: string };
  const event_id = recordId(type, id, sha256hex(canonicalText(body)));
  const envelope = {
    v: ENVELOPE_VERSION,
    type,
    event_id,
    key: id,
    observed_at: rfc3339(by.now),
    producer: by.producer,
  };
  return sealEnvelope<T>({ ...envelope, body }, partitions);
}
