import type { ReadLeaf } from "../published/reader.ts";
import type { Standing } from "../record/bodies.ts";
import type { GradeLeaf } from "../record/leaf.ts";
import { type Change, changeOf, standingOf } from "./notice.ts";
import type { Watcher } from "./watcher-table.ts";

/** Notices of one watcher that are held in memory; more stay in the tree until these are delivered. */
export const MAX_WAITING = 200;
/** Of all watchers together. One that has none may always hold one, so that no receiver that is down stops another's. */
export const MAX_WAITING_ALL = 50_000;

/** The notices of one watcher that are due, in the order of their leaves. */
export interface Line {
  readonly watcher: Watcher;
  readonly waiting: Change[];
  /** Leaves below it were looked at for this watcher: what they made is delivered or waits. */
  seen: number;
  /** Watched endpoints with a correction, or one taken back, since their last card that was looked at. */
  readonly corrected: Set<string>;
}

/** How many more notices each line may take. */
export interface Room {
  all: number;
}

/** Is there something for this line in leaves that were looked at for others already, and room for it? */
export const isBehind = ({ seen, waiting }: Line, scanned: number): boolean =>
  seen < scanned && waiting.length <= MAX_WAITING / 2;

/**
 * Look at leaves up to `to` for these lines: the headline cards of what they watch come to wait. A line that is full stops
 * where it is, and goes on from there at a later look.
 */
export async function scan(lines: Iterable<Line>, leaves: AsyncIterable<ReadLeaf>, to: number, room: Room) {
  const byCap = new Map<string, Set<Line>>();
  for (const line of lines) {
    for (const cap of line.watcher.caps.keys()) byCap.set(cap, (byCap.get(cap) ?? new Set()).add(line));
  }
  const full = new Set<Line>();
  for await (const { leaf } of leaves) {
    if (leaf.kind === "correction" || leaf.kind === "reinstated") {
      for (const line of byCap.get(leaf.capability_id) ?? []) {
        if (leaf.index >= line.seen && !full.has(line)) line.corrected.add(leaf.capability_id);
      }
    }
    if (leaf.kind !== "grade" || !leaf.headline) continue;
    for (const line of byCap.get(leaf.card.capability_id) ?? []) {
      if (leaf.index < Math.max(line.seen, line.watcher.next) || full.has(line)) continue;
      if (hasRoom(line, room)) {
        room.all--;
        wait(line, leaf);
      } else full.add(line);
      // Here and not at the end: a look that breaks off half-way is made again from here.
      line.seen = full.has(line) ? leaf.index : leaf.index + 1;
    }
  }
  for (const set of byCap.values()) {
    for (const line of set) if (!full.has(line)) line.seen = Math.max(line.seen, to);
  }
}

const hasRoom = ({ waiting }: Line, room: Room): boolean =>
  waiting.length === 0 || (waiting.length < MAX_WAITING && room.all > 0);

function wait(line: Line, { index: leaf, card }: GradeLeaf): void {
  const capability = card.capability_id;
  const { seq, standing: from } = lastOf(line, capability);
  const to = standingOf(card);
  const change = changeOf(from, to, line.corrected.delete(capability));
  line.waiting.push({ capability, leaf, seq: seq + 1, change, from, to });
}

/** Where the notices of an endpoint stand once all that wait are delivered. */
function lastOf({ watcher, waiting }: Line, cap: string): { seq: number; standing: Standing | null } {
  for (let i = waiting.length - 1; i >= 0; i--) {
    const one = waiting[i]!;
    if (one.capability === cap) return { seq: one.seq, standing: one.to };
  }
  return watcher.caps.get(cap)!;
}
