import { readEndpoint } from "../../corrections/endpoint-record.ts";
import { NotInRecord } from "../../corrections/errors.ts";
import type { Reading } from "../../corrections/reading.ts";
import type { Memory, StandingListing } from "../../record/memory.ts";

/** What sources have said, read from log and chain beside a running service, without the lake. */
export const listingsBeside = (reading: Reading): Pick<Memory, "listingsOf"> => ({
  async listingsOf(source, day) {
    const newest = new Map<string, StandingListing & { at: string }>();
    const today: StandingListing[] = [];
    for (let partition = 0; partition < reading.partitions; partition++) {
      for await (const { type, body, key, eventId, observedAt } of reading.facts("listings", partition, null)) {
        if (body.source !== source || typeof body.source_id !== "string") continue;
        const row = {
          source_id: body.source_id,
          cap: key,
          event_id: eventId,
          gone: type === "delisting",
          newest: true,
        };
        const known = newest.get(row.source_id);
        if (known === undefined || known.at <= observedAt) newest.set(row.source_id, { ...row, at: observedAt });
        if (observedAt.startsWith(day)) today.push({ ...row, newest: false });
      }
    }
    return [...today, ...newest.values()];
  },
});

/** Lower-case addresses that 402s of an endpoint asked to be paid at; none of one that the record has never met. */
export const payTosBeside =
  (reading: Reading) =>
  async (cap: string): Promise<ReadonlySet<string>> => {
    try {
      return (await readEndpoint(reading, cap)).payTos;
    } catch (error) {
      if (error instanceof NotInRecord) return new Set();
      throw error;
    }
  };
