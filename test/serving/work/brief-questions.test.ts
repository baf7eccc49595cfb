import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createService } from "../../../serving/context.ts";
import type { BriefAnswer } from "../../../serving/schemas/brief.ts";
import type { Extracted } from "../../../serving/schemas/extract.ts";
import { researchBrief } from "../../../serving/work/brief/research-brief.ts";
import { docsExtract } from "../../../serving/work/docs-extract.ts";
import type { ExtractionRequest, Extractor } from "../../../serving/work/extract/extractor.ts";
import type { WorkDeps } from "../../../serving/work/work.ts";
import { publishEvidence } from "../../helpers/evidence-files.ts";
import {
  cardOf,
  componentsOf,
  type EndpointSpec,
  listingDraft,
  PublicRecord,
  rowOf,
} from "../../helpers/public-record.ts";
import { servingOver, type TestServing } from "../../helpers/serving.ts";
import { followup, intent, NOTHING, result, settlement, urlOf } from "../../pipelines/2-ingest/records.ts";
import { pdfWith } from "./pdf.ts";
import { did, page, refusal, type World, worldOf } from "./world.ts";

/** Ten questions with what has to be in the brief: five about the record, five about given pages; and how it is checked. */
const DOCS = join(import.meta.dirname, "../../../docs");
const THIEF = { url: urlOf("thief"), description: "The sum of two numbers" };
const HASH: EndpointSpec = {
  url: "https://hash.example/v1",
  description: "SHA-256 hash of a text",
  class: "encodings",
};
const DEAR: EndpointSpec = {
  url: "https://dear-hash.example/v1",
  description: "SHA-256 hash of a text",
  class: "encodings",
};
const WEATHER: EndpointSpec = {
  url: "https://weather.example/now",
  description: "The weather at a place",
  defects: [{ defect: "price_differs", says: "the 402 asks a price other than the listing's" }],
};
const REPAID: EndpointSpec = { url: "https://repaid.example/x", description: "The time of day" };
const DEAD: EndpointSpec = { url: "https://dead.example/x", description: "Nothing yet" };
const CALL = intent("thief", "2026-11-17T02:00:00.000Z");
const TX = `0x${"7".repeat(64)}`;

const TERMS = `<!doctype html><html><head><title>Terms</title></head><body>
<nav>${"<a href=/x>return goods menu</a> ".repeat(30)}</nav><article><h1>How long a buyer may return the goods</h1>
<p>A buyer may return the goods within 30 days of delivery.</p>
<p>The seller pays for the shipping of faulty goods, and the buyer for that of all others.</p>
<p>The house was founded in 1971 by Ada Example in Trondheim.</p>
${"<p>This paragraph, like others, is about salt, pepper, and the history of spices in this town.</p>".repeat(9)}
</article></body></html>`;
const FAQ = `# Questions

## How long may goods be returned?

You may return the goods of a delivery within 14 days. Perishable goods are never taken back.

    curl https://shop.example/goods/return?days=30

## Who founded the house?

The house was founded in 1971 by Ada Example, in Trondheim.`;
const API = `<!doctype html><html><head><title>API</title></head><body><article><h2>Rate limit of the API</h2>
<p>When a client exceeds the rate limit, the API answers with status 429 and a Retry-After header.</p>
<pre>if (rate.limit.exceeded) { return api.answer(429); }</pre>
<p>Every client has a rate limit of 600 requests a minute, which the API counts by network.</p>
${"<p>Nothing else of any interest stands on this page, which goes on for some lines.</p>".repeat(9)}</article></body></html>`;
const MINUTES = pdfWith([
  {
    words: [
      { x: 72, y: 720, text: "The board met on 3 March 2025 and" },
      { x: 72, y: 706, text: "raised the membership fee to 40 EUR." },
      { x: 72, y: 690, text: "The next meeting is in Bergen." },
    ],
  },
]);

let world: World;
let record: PublicRecord;
let serving: TestServing;
let deps: WorkDeps;
let docsDir: string;
beforeAll(async () => {
  world = await worldOf({
    "/terms": page(TERMS),
    "/faq": page(FAQ, { "content-type": "text/markdown" }),
    "/api": page(API),
    "/minutes": page(MINUTES, { "content-type": "application/pdf" }),
  });
  record = await PublicRecord.open();
  const timed = {
    ...componentsOf(43),
    latency_p95: { ...componentsOf(43).latency_p95, method: "lines4/1;a=0.05;p95_ms=300;p95_ms_hi=400" },
  };
  await record.publish(
    ...[THIEF, HASH, DEAR, WEATHER, REPAID, DEAD].map((spec) => [listingDraft(spec)]),
    record.grades([cardOf(REPAID, { band: "F", flags: ["took_the_money"] })], "F: it took 0.02 in 1 of 40 paid calls."),
    record.grades([cardOf(THIEF, { band: "F", flags: ["took_the_money"] })], "F: it took 0.02 in 1 of 40 paid calls."),
    record.grades([cardOf(HASH, { band: "A", components: timed })], "A: it delivers, and its answers are right."),
    record.grades([cardOf(DEAR, { band: "A" })], "A: it delivers, and its answers are right."),
    record.grades([cardOf(WEATHER, { band: "C" })], "C: its price moves too much."),
  );
  const { eventId } = CALL;
  await publishEvidence(record, [
    CALL,
    settlement("thief", eventId, "2026-11-17T02:00:02.000Z", { tx: TX }),
    result("thief", eventId, "2026-11-17T02:00:03.000Z", { ...NOTHING, ended: "deadline" }),
    followup("thief", eventId, "2026-11-17T02:00:09.000Z", {
      kind: "shown_again",
      shown_again: { at: "2026-11-17T02:00:09.000Z", watched: true, ended: "closed", ...NOTHING },
    } as never),
  ]);
  const thefts = JSON.stringify([{ pay_to: `0x${"2".repeat(40)}`, days: [Date.parse("2026-11-17T02:00:00.000Z")] }]);
  await record.live([
    rowOf(THIEF, { thefts, unserved: 1, unserved_since: Date.parse("2026-11-17T02:00:00.000Z") }),
    // Its card is older than the refund.
    rowOf(REPAID),
    rowOf(HASH, { price: "0.001000" }),
    rowOf(DEAR, { price: "0.090000" }),
    rowOf(WEATHER),
  ]);
  serving = await servingOver(record);
  const { egress, register } = world;
  // Each page is read once: several questions are asked of it.
  const read = new Map<string, Promise<Extracted>>();
  const extractor = {
    close: () => Promise.resolve(),
    read(asked: ExtractionRequest) {
      const key = `${asked.part} ${hash(Buffer.from(asked.bytes))}`;
      const known = read.get(key) ?? world.extractor.read({ ...asked, limits: {} });
      read.set(key, known);
      return known;
    },
  } as Extractor;
  docsDir = await mkdtemp(join(tmpdir(), "docs-"));
  await copyFile(join(DOCS, "how-a-letter-is-made.md"), join(docsDir, "how-a-letter-is-made.md"));
  deps = createService({ ...serving.deps, docsDir, workshop: { egress, extractor, register } }).work!;
});
afterAll(async () => {
  await record.close();
  await world.close();
  await rm(docsDir, { recursive: true });
});

const ask = (question: string, ...paths: string[]): Promise<BriefAnswer> =>
  did(
    researchBrief,
    { question, ...(paths.length > 0 ? { urls: paths.map((path) => world.origin + path) } : {}) },
    deps,
  );
const textsOf = ({ claims }: BriefAnswer): string[] => claims.map(({ text }) => text);
const quotesOf = ({ claims, disagreements }: BriefAnswer) =>
  [...claims, ...disagreements].flatMap(({ quotations }) => quotations);
const hash = (bytes: string | Buffer) => createHash("sha256").update(bytes).digest("hex");

/** Fetches what each quotation of the record cites, and holds hash and offset against it. */
async function verifyRecord(brief: BriefAnswer): Promise<void> {
  for (const { text, url, sha256, offset } of quotesOf(brief)) {
    const source = brief.sources.find((one) => one.url === url)!;
    const body = await (await serving.get(url.replace("https://touchstone.test", ""))).text();
    const cited = source.read && source.kind === "leaf" ? body.split("\n")[0]! : body;
    expect([url, hash(cited)]).toEqual([url, sha256]);
    expect(cited.startsWith(text, offset)).toBe(true);
  }
}

describe("five questions about the record", () => {
  test("which sellers are thieves?", async () => {
    const brief = await ask("Which sellers are thieves?");
    expect(brief.asked_of.what).toBe("record");
    expect(textsOf(brief)).toEqual([
      "1 of 6 listed endpoints took money for paid calls and delivered nothing, without paying it back.",
      expect.stringMatching(/^GET https:\/\/thief\.example\/\S+: F: it took 0\.02 in 1 of 40 paid calls\.$/),
      expect.stringMatching(/paid call of 2026-11-17T02:00:00.000Z: It took 0\.02 and nothing came back\.$/),
    ]);
    expect(quotesOf(brief).map(({ text }) => text)).toEqual(
      expect.arrayContaining([`"tx":"${TX}"`, '"flags":["took_the_money"]']),
    );
    expect(brief.markdown).toContain("nothing came back");
    await verifyRecord(brief);
  });

  test("what is the cheapest way to get a sha256 hash?", async () => {
    const brief = await ask("What is the cheapest way to get a SHA-256 hash?");
    const [first] = textsOf(brief);
    expect(first).toMatch(/^GET https:\/\/hash\.example\/v1: A: it delivers.* It asks 0\.001000 .* on base-sepolia\./);
    expect(first).toContain("95 of 100 answers came within 300 ms.");
    expect(textsOf(brief)[1]).toContain("0.090000");
    expect(brief.not_found).toEqual([]);
    await verifyRecord(brief);
  });

  test("why did a named seller fail?", async () => {
    const brief = await ask(`What failed at ${new URL(THIEF.url).hostname}?`);
    expect(textsOf(brief)).toEqual([
      expect.stringContaining("F: it took 0.02 in 1 of 40 paid calls."),
      expect.stringContaining("It took 0.02 and nothing came back. Expected: an answer before the deadline"),
    ]);
    await verifyRecord(brief);
  });

  test("how many endpoints have the letter A?", async () => {
    const brief = await ask("How many endpoints have the letter A?");
    expect(textsOf(brief)[0]).toBe("2 of 6 listed endpoints have the letter A.");
    expect(textsOf(brief).slice(1)).toEqual([
      expect.stringContaining("dear-hash.example"),
      expect.stringContaining("//hash.example"),
    ]);
    await verifyRecord(brief);
  });

  test("what does a named seller cost, and where do its listing and its 402 differ?", async () => {
    const brief = await ask("Was kostet weather.example?");
    expect(textsOf(brief)).toEqual([expect.stringMatching(/^GET https:\/\/weather\.example\/now asks 0\.020000 /)]);
    const all = await ask("Tell me about https://weather.example/now");
    expect(all.disagreements).toMatchObject([{ says: expect.stringContaining("a price other than the listing's") }]);
    expect(textsOf(all)[0]).toContain("C: its price moves too much.");
    await verifyRecord(brief);
    await verifyRecord(all);
  });
});

describe("other questions about the record", () => {
  test.each<[string, RegExp]>([
    ["Who steals money in this market?", /^1 of 6 listed endpoints took money/],
    ["Welche Anbieter sind Diebe?", /^1 of 6 listed endpoints took money/],
    ["Which weather sellers have defects in their listing?", /^1 of 1 listed endpoints have a listing/],
    ["List all sellers that fail", /^2 of 6 listed endpoints have the letter F or D/],
    ["How fast is hash.example?", /^95 of 100 answers of GET https:\/\/hash\.example\/v1 came within 300 ms/],
    ["Who should I not pay?", /^2 of 6 listed endpoints have the letter F or D/],
    ["best hash under 1 cent", /^GET https:\/\/hash\.example/],
    ["What are the most reliable sellers of hashes?", /^GET https:\/\/(?:dear-)?hash\.example/],
    ["Which service knows the weather?", /^GET https:\/\/weather\.example/],
    ["Where can I buy a hash under one cent?", /^GET https:\/\/hash\.example/],
  ])("%s", async (question, says) => expect(textsOf(await ask(question))[0]).toMatch(says));

  test.each<[string, RegExp]>([
    ["Which sellers have the letter B?", /^None of 6 listed endpoints have the letter B/],
    ["Which hash sellers are thieves?", /^None of 2 listed endpoints took money/],
    ["What does https://stranger.example/x cost?", /not listed in the record/],
    ["Which endpoints accept payment on Tempo?", /No sentence/],
    ["Where can I buy a helicopter?", /Nothing in the record fits/],
  ])("%s: nothing answers, so nothing is charged", async (question, says) => {
    const [code, status, , words] = await refusal(researchBrief, { question }, deps);
    expect([code, status]).toEqual(["nothing_relevant", 422]);
    expect(words).toMatch(says);
  });

  test("a rule that is asked about is looked for in the documentation", async () => {
    const brief = await ask("How is a letter held for 14 days?");
    expect(brief.asked_of.what).toBe("corpus");
    expect(brief.sources.every(({ url }) => url.startsWith("https://touchstone.test/docs/"))).toBe(true);
  });
});

describe("five questions about given pages", () => {
  test("how long may a buyer return the goods? Two sources disagree; headings and code are no answer", async () => {
    const brief = await ask("How long may a buyer return the goods?", "/terms", "/faq");
    expect(textsOf(brief)).toEqual(
      expect.arrayContaining([
        "A buyer may return the goods within 30 days of delivery.",
        "You may return the goods of a delivery within 14 days.",
      ]),
    );
    expect(brief.disagreements[0]!.says).toMatch(/30 or 14 days|14 or 30 days/);
    for (const text of textsOf(brief)) expect(text).not.toMatch(/curl|How long/);
    expect(brief.markdown).toContain("## Where sources disagree");
  });

  test("what happens beyond the rate limit?", async () => {
    const brief = await ask("What does the API answer when the rate limit is exceeded?", "/api");
    expect(textsOf(brief)[0]).toBe(
      "When a client exceeds the rate limit, the API answers with status 429 and a Retry-After header.",
    );
    expect(textsOf(brief).join(" ")).not.toMatch(/rate\.limit|Rate limit of the API/);
  });

  test("who founded the house? Two sources say it, so it is one claim", async () => {
    const brief = await ask("Who founded the house, and when?", "/terms", "/faq");
    const [claim] = brief.claims;
    expect(claim!.quotations.map(({ url }) => url).sort()).toEqual(
      ["/faq", "/terms"].map((path) => world.origin + path),
    );
    expect(claim!.text).toContain("founded in 1971 by Ada Example");
    expect(brief.disagreements).toEqual([]);
  });

  test("what did the board decide on the fee, and on dogs? What no source says is told", async () => {
    const brief = await ask("What is the membership fee that the board raised for dogs?", "/minutes", "/terms");
    expect(textsOf(brief)).toEqual(["The board met on 3 March 2025 and raised the membership fee to 40 EUR."]);
    expect(brief.not_found).toEqual(['No quotation has "dogs".']);
    expect(brief.claims[0]!.quotations[0]!.text).toContain("\n");
  });

  test("in German over English pages: Wie lange ist die Rückgabefrist?", async () => {
    const brief = await ask("Wie lange ist die Rückgabefrist für Waren?", "/terms");
    expect(textsOf(brief)[0]).toBe("A buyer may return the goods within 30 days of delivery.");
    const founded = await ask("Wann wurde das Haus in Trondheim gegründet?", "/terms");
    expect(textsOf(founded)).toEqual(["The house was founded in 1971 by Ada Example in Trondheim."]);
    // What the table does not know finds nothing, and is not charged.
    const urls = [`${world.origin}/terms`];
    const told = await refusal(researchBrief, { question: "Wie tief ist der Brunnen vor dem Tore?", urls }, deps);
    expect(told[0]).toBe("nothing_relevant");
  });
});

test("quotations of pages lead to the text in what docs/extract gives", async () => {
  const brief = await ask("How long may a buyer return the goods of the board?", "/terms", "/minutes");
  for (const { url, sha256, text, offset } of quotesOf(brief)) {
    const source = brief.sources.find((one) => one.url === url)!;
    const extracted = await did(docsExtract, { url, part: source.read ? source.part : "whole" }, deps);
    expect([extracted.source.sha256, extracted.text.startsWith(text, offset)]).toEqual([sha256, true]);
  }
});

test("the examples of the page are briefs", async () => {
  const docs = readFileSync(join(DOCS, "paid-operations.md"), "utf8");
  const bodies = [...docs.matchAll(/\/v1\/research\/brief -d '([^']+)'/g)].map(
    ([, body]) => JSON.parse(body!) as { urls?: string[] },
  );
  expect(bodies).toHaveLength(2);
  for (const body of bodies) {
    const urls = body.urls && { urls: [`${world.origin}/terms`, `${world.origin}/minutes`] };
    const brief = await did(researchBrief, { ...body, ...urls }, deps);
    expect(brief.claims.length).toBeGreaterThan(0);
    expect(brief.asked_of.what).toBe(urls ? "urls" : "record");
  }
});
