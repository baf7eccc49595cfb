import { logId } from "../../infra/tree/checkpoint.ts";
import { Problem } from "../http/problem.ts";
import type { Snapshot } from "../tables/tree.ts";

/** Where a feed begins and ends: positions of the log, the end exclusive. */
export interface FeedSpan {
  from: number;
  to: number;
}

export const cursorOf = (origin: string, position: number): string => `${logId(origin)}:${position}`;

/**
 * The span of one request: from its cursor, or the beginning, to the size of the tree now. A cursor ahead of this
 * replica is no error: another one gave it out, and this one has nothing new yet.
 * @throws Problem bad_cursor when it belongs to another log.
 */
export function spanOf(cursor: string | undefined, head: { origin: string; size: number }): FeedSpan {
  if (cursor === undefined) return { from: 0, to: head.size };
  const [id, position] = cursor.split(":") as [string, string];
  if (id !== logId(head.origin)) {
    const detail = `this log is ${logId(head.origin)}, the cursor is of ${id}`;
    throw new Problem("bad_cursor", detail, { errors: [{ pointer: "/cursor", detail }] });
  }
  const from = Number(position);
  return { from, to: Math.max(from, head.size) };
}

/** Grade leaves of the span, one a line, as they stand in the log: proven, and read as fast as the client takes them. */
export async function* gradeLines({ head, reader }: Snapshot, { from, to }: FeedSpan): AsyncGenerator<string> {
  const end = Math.min(to, head.size);
  if (from >= end) return;
  for await (const { bytes, leaf } of reader.leaves(from, end)) if (leaf.kind === "grade") yield bytes.toString("utf8");
}

/** `Link` to what comes after this answer: the first position not yet seen. */
export const nextLink = (baseUrl: string, origin: string, { to }: FeedSpan): string =>
  `<${baseUrl}/v1/trust/feed?cursor=${cursorOf(origin, to)}>; rel="next"`;
