import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Egress } from "../../../infra/egress/egress.ts";
import { MAX_SENT_BYTES } from "../../../serving/schemas/extract.ts";
import { docsExtract } from "../../../serving/work/docs-extract.ts";
import { ExtractorUnavailable } from "../../../serving/work/extract/extractor.ts";
import { pdfWith } from "./pdf.ts";
import { did, NOW, page, refusal, type World, worldOf } from "./world.ts";

const REPORT = pdfWith([{ words: [{ x: 72, y: 700, text: "A report in one line." }] }], { Title: "Report" });
const HTML = '<!doctype html><html lang="en"><title>Page</title><h1>Head</h1><p>Body. <a href="next">Next</a></html>';

let world: World;
beforeAll(async () => {
  world = await worldOf({
    "/report": page(REPORT, { "content-type": "application/pdf" }),
    "/a/page": page(HTML),
    "/moved": page("", { location: "/a/page" }, 302),
    "/empty": page(""),
    "/paid": page("{}", { "content-type": "application/json" }, 402),
    "/picture": page(Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0, 0]), { "content-type": "image/png" }),
    "/huge": page(Buffer.alloc(6 * 1024 * 1024, 97)),
    "/bomb": page("<p>".concat("&lt;".repeat(250_000))),
    "/reset": (_, response) => void response.destroy(),
  });
});
afterAll(() => world.close());

const hash = (bytes: string | Buffer) => createHash("sha256").update(bytes).digest("hex");
const base64 = (bytes: string | Buffer) => Buffer.from(bytes as string).toString("base64");

describe("documents", () => {
  test("a PDF by its url", async () => {
    const url = `${world.origin}/report`;
    expect(await did(docsExtract, { url }, world)).toMatchObject({
      schema: "svc.extract.v1",
      source: {
        url,
        final_url: url,
        fetched_at: NOW,
        content_type: "application/pdf",
        sha256: hash(REPORT),
        bytes: REPORT.length,
      },
      kind: "pdf",
      text: "A report in one line.",
      metadata: { title: "Report", pages: 1 },
    });
  });

  test("a page by its url, behind a redirect: links count from where it was read", async () => {
    const said = await did(docsExtract, { url: `${world.origin}/moved` }, world);
    expect(said).toMatchObject({
      source: { url: `${world.origin}/moved`, final_url: `${world.origin}/a/page`, sha256: hash(HTML) },
      kind: "html",
      headings: [{ level: 1, text: "Head" }],
      links: [{ text: "Next", url: `${world.origin}/a/next` }],
    });
  });

  test("the example of the page, as it stands there", async () => {
    const docs = readFileSync(resolve(import.meta.dirname, "../../../docs/paid-operations.md"), "utf8");
    const section = docs.split("\n## ").find((one) => one.startsWith("POST /v1/docs/extract"))!;
    const [asked, answer] = [...section.matchAll(/```json\n([\s\S]*?)\n```/g)].map(([, text]) => text!);
    const sha256 = hash("Item,Price\nSalt,2\n");
    expect(await did(docsExtract, JSON.parse(asked!), world)).toEqual(JSON.parse(answer!.replace("SHA256", sha256)));
  });

  test("a DOCX that is sent as something else says so", async () => {
    const file = readFileSync(resolve(import.meta.dirname, "../../../fixtures/documents/docx/pandoc-german.docx"));
    const said = await did(docsExtract, { bytes: base64(file), type: "application/pdf" }, world);
    expect(said).toMatchObject({ kind: "docx", mismatch: "declared as application/pdf, and read as docx" });
    expect(said.tables.map(({ rows }) => rows[2])).toEqual([["Groß", "230"]]);
  });

  test("either by its bytes; what was sent has no address", async () => {
    const nowhere = { url: null, final_url: null, fetched_at: null, content_type: null };
    expect(await did(docsExtract, { bytes: base64(REPORT) }, world)).toMatchObject({
      source: { ...nowhere, sha256: hash(REPORT) },
      kind: "pdf",
    });
    expect(await did(docsExtract, { bytes: base64(HTML), part: "main" }, world)).toMatchObject({
      source: { ...nowhere, sha256: hash(HTML) },
      kind: "html",
      part: "main",
    });
  });
});

describe("bad input and bad documents: a problem, and no answer", () => {
  const at = (path: string) => ({ url: `ORIGIN${path}` });
  test.each<[string, unknown, string, string[], RegExp]>([
    ["nothing", {}, "bad_request", ["/url"], /either url or bytes/],
    ["no object", null, "bad_request", ["/"], /./],
    ["both", { ...at("/report"), bytes: "aGk=" }, "bad_request", ["/url"], /not both/],
    ["a field that is not named", { ...at("/report"), ocr: true }, "bad_request", ["/ocr"], /ocr/],
    ["an unknown part", { ...at("/report"), part: "best" }, "bad_request", ["/part"], /whole or main/],
    ["a url that is too short", { url: "http://" }, "bad_request", ["/url"], /8 to 2048/],
    ["a url that is too long", { url: `http://a.example/${"a".repeat(2100)}` }, "bad_request", ["/url"], /8 to 2048/],
    ["half of a pair", { url: "http://a.example/\ud800" }, "bad_request", ["/url"], /whole Unicode text/],
    ["another scheme", { url: "file:///etc/passwd" }, "bad_request", ["/url"], /must be an http or https url/],
    ["a private address", { url: "http://10.0.0.1/x" }, "bad_request", ["/url"], /never fetched/],
    ["metadata of a cloud", { url: "http://169.254.169.254/latest" }, "bad_request", ["/url"], /never fetched/],
    ["a password in the url", { url: "http://a:b@seller.example/" }, "bad_request", ["/url"], /user or password/],
    ["no base64", { bytes: "not base64!!" }, "bad_request", ["/bytes"], /base64/],
    ["base64 without padding", { bytes: "aGk" }, "bad_request", ["/bytes"], /padding/],
    ["nothing in base64", { bytes: "" }, "bad_request", ["/bytes"], /empty/],
    ["a document that is not there", at("/nowhere"), "not_fetched", ["/url"], /status 404/],
    ["one that is sold", at("/paid"), "not_fetched", ["/url"], /asks for payment/],
    ["an empty one", at("/empty"), "not_fetched", ["/url"], /empty/],
    ["a connection that is reset", at("/reset"), "not_fetched", ["/url"], /no whole answer/],
    ["one that is too large to fetch", at("/huge"), "not_fetched", ["/url"], /5242880 bytes/],
    ["what is no picture", at("/picture"), "not_extracted", ["/url"], /not a document of a kind that is read/],
    ["a bomb", at("/bomb"), "not_extracted", ["/url"], /limit of markup/],
    ["a sent one that is no document", { bytes: "AAECAwQ=" }, "not_extracted", ["/bytes"], /not a document of a kind/],
    ["a type that is none", { bytes: "aGk=", type: "text" }, "bad_request", ["/type"], /media type such as/],
  ])("%s", async (_, body, code, pointers, says) => {
    const sent = JSON.parse(JSON.stringify(body).replaceAll("ORIGIN", world.origin)) as unknown;
    const told = await refusal(docsExtract, sent, world);
    expect([told[0], told[2]]).toEqual([code, pointers]);
    expect(told[3]).toMatch(says);
  });

  test("a sent document is at most 8 MiB, to the byte", async () => {
    const most = Buffer.alloc(MAX_SENT_BYTES, "a");
    most.write("<p>");
    const said = await did(docsExtract, { bytes: base64(most) }, world);
    expect([said.source.bytes, said.cut]).toEqual([MAX_SENT_BYTES, ["text"]]);
    const more = Buffer.concat([most, Buffer.from("a")]);
    expect((await refusal(docsExtract, { bytes: base64(more) }, world))[2]).toEqual(["/bytes"]);
  });

  test("that nobody can read or fetch now is our side, and may be asked again", async () => {
    const read = () => Promise.reject(new ExtractorUnavailable("too many documents are being read"));
    const busy = { ...world, extractor: { read, close: () => Promise.resolve() } };
    expect((await refusal(docsExtract, { bytes: base64(HTML) }, busy)).slice(0, 2)).toEqual(["unavailable", 503]);
    const fetch: Egress["fetch"] = async () => ({ outcome: "refused", says: "full", totalMs: 0, sent: false });
    const full = { ...world, egress: { ...world.egress, fetch } };
    const told = await refusal(docsExtract, { url: "http://seller.example/" }, full);
    expect(told.slice(0, 2)).toEqual(["unavailable", 503]);
  });
});
