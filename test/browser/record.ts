import { writeHistory } from "../../pipelines/4-publish/view.ts";
import type { HistoryDay, HistoryNames } from "../../pipelines/record/history.ts";
import { encodeHistory } from "../../pipelines/record/history-arrow.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import { DAY_MS } from "../../pipelines/record/time.ts";
import { type Band, FLAGS } from "../../pipelines/record/vocabulary.ts";
import { publishEvidence } from "../helpers/evidence-files.ts";
import {
  capOf,
  cardOf,
  componentsOf,
  type EndpointSpec,
  listingDraft,
  NOW,
  PublicRecord,
  rowOf,
} from "../helpers/public-record.ts";
import { intent, NOTHING, result, settlement, urlOf } from "../pipelines/2-ingest/records.ts";

/** Long words, markup and a letter of every kind: what breaks a layout breaks it here. */
export const RICH: EndpointSpec = {
  url: `https://an-endpoint-with-a-very-long-host-name-indeed.example/v1/${"deep/".repeat(20)}sum?a=1&b=2`,
  class: "arithmetic",
  description: "Adds <b>two</b> whole numbers",
  defects: [{ defect: "price_differs", says: "the 402 asks a price other than the listing's" }],
};
/** Nobody lists it; what of its paid calls went wrong is on its page. */
export const FAILED: EndpointSpec = { url: urlOf("failed") };
export const BARE: EndpointSpec = { url: "https://bare.example/nothing/known" };
const BANDS: readonly Band[] = ["A", "B", "C", "D", "F", "UNRATED"];
const SELLERS: readonly EndpointSpec[] = Array.from({ length: 118 }, (_, i) => ({
  url: `https://seller-${i}.example/api/${i}`,
  description: i % 3 === 0 ? `Seller number ${i} that describes what it sells in some words` : null,
}));

const TODAY = Math.floor(Date.parse(NOW) / DAY_MS);

/** Ninety days of a seller whose price moves, which is slow at times and was down for a week. */
function historyOf(spec: EndpointSpec): HistoryDay[] {
  return Array.from({ length: 90 }, (_, i) => {
    const down = i >= 40 && i < 47;
    const price = BigInt(10_000 + 2_500 * (Math.floor(i / 12) % 4));
    return {
      capability_id: capOf(spec),
      day: TODAY - 89 + i,
      price_low: down ? null : price,
      price_high: down ? null : price + (i % 9 === 0 ? 5_000n : 0n),
      price_last: down ? null : price,
      terms_ms_median: down ? null : 80 + ((i * 37) % 60),
      terms_ms_p95: down ? null : 200 + ((i * 91) % 700),
      paid_ms_median: down || i % 5 === 0 ? null : 900 + ((i * 53) % 800),
      paid_ms_p95: down || i % 5 === 0 ? null : 2_500 + ((i * 171) % 9_000),
      probes: 4,
      answered: down ? 0 : 4,
      paid: down || i % 5 === 0 ? 0 : 3,
      delivered: down || i % 5 === 0 ? 0 : i % 7 === 0 ? 1 : 3,
    };
  });
}

const cardOn = (spec: EndpointSpec, band: Band, day: string) =>
  cardOf(spec, { band, computed_at: `${day}T23:59:00.000Z`, flags: [...FLAGS] });

/** A public record of 120 endpoints, one of them with everything that a page can show. */
export async function makeRecord(): Promise<PublicRecord> {
  const record = await PublicRecord.open();
  const why =
    "B: its answers came, but could not be checked against a known truth. At least 90.2 % of its paid calls are shown to deliver (120 paid calls since 2 October 2026, 95 % confidence); composite 0.871.";
  await record.publish(
    ...[RICH, BARE, ...SELLERS].map((spec) => [listingDraft(spec)]),
    ...["2026-10-02", "2026-10-20", "2026-11-03"].map((day, i) =>
      record.grades([cardOn(RICH, (["UNRATED", "C", "B"] as const)[i]!, day)], why),
    ),
    ...SELLERS.slice(0, 90).map((spec, i) => {
      const band = BANDS[i % BANDS.length]!;
      return record.grades([cardOf(spec, { band, components: componentsOf(3 + (i % 40)) })], why.replace("B", band));
    }),
    [
      {
        kind: "correction" as const,
        capability_id: capOf(RICH),
        body: { id: "rec_c", fault: "ours", says: "our clock ran behind", issued_at: "2026-11-01T00:00:00.000Z" },
      },
    ],
    [
      {
        kind: "dispute" as const,
        capability_id: capOf(RICH),
        body: { id: "rec_d", says: "the answer was right", record_id: `rec_${"0".repeat(26)}` },
      },
    ],
    [
      {
        ...{ kind: "evidence" as const, day: "2026-11-20", freeze: 0, part: 1, parts: 1, holds: "rows" as const },
        ...{ bucket: bucketOf(capOf(RICH)), rows: 12, positions: {}, below: null, bytes: 10, unpacked_bytes: 20 },
        key: `evidence/2026-11-20/${bucketOf(capOf(RICH))}.${"ab".repeat(8)}.ndjson.zst`,
        ...{ sha256: "ab".repeat(32), unpacked_sha256: "ab".repeat(32) },
      },
    ],
  );
  const bytes = encodeHistory(historyOf(RICH));
  const bucket = bucketOf(capOf(RICH));
  const history: HistoryNames = {
    files: { [bucket]: await writeHistory(record.store, record.clock, bucket, bytes) },
    positions: {},
  };
  const calls = ["01:00:00", "02:00:00"].map((time) => intent("failed", `2026-11-19T${time}.000Z`));
  await publishEvidence(
    record,
    calls.flatMap((call, i) => [
      call,
      settlement("failed", call.eventId, "2026-11-19T03:00:00.000Z", { tx: `0x${"4e".repeat(32)}` }),
      result("failed", call.eventId, "2026-11-19T03:00:01.000Z", {
        ...(i === 0 ? { ...NOTHING, honest: false } : { delivery: 0 }),
        checks: [{ name: "schema", ok: false, says: `/ must have the member ${"long".repeat(60)}` }],
      }),
    ]),
  );
  await record.live([rowOf(RICH), rowOf(FAILED), ...SELLERS.slice(0, 90).map((spec) => rowOf(spec))], { history });
  return record;
}
