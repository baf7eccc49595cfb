/**
 * The child process of extractor.ts: reads one document from stdin, writes the result to stdout and exits. It has no
 * secrets, environment or network, and reads no file but its own code. Its parent measures its memory and time and kills
 * it when it exceeds a limit.
 *
 * Input: a line of JSON (the request and the limits), then the document's bytes. Output: `{ok: true, value}`, or
 * `{ok: false, why, bound, says}` where `why` is bound, unreadable or kind.
 */
import { decoded, PastBound, Unreadable } from "./bounds.mjs";
import { kindOf, readText } from "./kinds.mjs";

const NEWLINE = 0x0a;

async function input() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const all = Buffer.concat(chunks);
  const end = all.indexOf(NEWLINE);
  return { asked: JSON.parse(all.toString("utf8", 0, end)), bytes: all.subarray(end + 1) };
}

/** Readers of the kinds. Parsers are loaded when needed, since loading takes half of a child's time. */
const READERS = {
  pdf: async (bytes, asked) => (await import("./pdf.mjs")).readPdf(bytes, asked),
  html: async (bytes, asked) => (await import("./html.mjs")).readHtml(decoded(bytes, asked.type), asked),
  markdown: async (bytes, asked) => (await import("./markdown.mjs")).readMarkdown(decoded(bytes, asked.type), asked),
  text: async (bytes, asked) => readText(decoded(bytes, asked.type), asked),
  csv: async (bytes, asked) => (await import("./sheets.mjs")).readCsv(decoded(bytes, asked.type), asked),
  docx: async (bytes, asked) => (await import("./word.mjs")).readWord(bytes, asked),
  xlsx: async (bytes, asked) => (await import("./sheets.mjs")).readWorkbook(bytes, asked),
  pptx: async (bytes, asked) => (await import("./slides.mjs")).readSlides(bytes, asked),
  image: async (bytes, asked) => (await import("./ocr.mjs")).readImage(bytes, asked),
};

/** Extracts a document. */
async function read(asked, bytes) {
  const { kind, mismatch, refused } = await kindOf(bytes, asked);
  if (kind === undefined) {
    return { ok: false, why: "kind", says: `it is not ${listed(asked.kinds)}${refused ? ` but ${refused}` : ""}` };
  }
  return { ok: true, value: { kind, mismatch, recognised: null, ...(await READERS[kind](bytes, asked)) } };
}

const listed = (kinds) => (kinds.length > 4 ? "a document of a kind that is read here" : kinds.join(" or "));

function faultOf(error) {
  if (error instanceof PastBound) return { ok: false, why: "bound", bound: error.bound, says: error.message };
  const says = error instanceof Unreadable ? error.message : `the reader failed: ${String(error).slice(0, 200)}`;
  return { ok: false, why: "unreadable", says };
}

let isSaid = false;

/** Writes the answer and exits. Later errors come from work that is no longer needed and are ignored. */
function say(answer) {
  if (isSaid) return;
  isSaid = true;
  process.stdout.write(JSON.stringify(answer), () => process.exit(0));
}

for (const event of ["uncaughtException", "unhandledRejection"]) process.on(event, (error) => say(faultOf(error)));
const { asked, bytes } = await input();
say(await read(asked, bytes).catch(faultOf));
