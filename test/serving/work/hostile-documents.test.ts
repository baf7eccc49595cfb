import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { crc32, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { afterAll, describe, expect, test } from "vitest";
import { processorMs } from "../../../infra/bounded-thread.ts";
import { DOCUMENT_KINDS } from "../../../serving/schemas/extract.ts";
import {
  createExtractor,
  type ExtractionRequest,
  type ExtractorOptions,
  NotExtracted,
} from "../../../serving/work/extract/extractor.ts";

/** Documents made to hurt: each ends as an error that names the bound or the cause, and the next one is read. */
const MIB = 1024 * 1024;
const FOLDER = resolve(import.meta.dirname, "../../../fixtures/documents");
const extractor = createExtractor({ limits: { wallMs: 300_000, cpuMs: 100_000 }, waitMs: 300_000 });
afterAll(() => extractor.close());

type Limits = ExtractorOptions["limits"];

async function fault(bytes: Buffer, limits: Limits = {}, more: Partial<ExtractionRequest> = {}) {
  const reader = createExtractor({ limits: { wallMs: 300_000, ...limits } });
  try {
    const said = await reader.read({ bytes, kinds: DOCUMENT_KINDS, ...more });
    return ["read", null, said.text.slice(0, 60)];
  } catch (error) {
    if (!(error instanceof NotExtracted)) throw error;
    return [error.why, error.bound, error.message];
  } finally {
    await reader.close();
  }
}

/** A file of a ZIP archive; what it says of its size and its flags may be lies. */
interface Packed {
  name: string;
  body: string | Buffer;
  claims?: number;
  flags?: number;
}

/** A ZIP archive (APPNOTE 6.3.10) written by hand, so that its headers may lie. */
function zipOf(files: readonly Packed[]): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let at = 0;
  for (const { name, body, claims, flags = 0 } of files) {
    const plain = Buffer.from(body as string);
    const packed = deflateRawSync(plain, { level: 9 });
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(20, 0);
    fields.writeUInt16LE(flags, 2);
    fields.writeUInt16LE(8, 4);
    fields.writeUInt32LE(crc32(plain), 10);
    fields.writeUInt32LE(packed.length, 14);
    fields.writeUInt32LE(claims ?? plain.length, 18);
    fields.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from("PK\x03\x04"), fields, Buffer.from(name), packed]);
    const place = Buffer.alloc(14);
    place.writeUInt32LE(at, 10);
    directory.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\0"), fields, place, Buffer.from(name)]));
    parts.push(local);
    at += local.length;
  }
  const end = Buffer.alloc(18);
  end.writeUInt16LE(files.length, 4);
  end.writeUInt16LE(files.length, 6);
  end.writeUInt32LE(Buffer.concat(directory).length, 8);
  end.writeUInt32LE(at, 12);
  return Buffer.concat([...parts, ...directory, Buffer.from("PK\x05\x06"), end]);
}

const TYPES = "application/vnd.openxmlformats-officedocument";
const RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const MAIN = {
  docx: { part: "word/document.xml", type: `${TYPES}.wordprocessingml.document.main+xml` },
  xlsx: { part: "xl/workbook.xml", type: `${TYPES}.spreadsheetml.sheet.main+xml` },
  pptx: { part: "ppt/presentation.xml", type: `${TYPES}.presentationml.presentation.main+xml` },
};
const XML = '<?xml version="1.0" encoding="UTF-8"?>';

/** A package of Office with this main part and others. */
const office = (
  kind: keyof typeof MAIN,
  main: string | Buffer,
  more: readonly Packed[] = [],
  lies: Partial<Packed> = {},
) =>
  zipOf([
    {
      name: "[Content_Types].xml",
      body: `${XML}<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/${MAIN[kind].part}" ContentType="${MAIN[kind].type}"/></Types>`,
    },
    {
      name: "_rels/.rels",
      body: `${XML}<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="${RELATIONS}/officeDocument" Target="${MAIN[kind].part}"/></Relationships>`,
    },
    { name: MAIN[kind].part, body: main, ...lies },
    ...more,
  ]);

const W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"';
const word = (body: string, before = "") => `${XML}${before}<w:document ${W}><w:body>${body}</w:body></w:document>`;
const paragraph = (text: string) => `<w:p><w:r><w:t>${text}</w:t></w:r></w:p>`;
const LAUGHS = `<!DOCTYPE lolz [<!ENTITY a "lol">${"bcdefghij"
  .split("")
  .map((name, i) => `<!ENTITY ${name} "${`&${"abcdefghi"[i]};`.repeat(10)}">`)
  .join("")}]>`;

/** A workbook of one sheet. */
const workbook = (sheet: string | Buffer, claims?: number) =>
  office(
    "xlsx",
    `${XML}<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="${RELATIONS}"><sheets><sheet name="One" sheetId="1" r:id="r1"/></sheets></workbook>`,
    [
      {
        name: "xl/_rels/workbook.xml.rels",
        body: `${XML}<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="${RELATIONS}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="r2" Type="${RELATIONS}/sharedStrings" Target="sharedStrings.xml"/></Relationships>`,
      },
      { name: "xl/worksheets/sheet1.xml", body: sheet, ...(claims === undefined ? {} : { claims }) },
      { name: "xl/sharedStrings.xml", body: `${XML}<sst></sst>` },
    ],
  );
const sheetOf = (rows: string, more = "", before = "") =>
  `${XML}${before}<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>${rows}</sheetData>${more}</worksheet>`;
const cell = (at: string, text: string) => `<c r="${at}" t="inlineStr"><is><t>${text}</t></is></c>`;

const slides = (list: string, slide: string) =>
  office("pptx", `${XML}<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst>${list}</p:sldIdLst></p:presentation>`, [
    {
      name: "ppt/_rels/presentation.xml.rels",
      body: `${XML}<Relationships><Relationship Id="r1" Type="${RELATIONS}/slide" Target="slides/slide1.xml"/></Relationships>`,
    },
    { name: "ppt/slides/slide1.xml", body: slide },
  ]);
const SLIDE = `${XML}<p:sld xmlns:p="p" xmlns:a="a"><p:sp><a:p><a:r><a:t>once</a:t></a:r></a:p></p:sp></p:sld>`;

/** A PNG of one colour (PNG section 5), as large as it says. */
function pngOf(width: number, height: number): Buffer {
  const chunk = (name: string, body: Buffer) => {
    const named = Buffer.concat([Buffer.from(name), body]);
    const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(body.length);
    check.writeUInt32BE(crc32(named));
    return Buffer.concat([length, named, check]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 0, 0, 0, 0], 8);
  const rows = deflateSync(Buffer.alloc((width + 1) * height, 0), { level: 9 });
  return Buffer.concat([
    Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunk("IHDR", head),
    chunk("IDAT", rows),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

/** A compound file that holds an encrypted package, as far as its beginning and its directory tell. */
const encrypted = () =>
  Buffer.concat([
    Buffer.from("d0cf11e0a1b11ae1", "hex"),
    Buffer.alloc(1_000),
    Buffer.from("EncryptedPackage", "utf16le"),
    Buffer.alloc(600),
  ]);

describe("bombs, wrecks and locked documents", () => {
  test.each<[string, () => Buffer, Limits, string, string | null, RegExp]>([
    [
      "a DOCX that unpacks to 200 MiB",
      () => office("docx", Buffer.alloc(200 * MIB, 32)),
      {},
      "bound",
      "unpacked",
      /at most 134217728/,
    ],
    [
      "a DOCX that unpacks to more than it says",
      () => office("docx", Buffer.alloc(200 * MIB, 32), [], { claims: 1_000 }),
      {},
      "unreadable",
      null,
      /cannot be unpacked/,
    ],
    [
      "an XLSX whose sheet unpacks to more than it says",
      () => workbook(Buffer.alloc(200 * MIB, "<row/>"), 1_000),
      {},
      "unreadable",
      null,
      /sheet1.xml in it cannot be unpacked/,
    ],
    [
      "more files than are read",
      () =>
        office(
          "docx",
          word(paragraph("x")),
          Array.from({ length: 5_100 }, (_, i) => ({ name: `a${i}`, body: "" })),
        ),
      {},
      "bound",
      "entries",
      /at most 5000/,
    ],
    [
      "a billion laughs in DOCX",
      () => office("docx", word(paragraph("&j;"), LAUGHS)),
      {},
      "unreadable",
      null,
      /declares a document type/,
    ],
    [
      "a billion laughs in XLSX",
      () => workbook(sheetOf(cell("A1", "&j;"), "", LAUGHS)),
      {},
      "unreadable",
      null,
      /declares a document type/,
    ],
    [
      "a billion laughs in PPTX",
      () => slides('<p:sldId r:id="r1"/>', SLIDE.replace("<p:sld", `${LAUGHS}<p:sld`)),
      {},
      "unreadable",
      null,
      /declares/,
    ],
    [
      "an entity that names a file",
      () => office("docx", word(paragraph("&e;"), '<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]>')),
      {},
      "unreadable",
      null,
      /declares a document type/,
    ],
    [
      "deep nesting in DOCX",
      () => office("docx", word("<w:sdt>".repeat(5_000) + "</w:sdt>".repeat(5_000))),
      {},
      "bound",
      "depth",
      /deeper than 512/,
    ],
    [
      "deep nesting in PPTX",
      () => slides('<p:sldId r:id="r1"/>', `<p:sld>${"<p:grpSp>".repeat(5_000)}</p:sld>`),
      {},
      "bound",
      "depth",
      /512/,
    ],
    [
      "a DOCX of millions of tags",
      () => office("docx", word(paragraph("x").repeat(200_000))),
      {},
      "bound",
      "markup",
      /1000000 tags of XML/,
    ],
    [
      "a DOCX that takes long",
      () => office("docx", word(paragraph("x").repeat(120_000))),
      { cpuMs: 1_500 },
      "bound",
      "time",
      /1500 ms/,
    ],
    [
      "a slide shown ten thousand times",
      () => slides('<p:sldId r:id="r1"/>'.repeat(10_000), SLIDE),
      {},
      "bound",
      "pages",
      /10000 slides/,
    ],
    [
      "a workbook of two million cells",
      () =>
        workbook(
          sheetOf(
            Array.from({ length: 20_000 }, (_, r) => `<row r="${r + 1}">${"<c><v>1</v></c>".repeat(100)}</row>`).join(
              "",
            ),
          ),
        ),
      {},
      "bound",
      "(cells|time|memory)",
      /more than/,
    ],
    [
      "a workbook too large to unpack",
      () => workbook(Buffer.alloc(150 * MIB, "<row/>")),
      {},
      "bound",
      "unpacked",
      /134217728/,
    ],
    ["an encrypted Office document", encrypted, {}, "unreadable", null, /locked with a password/],
    [
      "a ZIP file locked with a password",
      () => office("docx", word(paragraph("x")), [], { flags: 1 }),
      {},
      "unreadable",
      null,
      /locked with a password/,
    ],
    [
      "an Office document of before 2007",
      () => Buffer.concat([Buffer.from("d0cf11e0a1b11ae1", "hex"), Buffer.alloc(2_000)]),
      {},
      "kind",
      null,
      /before 2007/,
    ],
    ["a ZIP file of other things", () => zipOf([{ name: "a.txt", body: "hello" }]), {}, "kind", null, /but a ZIP file/],
    [
      "an OpenDocument text",
      () => zipOf([{ name: "mimetype", body: "application/vnd.oasis.opendocument.text" }]),
      {},
      "kind",
      null,
      /but an OpenDocument file/,
    ],
    [
      "a ZIP file cut short",
      () => office("docx", word(paragraph("x"))).subarray(0, 300),
      {},
      "unreadable",
      null,
      /no ZIP file/,
    ],
    [
      "a DOCX without its main part",
      () =>
        zipOf([
          {
            name: "[Content_Types].xml",
            body: `<Types><Override ContentType="${MAIN.docx.type}" PartName="/x"/></Types>`,
          },
        ]),
      {},
      "unreadable",
      null,
      /./,
    ],
    ["an RTF document", () => Buffer.from("{\\rtf1 hello}"), {}, "kind", null, /RTF/],
    ["a packed file", () => gzipSync("hello"), {}, "kind", null, /gzip/],
    [
      "a picture of 900 million pixels",
      () => pngOf(30_000, 30_000),
      {},
      "(bound|unreadable)",
      null,
      /memory|decoded|no text/,
    ],
    [
      "a picture cut short",
      () => pngOf(500, 500).subarray(0, 60),
      {},
      "unreadable",
      null,
      /picture that can be decoded|no text/,
    ],
    ["a picture of nothing", () => pngOf(600, 400), {}, "unreadable", null, /no text was recognised/],
    [
      "a binary file",
      () => Buffer.from([1, 2, 3, 0, 255, 254, 7]),
      {},
      "kind",
      null,
      /not a document of a kind that is read here$/,
    ],
  ])("%s", async (_, bytes, limits, why, bound, says) => {
    const told = await fault(bytes(), limits);
    expect(told[0]).toMatch(new RegExp(`^${why}$`));
    if (why !== "(bound|unreadable)") expect(String(told[1])).toMatch(new RegExp(`^${bound}$`));
    expect(told[2]).toMatch(says);
  });

  test("a merged cell over a whole sheet fills what is used, and cells are few", async () => {
    const merged = `<mergeCells><mergeCell ref="A1:XFD1048576"/></mergeCells>`;
    const bytes = workbook(
      sheetOf(`<row r="1">${cell("A1", "all")}</row><row r="3">${cell("C3", "in")}</row>`, merged),
    );
    const said = await extractor.read({ bytes, kinds: DOCUMENT_KINDS });
    expect(said.tables[0]!.rows.flat().length).toBeLessThan(20);
  });

  test("spans of a table in HTML cannot make it larger than a table may be", async () => {
    const bytes = Buffer.from(
      `<table>${`<tr>${'<td colspan="1000" rowspan="65534">x</td>'.repeat(50)}</tr>`.repeat(200)}</table>`,
    );
    const said = await extractor.read({ bytes, kinds: ["html"] });
    expect(said.tables.flatMap(({ rows }) => rows.flat()).length).toBeLessThanOrEqual(50_000);
    expect(said.cut).toContain("tables");
  });

  test("a name of a prototype in a workbook and in Markdown is a name like any other", async () => {
    const bytes = workbook(sheetOf(`<row r="1">${cell("A1", "__proto__")}${cell("B1", "constructor")}</row>`));
    expect((await extractor.read({ bytes, kinds: DOCUMENT_KINDS })).text).toContain("__proto__\tconstructor");
    const md = await extractor.read({
      bytes: Buffer.from("---\n__proto__: x\n---\n# __proto__\n"),
      kinds: DOCUMENT_KINDS,
      type: "text/markdown",
    });
    expect(md.headings.map(({ text }) => text)).toEqual(["proto"]);
  });

  test("what takes long takes the processor of the child and not of this thread, and the next document is read", async () => {
    const long = office("docx", word(paragraph("x").repeat(120_000)));
    const before = processorMs("own");
    expect((await fault(long, { cpuMs: 1_500 }))[1]).toBe("time");
    expect(processorMs("own") - before).toBeLessThan(1_000);
    const bytes = office("docx", word(paragraph("still here")));
    expect((await extractor.read({ bytes, kinds: DOCUMENT_KINDS })).text).toBe("still here");
  });
});

describe("what a document is said to be, against what it is", () => {
  const report = readFileSync(`${FOLDER}/docx/pandoc-german.docx`);
  const ask = (bytes: string | Buffer, type?: string, url?: string) =>
    extractor.read({ bytes: Buffer.from(bytes as string), kinds: DOCUMENT_KINDS, type, ...(url ? { url } : {}) });

  test.each<[string, string | Buffer, string | undefined, string | undefined, string, string | null]>([
    ["a DOCX sent as bytes of any kind", report, "application/octet-stream", undefined, "docx", null],
    [
      "a DOCX said to be a PDF",
      report,
      "application/pdf",
      undefined,
      "docx",
      "declared as application/pdf, and read as docx",
    ],
    [
      "a DOCX said to be a workbook",
      report,
      `${TYPES}.spreadsheetml.sheet`,
      undefined,
      "docx",
      `declared as ${TYPES}.spreadsheetml.sheet, and read as docx`,
    ],
    [
      "a page said to be a workbook",
      "<!doctype html><p>Please log in",
      `${TYPES}.spreadsheetml.sheet`,
      undefined,
      "html",
      `declared as ${TYPES}.spreadsheetml.sheet, and read as html`,
    ],
    [
      "a page said to be CSV",
      "<!doctype html><p>Not found",
      "text/csv",
      undefined,
      "html",
      "declared as text/csv, and read as html",
    ],
    ["a table by its type", "a,b\n1,2", "text/csv; charset=utf-8", undefined, "csv", null],
    ["a table by its name", "a,b\n1,2", "text/plain", "https://a.example/x/t.CSV?raw=1", "csv", null],
    ["a table by nothing", "a,b\n1,2", undefined, undefined, "text", null],
    ["Markdown by its type", "<p align=center>*x*</p>", "text/markdown", undefined, "markdown", null],
    ["Markdown by its name", "# x", "text/plain; charset=utf-8", "https://a.example/README.md", "markdown", null],
    ["a type that says more than a name", "# x", "text/html", "https://a.example/README.md", "html", null],
    ["JSON", '{"a":1}', "application/json", undefined, "text", null],
  ])("%s", async (_, bytes, type, url, kind, mismatch) => {
    const said = await ask(bytes, type, url);
    expect([said.kind, said.mismatch]).toEqual([kind, mismatch]);
  });

  test("text said to be a picture is refused, and so is a picture said to be text that is none", async () => {
    await expect(ask("just words", "image/png")).rejects.toThrow("but text, declared as image/png");
    await expect(ask(Buffer.from([0, 1, 2]), "text/plain")).rejects.toThrow(
      "not a document of a kind that is read here",
    );
  });

  test("whoever reads plain text only gets Markdown and CSV as it", async () => {
    const bytes = Buffer.from("# a,b");
    for (const type of ["text/markdown", "text/csv"]) {
      expect(await extractor.read({ bytes, type, kinds: ["pdf", "html", "text"] })).toMatchObject({
        kind: "text",
        text: "# a,b",
      });
    }
  });
});
