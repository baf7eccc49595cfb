import type { H3 } from "h3";
import { logId } from "../../infra/tree/checkpoint.ts";
import { EMPTY_DAY_ID, emptyDayDraft } from "./archive-draft.ts";
import type { Document } from "./openapi.ts";
import { capOf, cardOf, listingDraft, ORIGIN, PublicRecord, rowOf } from "./public-record.ts";
import { servingOver } from "./serving.ts";

const SUM = { url: "https://seller.example/sum", description: "Adds two numbers", class: "arithmetic" };
const FREE = { url: "https://free.example/x", method: "POST" as const, defects: [{ defect: "no_402", says: "free" }] };

export interface FuzzWorld {
  app: H3;
  document: Document;
  /** Values that the record knows, by operation. */
  known: Record<string, string[]>;
  close(): Promise<void>;
}

/** An app over a small record, without limits in its way, and the description that it gives of itself. */
export async function fuzzWorld(): Promise<FuzzWorld> {
  const record = await PublicRecord.open();
  await record.publish([listingDraft(SUM), listingDraft(FREE)], record.grades([cardOf(SUM)], "B."));
  await record.publish([emptyDayDraft(record.keys.cards)]);
  await record.live([rowOf(SUM), rowOf(FREE)]);
  const limits = { checks_per_minute: 1e9, reads_per_minute: 1e9, disputes_per_hour: 1e9 };
  const { app } = await servingOver(record, { limits });
  const document = (await (await app.request("/openapi.json")).json()) as Document;
  const caps = [capOf(SUM), capOf(FREE)];
  return {
    app,
    document,
    known: {
      check: [SUM.url, FREE.url, ...caps],
      trust: caps,
      dispute: caps,
      archiveManifest: [EMPTY_DAY_ID],
      trustFeed: [`${logId(ORIGIN)}:0`, `${logId(ORIGIN)}:2`, `${logId(ORIGIN)}:99`],
    },
    close: () => record.close(),
  };
}
