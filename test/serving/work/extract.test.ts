import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deflateSync } from "node:zlib";
import { afterAll, describe, expect, test } from "vitest";
import { processorMs } from "../../../infra/bounded-thread.ts";
import {
  childFlags,
  createExtractor,
  type ExtractionRequest,
  type ExtractorOptions,
  ExtractorUnavailable,
  NotExtracted,
  withKernelLimits,
} from "../../../serving/work/extract/extractor.ts";
import { flate, type PageOf, pdfOf, pdfWith } from "./pdf.ts";

/** Real documents read by real children; only the bounds are smaller than in service, so that bombs go off sooner. */
const MIB = 1024 * 1024;
const extractor = createExtractor({ limits: { wallMs: 300_000, cpuMs: 100_000 }, waitMs: 300_000 });
afterAll(() => extractor.close());

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

const read = (bytes: string | Buffer, more: Partial<ExtractionRequest> = {}, reader = extractor) =>
  reader.read({ bytes: Buffer.from(bytes as string), kinds: ["pdf", "html"], ...more });

/** Why a document gave nothing: [why, bound, words]. */
async function fault(
  bytes: string | Buffer,
  limits: ExtractorOptions["limits"] = {},
  more: Partial<ExtractionRequest> = {},
) {
  const reader = createExtractor({ limits: { wallMs: 300_000, ...limits } });
  try {
    const said = await read(bytes, more, reader);
    return ["read", null, said.text.slice(0, 60)];
  } catch (error) {
    if (!(error instanceof NotExtracted)) throw error;
    return [error.why, error.bound, error.message];
  } finally {
    await reader.close();
  }
}

const ARTICLE = `<!doctype html><!-- a page -->
<html lang="en-GB"><head><title>Salt &amp; pepper</title><meta name="author" content="A. Writer">
<meta name="description" content="On  spices"><meta property="article:published_time" content="2026-01-02"></head>
<body><nav><a href="/home">Home</a></nav>
<h1>Of <b>salt</b></h1><p>Salt is  a min<b>eral</b>, see <a href="mine?x=1#deep">the mine</a>.</p>
<p hidden>a secret</p><div style="display:none">another secret</div><a href="javascript:alert(1)">run</a>
<h2>Figures</h2><table><caption>Tonnes</caption><tr><th>Year<th>Salt<tr><td>2024<td>12<table><tr><td>in<td>ner</table></table>
<pre>one
  two</pre><ul><li>first<li>second</ul><script>document.write("x")</script><style>p{}</style></body></html>`;

describe("HTML", () => {
  test("text, headings with their places, tables, links and metadata", async () => {
    const said = await read(ARTICLE, { url: "https://spice.example/book/" });
    expect(said.metadata).toEqual({
      title: "Salt & pepper",
      author: "A. Writer",
      language: "en-GB",
      description: "On spices",
      published: "2026-01-02",
      pages: null,
    });
    expect(said.text).toBe(
      "Home\n\nOf salt\n\nSalt is a mineral, see the mine.\n\nrun\n\nFigures\n\nTonnes\nYear\tSalt\n2024\t12\n\nin\tner\n\none\n  two\n\nfirst\nsecond",
    );
    expect(said.headings.map(({ level, text }) => [level, text])).toEqual([
      [1, "Of salt"],
      [2, "Figures"],
    ]);
    for (const { offset, text } of said.headings) expect(said.text.startsWith(text, offset)).toBe(true);
    expect(said.tables).toEqual([
      { page: null, found: "markup", caption: null, header: false, rows: [["in", "ner"]] },
      {
        page: null,
        found: "markup",
        caption: "Tonnes",
        header: true,
        rows: [
          ["Year", "Salt"],
          ["2024", "12"],
        ],
      },
    ]);
    expect(said.links).toEqual([
      { text: "Home", url: "https://spice.example/home", page: null },
      { text: "the mine", url: "https://spice.example/book/mine?x=1#deep", page: null },
    ]);
    expect([said.kind, said.part, said.cut]).toEqual(["html", "whole", []]);
  });

  test("the main part leaves the menu out, and a page without one is given whole", async () => {
    const menu = `<nav>${"<a href=/x>menu</a> ".repeat(30)}</nav>`;
    const prose = "<p>This is a sentence of an article that goes on, with commas, and has more words than a menu.</p>";
    const said = await read(`<html><body>${menu}<article><h1>Head</h1>${prose.repeat(20)}</article></body></html>`, {
      part: "main",
    });
    expect([said.part, said.text.includes("menu.")]).toEqual(["main", true]);
    expect(said.text).not.toContain("menu menu");
    const large = await read("<p>one<p>two", { part: "main", limits: { mainElements: 1 } });
    expect([large.part, large.text]).toEqual(["whole", "one\n\ntwo"]);
  });

  test.each<[string, Buffer, string | undefined]>([
    ["what it says of itself", Buffer.from('<meta charset="iso-8859-1"><p>\xe9t\xe9 1900</p>', "latin1"), undefined],
    ["what it was sent with", Buffer.from("<p>\xe9t\xe9 1900</p>", "latin1"), "text/html; charset=ISO-8859-1"],
    ["a byte order mark", Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from("<p>été 1900</p>", "utf16le")]), ""],
    ["nothing: UTF-8", Buffer.from("<p>été 1900</p>"), "text/html"],
    ["a coding that nobody knows: UTF-8", Buffer.from("<p>été 1900</p>"), "text/html; charset=klingon"],
  ])("coding by %s", async (_, bytes, type) => {
    expect((await read(bytes, { type })).text).toBe("été 1900");
  });

  test("what is answered is well-formed text without control characters", async () => {
    const { text } = await read("<p>a&#xD800;b\u0000c\u0007d&#x1F600;</p>", { type: "text/html" });
    expect(text).not.toMatch(/\p{Surrogate}/u);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what must not be there.
    expect(text).not.toMatch(/[\u0000-\u0008]/);
    expect(text).toContain("😀");
  });

  test("what an answer holds is bounded, and what was cut is said", async () => {
    const page = `<p>${"word ".repeat(100)}</p>${"<h2>head</h2>".repeat(5)}${'<a href="https://a.example/">a</a>'.repeat(2)}${Array.from({ length: 5 }, (_, i) => `<a href="https://a.example/${i}">a</a>`).join("")}<table><tr><td>1<td>2<tr><td>3<td>4</table>`;
    const limits = { textChars: 50, headings: 2, links: 3, cells: 3 };
    const said = await read(page, { limits });
    expect(said.text).toHaveLength(50);
    expect([said.headings.length, said.links.length]).toEqual([0, 3]);
    expect(said.tables.map(({ rows }) => rows)).toEqual([[["1", "2"]]]);
    expect(said.cut.sort()).toEqual(["headings", "links", "tables", "text"]);
  });
});

const PAGE: PageOf = {
  words: [
    { x: 72, y: 720, text: "Annual report", size: 24 },
    { x: 72, y: 690, text: "Revenue rose by four percent (4 %) in the year." },
    { x: 72, y: 676, text: "Costs fell." },
    ...[
      ["Year", "Revenue"],
      ["2024", "12.5"],
      ["2025", "13.0"],
    ].flatMap((row, i) => row.map((text, j) => ({ x: 72 + 128 * j, y: 640 - 14 * i, text }))),
    { x: 72, y: 580, text: "See the site" },
  ],
  links: [
    { rect: [70, 575, 200, 595], url: "https://firm.example/site" },
    { rect: [70, 575, 200, 595], url: "javascript:app.alert(1)" },
  ],
};

describe("PDF", () => {
  test("text, headings by size, tables by place, links and metadata", async () => {
    const info = { Title: "Report", Author: "A. Writer", Subject: "Money", CreationDate: "D:20260102030405Z" };
    const said = await read(pdfWith([PAGE, { words: [{ x: 72, y: 700, text: "The second page." }] }], info));
    expect(said.metadata).toEqual({
      title: "Report",
      author: "A. Writer",
      language: "en-GB",
      description: "Money",
      published: "2026-01-02",
      pages: 2,
    });
    expect(said.text).toBe(
      "Annual report\n\nRevenue rose by four percent (4 %) in the year.\nCosts fell.\n\nYear\tRevenue\n2024\t12.5\n2025\t13.0\n\nSee the site\n\nThe second page.",
    );
    expect(said.headings).toEqual([{ level: 1, text: "Annual report", offset: 0, page: 1 }]);
    expect(said.tables).toEqual([
      {
        page: 1,
        found: "layout",
        caption: null,
        header: false,
        rows: [
          ["Year", "Revenue"],
          ["2024", "12.5"],
          ["2025", "13.0"],
        ],
      },
    ]);
    expect(said.links).toEqual([{ text: "See the site", url: "https://firm.example/site", page: 1 }]);
    expect([said.kind, said.cut]).toEqual(["pdf", []]);
  });

  test("what it is counts, not what it is said to be", async () => {
    expect((await read(pdfWith([PAGE]), { type: "text/html" })).kind).toBe("pdf");
    expect((await read("<p>page</p>", { type: "application/pdf" })).kind).toBe("html");
  });
});

/** A document of one page object, named so many times, with this content. */
const onePage = (content: Buffer, kids = 1): Buffer =>
  pdfOf([
    "<< /Type /Catalog /Pages 2 0 R >>",
    `<< /Type /Pages /Kids [${"3 0 R ".repeat(kids)}] /Count ${kids} >>`,
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 5 0 R >> >> /Contents 4 0 R >>",
    content,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
  ]);
/** Zeros packed twice: some kilobytes that become a gigabyte. */
function doubleBomb(bytes: number): Buffer {
  const packed = deflateSync(deflateSync(Buffer.alloc(bytes, 32), { level: 9 }), { level: 9 });
  const head = `<< /Length ${packed.length} /Filter [/FlateDecode /FlateDecode] >>\nstream\n`;
  return Buffer.concat([Buffer.from(head), packed, Buffer.from("\nendstream")]);
}
const locked = (): Buffer =>
  pdfOf(
    ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>"],
    `/ID [<${"00".repeat(16)}> <${"00".repeat(16)}>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <${"11".repeat(32)}> /U <${"22".repeat(32)}> >>`,
  );
const SMALL = { rssBytes: 160 * MIB };

describe("bombs and wrecks end as an error that names the bound", () => {
  test.each<[string, () => string | Buffer, ExtractorOptions["limits"], string, string | null, RegExp]>([
    ["a flate bomb", () => onePage(flate(Buffer.alloc(260 * MIB, 32))), SMALL, "bound", "memory", /160 MiB of memory/],
    ["a flate bomb in a flate stream", () => onePage(doubleBomb(260 * MIB)), SMALL, "bound", "memory", /160 MiB/],
    ["more pages than are read", () => onePage(flate("BT ET"), 501), {}, "bound", "pages", /501 pages.* at most 500/],
    [
      "more objects than are read",
      () => `%PDF-1.7\n${"1 0 obj\nnull\nendobj\n".repeat(1001)}`,
      { objects: 1_000 },
      "bound",
      "objects",
      /1001 objects.* at most 1000/,
    ],
    [
      "more pieces of text than are read",
      () => pdfWith([{ words: Array.from({ length: 60 }, (_, i) => ({ x: 72, y: 10 * i, text: `w${i}`, size: 8 })) }]),
      { items: 50 },
      "bound",
      "objects",
      /more than 50 pieces/,
    ],
    [
      "a page drawn again and again",
      () => onePage(flate(`BT /F1 9 Tf 10 700 Td ${"(a) Tj ( ) Tj ".repeat(300_000)} ET`), 400),
      { cpuMs: 2_000 },
      "bound",
      "time",
      /2000 ms of processor time/,
    ],
    ["a million cells", () => "<table><tr>".concat("<td>1".repeat(1_000_000)), {}, "bound", "markup", /1000002 tags/],
    ["a flood of entities", () => `<p>${"&amp;".repeat(300_000)}`, {}, "bound", "markup", /300001 tags and entities/],
    ["deep nesting", () => `<p>x${"<div>".repeat(2_000)}y`, {}, "bound", "depth", /deeper than 512/],
    ["nesting that takes long", () => `<p>x${"<div>".repeat(190_000)}y`, { cpuMs: 2_000 }, "bound", "time", /2000 ms/],
    [
      "more heap than it has",
      () => "<table>".concat(`<tr>${"<td>1</td>".repeat(50)}</tr>`.repeat(1_900)),
      { heapMib: 24, rssBytes: 4_096 * MIB },
      "bound",
      "memory",
      /24 MiB of memory/,
    ],
    [
      "an answer that is too long",
      () => `<p>${"word ".repeat(50_000)}`,
      { outputBytes: 10_000 },
      "bound",
      "output",
      /10000/,
    ],
    ["too little time of the clock", () => "<p>x", { wallMs: 1 }, "bound", "time", /within 1 ms/],
    ["a PDF that is none", () => "%PDF-1.7\nnothing of one", {}, "unreadable", null, /no PDF that can be read/],
    [
      "a PDF cut short",
      () => pdfWith([PAGE]).subarray(0, 300),
      {},
      "unreadable",
      null,
      /no PDF|no text|cannot be read/,
    ],
    ["a locked PDF", locked, {}, "unreadable", null, /locked with a password/],
    ["a PDF of pictures", () => onePage(flate("")), {}, "unreadable", null, /no text in it/],
    [
      "a page that a script writes",
      () => "<html><script>1</script></html>",
      {},
      "unreadable",
      null,
      /scripts of a page/,
    ],
    ["plain text", () => "plain", {}, "kind", null, /not pdf or html but text/],
    ["no document at all", () => Buffer.from([0, 1, 2, 3]), {}, "kind", null, /not pdf or html$/],
  ])("%s", async (_, bytes, limits, why, bound, says) => {
    const told = await fault(bytes(), limits);
    expect(told.slice(0, 2)).toEqual([why, bound]);
    expect(told[2]).toMatch(says);
  });

  test("an element with hundreds of thousands of attributes is read, or named by its bound", async () => {
    const names = Array.from({ length: 200_000 }, (_, i) => `a${i}`).join(" ");
    const [why, bound] = await fault(`<p>text<a ${names}>x</a>`);
    expect(["read null", "bound time", "bound memory"]).toContain(`${why} ${bound}`);
  });

  test("what takes long takes the processor of the child and not of this thread", async () => {
    const long = `<p>x${"<div>".repeat(190_000)}`;
    const before = processorMs("own");
    const told = await fault(long, { cpuMs: 3_000 });
    expect(told[1]).toBe("time");
    expect(processorMs("own") - before).toBeLessThan(1_000);
  });

  test("the reader goes on after all of that", async () => {
    expect((await read("<p>still here")).text).toBe("still here");
  });
});

describe("the child", () => {
  test("has no network, no files, no environment, and can begin nothing", () => {
    const dir = mkdtempSync(join(tmpdir(), "child-"));
    const script = join(dir, "tries.mjs");
    writeFileSync(
      script,
      `import net from "node:net"; import tls from "node:tls"; import http from "node:http"; import dns, { lookup } from "node:dns";
       import dgram from "node:dgram"; import fs from "node:fs"; import cp from "node:child_process"; import { Worker } from "node:worker_threads";
       const tries = {
         fetch: () => fetch("http://127.0.0.1:1"),
         connect: () => net.connect(1, "127.0.0.1"), unix: () => net.connect("/tmp/x"), listen: () => net.createServer().listen(0),
         tls: () => tls.connect(1, "127.0.0.1"), http: () => http.get("http://127.0.0.1:1"), lookup: () => lookup("localhost", () => {}),
         resolve: () => new dns.promises.Resolver().resolve4("localhost"), udp: () => dgram.createSocket("udp4").send("x", 1, "127.0.0.1"),
         passwd: () => fs.readFileSync("/etc/passwd"), list: () => fs.readdirSync("/etc"), write: () => fs.writeFileSync(${JSON.stringify(join(dir, "out"))}, "x"),
         exec: () => cp.execFileSync("/bin/true"), worker: () => new Worker("1", { eval: true }), code: () => new Function("return 1")(),
         addon: () => process.dlopen({ exports: {} }, "/nowhere.node"),
       };
       const told = { environment: Object.keys(process.env) };
       for (const [name, attempt] of Object.entries(tries)) {
         try { await attempt(); told[name] = "DONE"; } catch (error) { told[name] = error.code ?? error.name; }
       }
       process.stdout.write(JSON.stringify(told)); process.exit(0);`,
    );
    try {
      const flags = [...childFlags(64), `--allow-fs-read=${dir}/*`, script];
      const { stdout, stderr } = spawnSync(process.execPath, flags, { env: {}, cwd: "/", encoding: "utf8" });
      expect(stderr).toBe("");
      const { environment, ...told } = JSON.parse(stdout) as Record<string, unknown>;
      expect(environment).toEqual([]);
      expect(Object.keys(told)).toHaveLength(16);
      expect(Object.entries(told).filter(([, how]) => how === "DONE")).toEqual([]);
      for (const name of ["passwd", "list", "write", "exec", "worker"]) expect(told[name]).toBe("ERR_ACCESS_DENIED");
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test("is ended by the kernel where nobody watches it, and writes no file", () => {
    const endless = withKernelLimits(1, [...childFlags(64), "-e", "for (;;);"]);
    const { signal, status } = spawnSync(...endless, { env: {}, cwd: "/" });
    expect(signal === "SIGXCPU" || signal === "SIGKILL", `${signal} ${status}`).toBe(true);
    const dir = mkdtempSync(join(tmpdir(), "child-"));
    // Without the permission model: what is left is the kernel's own word.
    const script = `require("node:fs").writeFileSync(${JSON.stringify(join(dir, "out"))}, "text")`;
    const wrote = spawnSync(...withKernelLimits(5, ["-e", script]), { env: {}, cwd: "/" });
    expect([wrote.status === 0, readFileSync(join(dir, "out"), "utf8")]).toEqual([false, ""]);
    rmSync(dir, { recursive: true });
  });

  test("so many at once and so many that wait; who comes later is refused, and so is who waited too long", async () => {
    const reader = createExtractor({
      atOnce: 1,
      maxWaiting: 1,
      waitMs: 300_000,
      limits: { wallMs: 300_000, cpuMs: 60_000 },
    });
    const slow = read(`<p>x${"<div>".repeat(20_000)}`, {}, reader).catch((error: Error) => error);
    await pause(50);
    const waiting = read("<p>second", {}, reader);
    await pause(50);
    await expect(read("<p>third", {}, reader)).rejects.toThrow(ExtractorUnavailable);
    expect(await slow).toBeInstanceOf(NotExtracted);
    expect((await waiting).text).toBe("second");
    await reader.close();
    const short = createExtractor({ atOnce: 1, waitMs: 1, limits: { wallMs: 300_000 } });
    const first = read("<p>first", {}, short);
    await pause(20);
    await expect(read("<p>second", {}, short)).rejects.toThrow("too many documents");
    expect((await first).text).toBe("first");
    await short.close();
  });

  /** Children of this process that are alive. */
  const children = (): string[] =>
    readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, "utf8").trim().split(" ").filter(Boolean);

  test.skipIf(process.platform !== "linux")(
    "is ended by whoever asked, and by closing; nothing is left running",
    async () => {
      const before = new Set(children());
      const begun = () => children().filter((pid) => !before.has(pid));
      const reader = createExtractor({ limits: { cpuMs: 60_000, wallMs: 300_000 } });
      const endless = `<p>x${"<div>".repeat(190_000)}`;
      const stop = new AbortController();
      const one = expect(read(endless, { signal: stop.signal }, reader)).rejects.toThrow("called off");
      await expect.poll(begun).toHaveLength(1);
      stop.abort();
      await one;
      expect(begun()).toEqual([]);
      const two = expect(read(endless, {}, reader)).rejects.toThrow(ExtractorUnavailable);
      await expect.poll(begun).toHaveLength(1);
      await reader.close();
      expect(begun()).toEqual([]);
      await two;
      await expect(read("<p>x", {}, reader)).rejects.toThrow(ExtractorUnavailable);
    },
  );

  test.skipIf(process.platform !== "linux")("that is killed from outside is its document's error alone", async () => {
    const before = new Set(children());
    const reader = createExtractor({ limits: { cpuMs: 60_000, wallMs: 300_000 } });
    const one = expect(read(`<p>x${"<div>".repeat(190_000)}`, {}, reader)).rejects.toThrow(NotExtracted);
    await expect.poll(() => children().filter((pid) => !before.has(pid))).toHaveLength(1);
    process.kill(Number(children().find((pid) => !before.has(pid))), "SIGSEGV");
    await one;
    expect((await read("<p>next", {}, reader)).text).toBe("next");
    await reader.close();
  });
});
