import { createHash } from "node:crypto";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readDocs } from "../../../serving/pages/docs.ts";
import type { BriefAnswer } from "../../../serving/schemas/brief.ts";
import { createDocsCorpus } from "../../../serving/work/brief/corpus.ts";
import { researchBrief } from "../../../serving/work/brief/research-brief.ts";
import type { Summariser } from "../../../serving/work/brief/summariser.ts";
import { docsExtract } from "../../../serving/work/docs-extract.ts";
import { type Extractor, ExtractorUnavailable } from "../../../serving/work/extract/extractor.ts";
import { pdfWith } from "./pdf.ts";
import { did, NOW, page, refusal, type World, worldOf } from "./world.ts";

const MENU = `<nav>${"<a href=/x>refund buyer menu</a> ".repeat(30)}</nav>`;
const FILLER = "<p>This paragraph, like others, is about salt, pepper, and the history of spices in this town.</p>";
const TERMS = `<!doctype html><html><head><title>Terms</title></head><body>${MENU}<article><h1>Terms</h1>
<p>A buyer may ask for a refund within 30 days of the purchase.</p>${FILLER.repeat(12)}</article></body></html>`;
const FAQ = pdfWith([
  {
    words: [
      { x: 72, y: 720, text: "A refund goes back to the card" },
      { x: 72, y: 706, text: "with which the buyer paid." },
      { x: 72, y: 690, text: "The shop is closed on Sundays." },
    ],
  },
]);
const QUESTION = "When may a buyer have a refund?";

let world: World;
beforeAll(async () => {
  world = await worldOf({
    "/terms": page(TERMS),
    "/faq": page(FAQ, { "content-type": "application/pdf" }),
    "/plain": page("Nobody else may give the buyer a refund, says the town.", { "content-type": "text/plain" }),
    "/spices": page(`<p>${FILLER}`),
    "/picture": page(Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0, 0]), { "content-type": "image/png" }),
    "/bomb": page("<p>".concat("&lt;".repeat(250_000))),
    "/inside": page("in", { location: "http://192.168.1.1/" }, 302),
  });
});
afterAll(() => world.close());

const hash = (bytes: string | Buffer) => createHash("sha256").update(bytes).digest("hex");
const at = (...paths: string[]): string[] => paths.map((path) => `${world.origin}${path}`);
const ask = (body: object, more: object = {}): Promise<BriefAnswer> =>
  did(researchBrief, { question: QUESTION, ...body }, { ...world, ...more });

describe("a brief of addresses", () => {
  test("quotes what answers, cites it, and says what each source was", async () => {
    const urls = at("/terms", "/faq", "/plain", "/nowhere", "/picture", "/bomb", "/inside");
    const said = await ask({ urls });
    expect(said).toMatchObject({
      schema: "svc.brief.v1",
      question: QUESTION,
      asked_of: { what: "urls" },
      summariser: { name: "extractive" },
      not_quoted: 0,
      answered_at: NOW,
    });
    expect(said.claims.flatMap(({ quotations }) => quotations.map(({ text }) => text)).sort()).toEqual([
      "A buyer may ask for a refund within 30 days of the purchase.",
      "A refund goes back to the card\nwith which the buyer paid.",
      "Nobody else may give the buyer a refund, says the town.",
    ]);
    expect(said.sources).toMatchObject([
      { read: true, url: urls[0], title: "Terms", kind: "html", part: "main", sha256: hash(TERMS), cut: false },
      { read: true, url: urls[1], kind: "pdf", sha256: hash(FAQ), bytes: FAQ.length },
      { read: true, url: urls[2], kind: "text", title: null },
      { read: false, url: urls[3], says: "it answered with status 404" },
      { read: false, url: urls[4], says: "it is not a document of a kind that is read here" },
      { read: false, url: urls[5], says: expect.stringContaining("limit of markup") },
      { read: false, url: urls[6], says: expect.stringContaining("redirect: ") },
    ]);
  });

  test("whose citations lead to the sentence in what docs/extract gives", async () => {
    const { sentences, sources } = await ask({ urls: at("/terms", "/faq") });
    expect(sentences).toHaveLength(2);
    for (const { text, cites } of sentences) {
      const source = sources.find(({ url }) => url === cites.url)!;
      const part = source.read ? source.part : "whole";
      const extracted = await did(docsExtract, { url: cites.url, part }, world);
      expect(extracted.source.sha256).toBe(cites.sha256);
      expect(extracted.text.startsWith(text, cites.offset)).toBe(true);
    }
  });

  test("is the same when it is asked again", async () => {
    expect(await ask({ urls: at("/terms", "/faq") })).toEqual(await ask({ urls: at("/terms", "/faq") }));
  });
});

test("without addresses the service's own documentation is asked, and the answer says so", async () => {
  const docs = new Map(
    [...readDocs(join(import.meta.dirname, "../../../docs"))].filter(([name]) => name.startsWith("e")),
  );
  let reads = 0;
  const read: Extractor["read"] = (asked) => {
    reads += 1;
    if (reads === 1) throw new ExtractorUnavailable("too many documents are being read");
    return world.extractor.read(asked);
  };
  const extractor = { read, close: () => Promise.resolve() };
  const corpus = createDocsCorpus({ docs, baseUrl: "https://us.example/", extractor, clock: world.clock });
  const question = "Are dependencies added up by the address that each one pays?";
  // A question that no page has enough words of reads none of them.
  expect((await refusal(researchBrief, { question: QUESTION }, { ...world, corpus }))[0]).toBe("nothing_relevant");
  expect(reads).toBe(0);
  // Where nobody reads now, the next question reads it.
  expect((await refusal(researchBrief, { question }, { ...world, corpus }))[0]).toBe("unavailable");
  const said = await ask({ question }, { corpus });
  expect(said.asked_of).toEqual({ what: "corpus", says: "the documentation of this service" });
  const { text, cites } = said.sentences[0]!;
  expect(text).toContain("added up by the address that each one pays");
  expect(cites).toMatchObject({ url: "https://us.example/docs/exposure", sha256: hash(docs.get("exposure")!.text) });
  expect(said.sources.every((source) => source.read)).toBe(true);
  // And once it was read, it stays so.
  const before = reads;
  await ask({ question }, { corpus });
  expect(reads).toBe(before);
});

describe("a model in the place of the extractive method", () => {
  const model = (summarise: Summariser["summarise"]): { summariser: Summariser } => ({
    summariser: { name: "model", says: "a model chooses", summarise },
  });
  const TRUE = "A buyer may ask for a refund within 30 days of the purchase.";
  const LIE = "A buyer may ask for a refund within 90 days of the purchase.";
  const claiming = (text: string, ...quotations: { source: number; text: string }[]) => ({ text, quotations });

  test("is believed where its claim stands in a quotation that stands in the source, and nowhere else", async () => {
    const claims = [
      claiming(TRUE, { source: 0, text: TRUE }),
      claiming(LIE, { source: 0, text: LIE }),
      claiming(LIE, { source: 0, text: TRUE }),
      claiming(TRUE, { source: 7, text: TRUE }),
    ];
    const said = await ask(
      { urls: at("/terms") },
      model(async () => ({ claims, differences: [] })),
    );
    expect(said.claims.map(({ text }) => text)).toEqual([TRUE]);
    expect([said.not_quoted, said.summariser.name]).toEqual([3, "model"]);
  });

  const nothing = async () => ({ claims: [], differences: [] });
  test.each<[string, Summariser["summarise"], string]>([
    [
      "that quotes nothing",
      async () => ({ claims: [claiming(LIE, { source: 0, text: LIE })], differences: [] }),
      "nothing_relevant",
    ],
    ["that finds nothing", nothing, "nothing_relevant"],
    ["that fails", () => Promise.reject(new Error("no answer")), "unavailable"],
    [
      "that breaks",
      () => {
        throw new Error("broken");
      },
      "unavailable",
    ],
  ])("%s makes no brief", async (_, summarise, code) => {
    const told = await refusal(
      researchBrief,
      { question: QUESTION, urls: at("/terms") },
      { ...world, ...model(summarise) },
    );
    expect(told[0]).toBe(code);
  });

  test("that thinks for ever is left when the caller goes", async () => {
    const stop = new AbortController();
    const forever = model(() => {
      stop.abort();
      return new Promise(() => {});
    });
    const asked = researchBrief.run({ question: QUESTION, urls: at("/plain") }, { ...world, ...forever }, stop.signal);
    await expect(asked).rejects.toMatchObject({ code: "unavailable" });
  });
});

describe("what makes no brief is a problem", () => {
  test.each<[string, object, string, string[], RegExp]>([
    ["no question", {}, "bad_request", ["/question"], /must be given/],
    ["one that is too short", { question: " a " }, "bad_request", ["/question"], /3 to 500/],
    ["one that is too long", { question: "a".repeat(501) }, "bad_request", ["/question"], /3 to 500/],
    ["one of no words", { question: "what is the of?" }, "bad_request", ["/question"], /no word that can/],
    ["one of a sum", { question: "what's 2+2?" }, "bad_request", ["/question"], /no word that can/],
    ["a field that is not named", { question: QUESTION, model: "x" }, "bad_request", ["/model"], /model/],
    ["no list", { question: QUESTION, urls: "http://a.example" }, "bad_request", ["/urls"], /list/],
    ["an empty list", { question: QUESTION, urls: [] }, "bad_request", ["/urls"], /leave it out/],
    [
      "nine addresses",
      { question: QUESTION, urls: Array.from({ length: 9 }, (_, i) => `http://a.example/${i}`) },
      "bad_request",
      ["/urls"],
      /at most 8/,
    ],
    [
      "one address twice",
      { question: QUESTION, urls: ["ORIGIN/terms", "ORIGIN/terms"] },
      "bad_request",
      ["/urls/1"],
      /twice/,
    ],
    [
      "one that is never fetched",
      { question: QUESTION, urls: ["ORIGIN/terms", "http://10.0.0.1/"] },
      "bad_request",
      ["/urls/1"],
      /never fetched/,
    ],
    [
      "none that can be read",
      { question: QUESTION, urls: ["ORIGIN/nowhere", "ORIGIN/picture"] },
      "not_fetched",
      ["/urls/0", "/urls/1"],
      /none of the addresses/,
    ],
    [
      "none that says anything of it",
      { question: QUESTION, urls: ["ORIGIN/spices"] },
      "nothing_relevant",
      [],
      /No sentence/,
    ],
  ])("%s", async (_, body, code, pointers, says) => {
    const sent = JSON.parse(JSON.stringify(body).replaceAll("ORIGIN", world.origin)) as unknown;
    const told = await refusal(researchBrief, sent, world);
    expect([told[0], told[2]]).toEqual([code, pointers]);
    expect(told[3]).toMatch(says);
  });

  test("a corpus that cannot be read now is our side", async () => {
    const corpus = { says: "nothing", findSources: () => Promise.reject(new Error("no reader")) };
    expect((await refusal(researchBrief, { question: QUESTION }, { ...world, corpus }))[0]).toBe("unavailable");
  });
});
