import { logId } from "../../infra/tree/checkpoint.ts";
import { Problem } from "../http/problem.ts";
import type { Snapshot } from "../tables/tree.ts";

/** Where a feed begins and ends: positions of the log, the end exclusive. */
export interface FeedSpan {
  from: number;
  to: number;
}

export const cursorOf = (origin: string, position: number): string => `${logId(origin)}:${position}`;

/** Seconds after which a replica that lags has most likely read on. */
const RETRY_S = 2;

/**
 * The span of one request: from its cursor, or the beginning, to the size of the tree now.
 * @throws Problem bad_cursor when it belongs to another log; not_ready when it lies beyond what this replica has read:
 * another one gave it out, or the log was taken back. An empty answer would look as if nothing were new, for ever.
 */
export function spanOf(cursor: string | undefined, head: { origin: string; size: number }): FeedSpan {
  if (cursor === undefined) return { from: 0, to: head.size };
  const [id, position] = cursor.split(":") as [string, string];
  if (id !== logId(head.origin)) {
    const detail = `this log is ${logId(head.origin)}, the cursor is of ${id}`;
    throw new Problem("bad_cursor", detail, { errors: [{ pointer: "/cursor", detail }] });
  }
  const from = Number(position);
  if (from > head.size) {
    const detail = `the cursor is at ${from}, this replica has read ${head.size} leaves`;
    throw new Problem("not_ready", detail, {
      errors: [{ pointer: "/cursor", detail }],
      headers: { "retry-after": String(RETRY_S) },
    });
  }
  return { from, to: head.size };
}

/** Grade leaves of the span, one a line, as they stand in the log: proven, and read as fast as the client takes them. */
export async function* gradeLines({ reader }: Snapshot, { from, to }: FeedSpan): AsyncGenerator<string> {
  for await (const { bytes, leaf } of reader.leaves(from, to)) if (leaf.kind === "grade") yield bytes.toString("utf8");
}

/** Names the bytes of one span: leaves never change, so neither does what is between two positions. */
export const feedTag = (origin: string, { from, to }: FeedSpan): string => `${logId(origin)}-${from}-${to}`;

/** `Link` to what comes after this answer: the first position not yet seen. */
export const nextLink = (baseUrl: string, origin: string, { to }: FeedSpan): string =>
  `<${baseUrl}/v1/trust/feed?cursor=${cursorOf(origin, to)}>; rel="next"`;
