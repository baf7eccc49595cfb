import { writeHistory } from "../../pipelines/4-publish/view.ts";
import { encodeHistory } from "../../pipelines/record/history-arrow.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import { DAY_MS } from "../../pipelines/record/time.ts";
import { BANDS } from "../../pipelines/record/vocabulary.ts";
import { homePage } from "../../serving/pages/home.ts";
import { ROWS_PER_PAGE } from "../../serving/pages/market.ts";
import { capOf, cardOf, type EndpointSpec, listingDraft, NOW, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";

/** CPU of the pages: `npx tsx test/bench/pages.bench.ts`. A market of 300 endpoints, and one with 90 days of history. */
const SPECS: EndpointSpec[] = Array.from({ length: 300 }, (_, i) => ({
  url: `https://seller-${i}.example/api/${i}?a=1`,
  description: `Seller ${i} of something that takes a line to say`,
}));
const DAYS = 90;
const TODAY = Math.floor(Date.parse(NOW) / DAY_MS);

async function report(what: string, rounds: number, work: (i: number) => unknown): Promise<void> {
  const spent: number[] = [];
  for (let i = 0; i < rounds; i++) {
    const before = process.cpuUsage();
    await work(i);
    const { user, system } = process.cpuUsage(before);
    spent.push((user + system) / 1000);
  }
  const [first] = spent;
  spent.sort((a, b) => a - b);
  const at = (share: number): string => spent[Math.floor(share * (rounds - 1))]!.toFixed(2);
  process.stdout.write(`${what.padEnd(52)} first ${first!.toFixed(2)} ms, median ${at(0.5)}, p95 ${at(0.95)} ms CPU\n`);
}

const record = await PublicRecord.open();
try {
  await record.publish(
    ...SPECS.map((spec) => [listingDraft(spec)]),
    ...SPECS.map((spec, i) =>
      record.grades(
        [cardOf(spec, { band: BANDS[i % 5]! })],
        "B on OUTCOME_VERIFIED, composite 0.871; a sentence of why.",
      ),
    ),
  );
  const spec = SPECS[0]!;
  const bucket = bucketOf(capOf(spec));
  const days = Array.from({ length: DAYS }, (_, i) => ({
    ...{ capability_id: capOf(spec), day: TODAY - DAYS + 1 + i, price_low: 10_000n, price_high: 20_000n },
    ...{ price_last: 15_000n, terms_ms_median: 80 + i, terms_ms_p95: 300 + i, paid_ms_median: 900, paid_ms_p95: 2_000 },
    ...{ probes: 4, answered: 4, paid: 2, delivered: 2 },
  }));
  const key = await writeHistory(record.store, record.clock, bucket, encodeHistory(days));
  await record.live(
    SPECS.map((one) => rowOf(one)),
    { history: { files: { [bucket]: key }, positions: {} } },
  );
  const { app, follower } = await servingOver(record);
  const pages = Math.ceil(SPECS.length / ROWS_PER_PAGE);
  const asked = { q: "", letter: null, kind: null, sort: "best" as const };
  const all = () => Array.from({ length: pages }, (_, i) => homePage(follower.view, { ...asked, page: i + 1 }, false));
  await report(`market, all ${SPECS.length} endpoints (${pages} pages of ${ROWS_PER_PAGE})`, 200, () =>
    Promise.all(all()),
  );
  await report(`market, first page`, 200, () => homePage(follower.view, { ...asked, page: 1 }, false));
  const bytes = (await Promise.all(all())).reduce((sum, html) => sum + html.length, 0);
  process.stdout.write(`${"market, all pages".padEnd(52)} ${Math.round(bytes / 1024)} kB of HTML\n`);
  const path = `/endpoint/${capOf(spec)}`;
  await app.request(path);
  await report(`endpoint page with ${DAYS} days, whole request`, 200, () => app.request(path));
} finally {
  await record.close();
}
