import { type Log, type LogRecord, OffsetGone } from "../log/log.ts";
import type { Chain } from "./commits.ts";
import { NotOurLog, RecordsLost } from "./errors.ts";
import type { ChainHead } from "./succession.ts";

/**
 * At start: is this the log that the chain was made from, and does it still keep what comes next?
 * Returns the head; reading goes on at `head.next`.
 * @throws NotOurLog when the log is another one, shorter, or holds another record where ours was.
 * @throws RecordsLost when records were dropped before they were committed; until the gap is accepted.
 */
export async function checkLog(chain: Chain, log: Log): Promise<ChainHead> {
  const { topic, partition } = chain;
  const place = `${topic}/${partition}`;
  if (log.id !== chain.logId) throw new NotOurLog(place, `its id is ${log.id}, the chain's ${chain.logId}`);
  const head = await chain.head();
  const { start, end } = await log.bounds(topic, partition);
  if (end < head.next) throw new NotOurLog(place, `it ends at ${end}, ${head.next} was reached already`);
  if (start > head.next) throw new RecordsLost(place, head.next, start);
  const last = head.next - 1;
  if (head.lastEventId === null || last < start) return head;
  const record = await recordAt(log, topic, partition, last);
  if (record && record.eventId !== head.lastEventId) {
    throw new NotOurLog(place, `record ${last} is ${record.eventId}, it was ${head.lastEventId}`);
  }
  return head;
}

/** Null when it was dropped since we looked, which is no contradiction. */
async function recordAt(log: Log, topic: string, partition: number, offset: number): Promise<LogRecord | null> {
  try {
    const [record] = await log.read(topic, partition, offset, { maxRecords: 1 });
    return record?.offset === offset ? record : null;
  } catch (error) {
    if (error instanceof OffsetGone) return null;
    throw error;
  }
}
