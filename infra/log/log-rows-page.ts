import type Database from "better-sqlite3";
import type { Statement } from "better-sqlite3";
import type { LogRecord } from "./log.ts";

/** Neighbouring records as one row: their numbers as JSON, their names in one text, their values in one piece. */
export type Page = [numbers: string | null, names: string | null, values: Buffer | null];
export type PageOf = Statement<[base: number, from: number, below: number, limit: number], Page>;

/**
 * The records of a range, in order, as one row: half the time of a row each, and one buffer where there were as many as
 * records. What one row says is gathered in one pass, so numbers, names and values are of the same records in the same
 * order whatever that order is; the offsets among the numbers tell it. No name has a NUL in it (check.ts), and a value
 * keeps its bytes: to the engine the concatenation is text, which it neither reads nor repairs.
 */
export function pageStatement(db: Database.Database): PageOf {
  const page = db.prepare<[number, number, number, number], Page>(`
    SELECT '[' || group_concat((place - CAST(? AS INTEGER)) || ',' || octet_length(value) || ',' || appended_ms) || ']',
      group_concat(event_id || char(0) || key, char(0)), CAST(group_concat(value, '') AS BLOB)
    FROM (SELECT place, event_id, key, value, appended_ms FROM record WHERE place >= ? AND place < ? ORDER BY place LIMIT ?)`);
  page.raw();
  return page;
}

/** A page as the records it holds; their values are views of its one buffer. @throws Error when the engine mixed them up */
export function recordsOf(topic: string, partition: number, [numbers, names, values]: Page): LogRecord[] {
  if (numbers === null || names === null || values === null) return [];
  const of = JSON.parse(numbers) as number[];
  const name = names.split("\0");
  const records: LogRecord[] = [];
  let at = 0;
  let before = -1;
  for (let i = 0; 3 * i < of.length; i++) {
    const [offset, bytes, ms] = [of[3 * i]!, of[3 * i + 1]!, of[3 * i + 2]!];
    if (offset <= before) throw new Error(`log ${topic}/${partition}: ${offset} came after ${before}`);
    before = offset;
    const value = values.subarray(at, at + bytes);
    at += bytes;
    const [eventId, key] = [name[2 * i]!, name[2 * i + 1]!];
    records.push({ topic, partition, offset, eventId, key, value, appendedAt: new Date(ms) });
  }
  if (at !== values.length || 2 * records.length !== name.length)
    throw new Error(`log ${topic}/${partition}: a page of ${records.length} records is not whole`);
  return records;
}
