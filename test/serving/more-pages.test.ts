import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createMetrics } from "../../infra/telemetry.ts";
import { writeHistory } from "../../pipelines/4-publish/view.ts";
import { PublishedTree } from "../../pipelines/published/reader.ts";
import type { HistoryDay } from "../../pipelines/record/history.ts";
import { encodeHistory } from "../../pipelines/record/history-arrow.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import { DAY_MS } from "../../pipelines/record/time.ts";
import { createApp } from "../../serving/app.ts";
import { leadOf } from "../../serving/pages/markdown.ts";
import { ageWords } from "../../serving/pages/status.ts";
import { Follower } from "../../serving/tables/follower.ts";
import { capOf, cardOf, listingDraft, NOW, ORIGIN, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { ManualClock, servingOver, type TestServing } from "../helpers/serving.ts";

const spec = (n: number, kind: string) => ({ url: `https://${kind}-${n}.example/x`, class: kind });
const SUMS = Array.from({ length: 12 }, (_, i) => spec(i, "arithmetic"));
const ANY = spec(0, "any");
const RATED = spec(1, "any");
const WIDE = { url: "https://evil.example/<script>", class: "<script>" };
const TODAY = Math.floor(Date.parse(NOW) / DAY_MS);

const dayOf = (ago: number, change: Partial<HistoryDay>): HistoryDay => ({
  ...{ capability_id: capOf(RATED), day: TODAY - ago, price_low: null, price_high: null, price_last: null },
  ...{ terms_ms_median: null, terms_ms_p95: null, paid_ms_median: null, paid_ms_p95: null },
  ...{ probes: 4, answered: 4, paid: 2, delivered: 2 },
  ...change,
});

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  const bucket = bucketOf(capOf(RATED));
  await record.publish(
    ...[...SUMS, ANY, RATED, WIDE].map((one) => [listingDraft(one)]),
    ...SUMS.slice(0, 11).map((one, i) =>
      record.grades([cardOf(one, { band: i === 3 ? "A" : i === 4 ? "F" : "B", composite: 0.5 + i / 100 })], "why."),
    ),
    record.grades([cardOf(RATED, { band: "UNRATED" })], "why."),
    [
      {
        ...{ kind: "evidence" as const, day: "2026-11-19", freeze: 0, part: 1, parts: 1, holds: "rows" as const },
        ...{ bucket, rows: 12, positions: {}, below: null, bytes: 10, unpacked_bytes: 20 },
        key: `evidence/2026-11-19/${bucket}.${"ab".repeat(8)}.ndjson.zst`,
        ...{ sha256: "ab".repeat(32), unpacked_sha256: "ab".repeat(32) },
      },
    ],
  );
  const days = [dayOf(3, {}), dayOf(2, { answered: 1 }), dayOf(1, { delivered: 0 }), dayOf(0, {})];
  const files = { [bucket]: await writeHistory(record.store, record.clock, bucket, encodeHistory(days)) };
  const rows = [...SUMS, RATED].map((one) => rowOf(one));
  await record.live(rows, { history: { files, positions: {} } });
  serving = await servingOver(record);
});
afterAll(() => record.close());

const textOf = async (path: string): Promise<string> => (await serving.get(path)).text();
const plain = (html: string): string =>
  html
    .replace(/<style>[\s\S]*?<\/style>/, "")
    .replace(/<[^>]+>/g, " ")
    .replace(/\s+/g, " ");

describe("the market by class", () => {
  const lettersIn = (html: string) =>
    (html.match(/<tr role="row"><td[\s\S]*?<\/tr>/g) ?? []).map((row) => /grade[^>]*>([^<]+)/.exec(row)![1]);

  test("shows the endpoints of one class, beside a letter and words", async () => {
    expect(lettersIn(await textOf("/?class=any"))).toEqual(["unrated", "unrated"]);
    expect(lettersIn(await textOf("/?class=arithmetic&letter=F"))).toEqual(["F"]);
    expect(lettersIn(await textOf("/?class=arithmetic&q=-3.example"))).toEqual(["A"]);
    expect(lettersIn(await textOf("/?class="))).toHaveLength(15);
  });

  test("keeps the class in the form and in every link, also one of which there is nothing", async () => {
    const html = await textOf("/?class=arithmetic&sort=host");
    expect(html).toContain('<option value="arithmetic" selected>arithmetic</option>');
    expect(html).toContain('href="/?letter=A&amp;class=arithmetic&amp;sort=host"');
    const none = await textOf("/?class=%3Cb%3E");
    expect(none).toContain('<option value="&lt;b&gt;" selected>');
    expect(none).toContain("Nothing is listed that matches.");
    expect((await serving.get(`/?class=${"x".repeat(61)}`)).status).toBe(400);
    expect((await serving.get("/?class=a&class=b")).status).toBe(400);
  });
});

describe("the leaderboard", () => {
  test("has the best ten of each class, best letter first, and ranks nobody without one", async () => {
    const html = await textOf("/leaderboard");
    const [sums, any] = html.split("<section").slice(1);
    const rows = (part: string) => part.match(/<tbody>[\s\S]*<\/tbody>/)?.[0].match(/<tr>[\s\S]*?<\/tr>/g) ?? [];
    expect(rows(sums!).map((row) => /grade[^>]*>([^<]+)/.exec(row)![1])).toEqual(["A", ...Array(9).fill("B")]);
    expect(plain(rows(sums!)[1]!)).toMatch(/^ 2 B arithmetic-10\.example\/x GET 0\.600 outcome 30 of 30 0\.02 $/);
    expect(plain(sums!)).toContain("All of arithmetic : 12 endpoints, 11 of them with a letter.");
    expect(rows(any!)).toEqual([]);
    expect(plain(any!)).toContain("Nothing of this class holds a letter yet.");
    expect(html).not.toContain("<script>");
  });

  test("says so where nothing is listed", async () => {
    const empty = await PublicRecord.open();
    await empty.publish([listingDraft(ANY)], [{ kind: "delisting", capability_id: capOf(ANY) }]);
    expect(plain(await (await (await servingOver(empty)).get("/leaderboard")).text())).toContain(
      "Nothing is listed yet.",
    );
    await empty.close();
  });
});

describe("failed checks of an endpoint", () => {
  test("are told by day, newest first, with the evidence of the day where there is a file", async () => {
    const html = await textOf(`/endpoint/${capOf(RATED)}`);
    const part = /<section aria-labelledby="failed"[\s\S]*?<\/section>/.exec(html)![0];
    expect(plain(part)).toContain("On 2 days of the newest 4 days that we know of :".replace(" :", ":"));
    expect(plain(/<tbody>[\s\S]*<\/tbody>/.exec(part)![0])).toBe(
      " 2026-11-20 0 of 4 2 of 2 – 2026-11-19 3 of 4 0 of 2 2026-11-19 ",
    );
    expect(part).toContain('<a href="/evidence/2026-11-19/');
  });

  test("are not made up where no days are known", async () => {
    expect(plain(await textOf(`/endpoint/${capOf(ANY)}`))).not.toContain("Failed checks");
  });
});

describe("the status page", () => {
  const stateOf = (html: string, part: string): string =>
    new RegExp(`<th scope="row">${part}</th>[\\s\\S]*?<strong>([^<]+)`).exec(html)![1]!;

  test("tells how fresh each part is, and what is behind", async () => {
    const html = await textOf("/status");
    expect(stateOf(html, "Probes")).toBe("in time");
    expect(stateOf(html, "Live figures")).toBe("in time");
    expect(stateOf(html, "Grades")).toBe("in time");
    expect(stateOf(html, "Checkpoint")).toBe("in time");
    expect(plain(html)).toContain("Everything that this server can see is up to date.");
    expect(plain(html)).toContain(
      "Endpoints listed 15, 11 of them with a letter Endpoints probed 13, 13 of them within a day",
    );
    const clock = new ManualClock();
    const late = await servingOver(record, { clock });
    clock.pass(7 * 3_600_000);
    const then = await (await late.get("/status")).text();
    expect(stateOf(then, "Probes")).toBe("behind");
    expect(stateOf(then, "Grades")).toBe("in time");
    expect(stateOf(then, "This server")).toBe("behind");
    expect(plain(then)).toContain("4 parts are behind");
    expect(then).toContain("<title>Status: something is behind</title>");
  });

  test("says of wallets, blind calls and classes what this process knows, and that it does not know", async () => {
    const html = plain(await textOf("/status"));
    expect(html).toContain("Wallets not known to this server Share of blind calls not known to this server");
    expect(html).toContain("Classes withdrawn none in 30 days");
    const metrics = createMetrics();
    const own = await PublicRecord.open();
    const spec = { url: "https://encoder.example/x", class: "encodings" };
    const withdrawn = (id: string, issued_at: string, fault = "wrong_checker") => ({
      ...{ kind: "correction" as const, capability_id: capOf(spec) },
      body: { id, record_id: `rec_${id}`, fault, says: "the questions are wrong", issued_at },
    });
    await own.publish(
      [listingDraft(spec)],
      [
        withdrawn("a", "2026-11-19T06:00:00.000Z"),
        withdrawn("b", "2026-11-18T06:00:00.000Z"),
        withdrawn("c", "2026-11-18T06:00:00.000Z", "ours"),
        withdrawn("d", "2026-08-18T06:00:00.000Z"),
      ],
    );
    const clock = new ManualClock();
    const { deps } = await servingOver(own, { clock, metrics });
    const app = createApp(deps);
    const said = async () => plain(await (await app.request("/status")).text());
    metrics.gauge("touchstone_wallets_low", 0);
    metrics.gauge("touchstone_observe_blind_missed_seconds", 0);
    expect(await said()).toContain("Wallets none is low Share of blind calls kept today");
    metrics.gauge("touchstone_wallets_low", 1);
    metrics.gauge("touchstone_observe_blind_missed_seconds", clock.now().getTime() / 1000);
    metrics.gauge("touchstone_observe_class_failing", 4, { class: "geo-facts" });
    metrics.gauge("touchstone_observe_class_failing", 0, { class: "any" });
    expect(await said()).toContain(
      "Wallets 1 balance is low Share of blind calls not kept today: a call could not be made, by our own fault, and the record says so " +
        "Classes withdrawn encodings: 2 calls withdrawn since 2026-11-18 06:00 UTC geo-facts: nobody of 4 payees passed so far today Log",
    );
    await own.close();
  });

  test("is answered before the record was read, and says that", async () => {
    const { deps, clock } = serving;
    const { store, logger, metrics } = record;
    const tree = new PublishedTree(store, record.trust);
    const follower = new Follower({ tree, store, origin: ORIGIN, clock, logger, metrics });
    const response = await createApp({ ...deps, follower }).request("/status");
    expect(response.status).toBe(200);
    expect(plain(await response.text())).toContain("The record has not been read yet");
  });

  test("rounds an age down", () => {
    expect([0, 119_999, 120_000, 7_199_999, 7_200_000, 172_799_999, 172_800_000, -5].map(ageWords)).toEqual([
      ...["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days", "0 s"],
    ]);
  });
});

describe("the index of the documentation", () => {
  test("names every page once, with its first sentence", async () => {
    const html = await textOf("/docs");
    const hrefs = [...html.matchAll(/<dt><a href="(\/docs\/[^"]+)"/g)].map(([, href]) => href!);
    expect(new Set(hrefs).size).toBe(hrefs.length);
    expect(hrefs.length).toBeGreaterThan(15);
    for (const href of hrefs) expect((await serving.get(href)).status).toBe(200);
    expect(plain(html)).toContain(
      "Check before you pay Before you pay an HTTP endpoint that answered 402, ask what the record holds about it.",
    );
    expect(html).not.toMatch(/<dd><\/dd>/);
  });

  test("has a page that nobody sorted at the end", async () => {
    const dir = await mkdtemp(join(tmpdir(), "docs-"));
    await writeFile(join(dir, "name.md"), "# New <b>\n\nSays `this`: and [that](/x).\n");
    const text = await (await (await servingOver(record, { docsDir: dir })).get("/docs")).text();
    expect(plain(text)).toContain("Documentation Further New &lt;b&gt; Says this.");
    await rm(dir, { recursive: true });
  });

  test.each([
    ["# A\n\nOne thing. Another.", "One thing."],
    ["# A\n\n| a |\n|---|\n\n**Bold** [link](/x) at\nthe end", "Bold link at the end"],
    ["# A\n\nlower case, as a `name` may be. More.", "lower case, as a name may be."],
    ["# A\n\n- a list\n\n> quoted\n\n## B", ""],
    ["# A", ""],
  ])("the first sentence of %j is %j", (text, lead) => {
    expect(leadOf(text)).toBe(lead);
  });
});
