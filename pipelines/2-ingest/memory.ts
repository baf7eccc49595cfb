import { forEachYielding } from "../../infra/concurrency.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { params } from "../3-grade/params.ts";
import type { BodyOf, Claims } from "../record/bodies.ts";
import {
  type ClassCall,
  type Debts,
  type FailedClass,
  type ListedCap,
  MAX_UNDELIVERED,
  type Memory,
  type OpenIntent,
  type PaidPayee,
  type StandingListing,
  type Verdict,
} from "../record/memory.ts";
import { formatMoney } from "../record/money.ts";
import { addDays, BLOCK_MS, blockOf, dayStart, rfc3339 } from "../record/time.ts";

/** Number of passed calls in a row after which an endpoint that failed is no longer re-tested. */
const PASSES_TO_RECOVER = 3;

/** Number of endpoints whose claims are parsed before other work gets a turn: a few milliseconds. */
const LISTED_PER_TURN = 64;

/**
 * Creates the {@link Memory} that reads the lake (the database of the log's rows) as it is now. Callers run an ingest
 * pass first.
 */
export function createMemory(lake: Lake): Memory {
  return {
    async listed() {
      const listed: ListedCap[] = [];
      const rows = await lake.all<ListedRow>(sql("queries/listings:listed"), { block_ms: BLOCK_MS });
      await forEachYielding(rows, LISTED_PER_TURN, (row) => listed.push(listedOf(row)));
      return listed;
    },
    async readLeftSellerUrls(since) {
      return (await lake.all<{ url: string }>(sql("queries/listings:left_sellers"), { since })).map(({ url }) => url);
    },
    listingsOf: (source, day) => lake.all<StandingListing>(sql("queries/listings:of_source"), { source, day }),
    async recordedIdsOn(day) {
      const slots = { day, first: blockOf(dayStart(day)), end: blockOf(dayStart(addDays(day, 1))) };
      const doneIds = new Set<string>();
      for await (const rows of lake.stream<{ event_id: string }>(sql("queries/planned:done_on"), slots)) {
        for (const { event_id } of rows) doneIds.add(event_id);
      }
      return doneIds;
    },
    async passedInputs(maxInputs) {
      const rows = await lake.all<{ cap: string; request_sha256: string }>(sql("queries/planned:passed_inputs"), {
        most: maxInputs,
      });
      return rows.map(({ cap, request_sha256 }) => `${cap} ${request_sha256}`);
    },
    openIntents: async () => (await lake.all<IntentRow>(sql("queries/payments:open"))).map(intentOf),
    async awaitingSettlement() {
      const rows = await lake.all<AwaitedRow>(sql("queries/payments:awaiting"));
      return rows.map((row) => ({ ...intentOf(row), seen: settlementOf(row) }));
    },
    async readDebts() {
      const bounds = { days: params.window.days_max, most: MAX_UNDELIVERED };
      const rows = await lake.all<AwaitedRow>(sql("queries/payments:undelivered"), bounds);
      return {
        owed: rows.map((row) => ({ ...intentOf(row), seen: settlementOf(row)! })),
        refunds: await lake.all<Debts["refunds"][number]>(sql("queries/payments:refunds")),
      };
    },
    findVerdicts: () =>
      lake.all<Verdict>(sql("queries/published:verdicts"), { passes: params.buyers.not_reproduced_after_passes }),
    async wasRetriedSince(cap, since) {
      return (await lake.all(sql("queries/payments:retried"), { cap, since })).length > 0;
    },
    async payees(since) {
      const rows = await lake.all<PayeeRow>(sql("queries/payments:payees"), { since });
      return rows.map(({ pay_to, read, ...row }) => ({ ...row, payTo: pay_to, lastReadAt: read && rfc3339(read) }));
    },
    async walletsPaying(payTo, since) {
      const rows = await lake.all<{ wallet: string }>(sql("queries/payments:wallets"), { pay_to: payTo, since });
      return rows.map(({ wallet }) => wallet);
    },
    failedClasses: (since, until, minPayees) =>
      lake.all<FailedClass>(sql("queries/classes:nobody_passed"), { since, until, least: minPayees }),
    async callsOfClass(name, day) {
      const rows = await lake.all<Omit<ClassCall, "t"> & { t: Date }>(sql("queries/classes:calls_of"), {
        class: name,
        day,
      });
      return rows.map((row) => ({ ...row, t: rfc3339(row.t) }));
    },
    async spentOn(day) {
      const rows = await lake.all<SpentRow>(sql("queries/spending:day"), { day });
      return rows.map(({ cap, url, pay_to, micro }) => ({ cap, host: new URL(url).host, payTo: pay_to, micro }));
    },
  };
}

/** A row of queries/listings (listed). Most members are described at {@link ListedCap}. */
interface ListedRow {
  cap: string;
  url: string;
  method: string;
  tool: string | null;
  /** JSON of {@link Claims}. */
  claims: string;
  seller_listing: string | null;
  /** JSON array of the event ids of all current listings of the endpoint. */
  standing: string;
  first_seen: Date | null;
  paid_blocks: number;
  /** Did a paid call of ours that counts ever fail, or is a failure that a buyer published `unconfirmed`? */
  failed: boolean;
  /** Number of our calls that passed since the newest failure; 0 while one is `unconfirmed`. */
  passes: number;
  unconfirmed: boolean;
  price_micro: bigint | null;
  pay_to: string | null;
  last_asked: Date | null;
  last_tried: Date | null;
  /** Id of the endpoint's mapping to a class (a kind of questions with known answers), or null. */
  mapping: string | null;
  /** Is the mapping no longer used, because its trial calls failed? */
  mapping_dropped: boolean;
  /** Number of trial calls of the mapping with control inputs, and whether one passed. */
  controls: number;
  control_passed: boolean;
}
interface IntentRow {
  event_id: string;
  cap: string;
  observed_at: Date;
  /** JSON of the body of the record `paid.intent`. */
  body: string;
}
interface AwaitedRow extends IntentRow {
  /** JSON of the body of the record `settlement`; null if the Transfer was not seen. */
  settlement: string | null;
}
interface PayeeRow extends Omit<PaidPayee, "payTo" | "lastReadAt"> {
  pay_to: string;
  /** When the payee's other buyers were last read from the chain. */
  read: Date | null;
}
interface SpentRow {
  cap: string;
  url: string;
  pay_to: string;
  micro: bigint;
}

/** Converts a row. Claims are parsed without validation, since they were validated before they were committed. */
function listedOf(row: ListedRow): ListedCap {
  const claims = JSON.parse(row.claims) as Claims;
  const failing = row.failed && row.passes < PASSES_TO_RECOVER;
  return {
    cap: row.cap,
    url: row.url,
    method: row.method,
    tool: row.tool,
    claims,
    sellerListing: row.seller_listing,
    sellerClaims: row.seller_listing === null ? null : claims,
    standing: JSON.parse(row.standing) as string[],
    firstSeen: row.first_seen && rfc3339(row.first_seen),
    paidBlocks: row.paid_blocks,
    retest: { failing, passes: failing ? row.passes : 0, ...(row.unconfirmed ? { unconfirmed: true } : {}) },
    lastPrice: row.price_micro === null ? null : formatMoney(row.price_micro),
    lastPayTo: row.pay_to,
    lastAsked: row.last_asked && rfc3339(row.last_asked),
    lastTried: row.last_tried && rfc3339(row.last_tried),
    mapped:
      row.mapping === null
        ? null
        : { id: row.mapping, dropped: row.mapping_dropped, controls: row.controls, passed: row.control_passed },
  };
}

const settlementOf = ({ settlement }: AwaitedRow) => JSON.parse(settlement ?? "null") as BodyOf<"settlement"> | null;

const intentOf = (row: IntentRow): OpenIntent => ({
  eventId: row.event_id,
  cap: row.cap,
  observedAt: rfc3339(row.observed_at),
  intent: JSON.parse(row.body) as BodyOf<"paid.intent">,
});
