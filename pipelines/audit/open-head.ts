import type { Checkpoint, CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { BadNote } from "../../infra/tree/note.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { CHECKPOINT } from "../4-publish/objects.ts";
import { MirrorUsage } from "../mirror/errors.ts";
import { openHead } from "../mirror/head.ts";
import { MAX } from "../mirror/limits.ts";
import type { Source } from "../mirror/source.ts";
import type { Pins } from "../mirror/state.ts";
import { firstUse, fromPins, type GivenKeys } from "../mirror/trust.ts";

/**
 * The source's checkpoint, verified under the keys given, else under those that the source itself shows, which is said
 * aloud: it proves that the source agrees with itself, not whose log it is.
 * @throws MissingObject, Unproven, MirrorUsage also for a vkey that is none
 */
export async function openSourceHead(
  source: Source,
  keys: GivenKeys,
  say: (text: string) => void,
): Promise<Checkpoint> {
  const bytes = await source.get(CHECKPOINT, MAX.note);
  if (!bytes) throw new MissingObject(CHECKPOINT);
  if (keys.witness && !keys.log) throw new MirrorUsage("a witness key needs the log key beside it");
  const pins = keys.log ? { log: keys.log, witness: keys.witness ?? null } : await firstUse(source, bytes);
  if (!keys.log) say(`believing the keys that ${source.name} shows: --log-key ${pins.log}`);
  return openHead(bytes, trustIn(pins));
}

function trustIn(pins: Pins): CheckpointTrust {
  try {
    return fromPins(pins);
  } catch (error) {
    if (error instanceof BadNote) throw new MirrorUsage(error.message);
    throw error;
  }
}
