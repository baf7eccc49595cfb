/**
 * The child of extractor.ts: one document in on stdin, what was read of it out on stdout, and an end. It holds no secret, no
 * environment, no network and no file but its own code; whoever began it watches its memory and time and kills it.
 *
 * In: a line of JSON (what is asked, and the limits) and then the bytes. Out: `{ok: true, value}`, or `{ok: false, why, bound,
 * says}` where why is bound, unreadable or kind.
 */
import { PastBound, Unreadable } from "./bounds.mjs";
import { decoded, kindOf, readText } from "./kinds.mjs";

const NEWLINE = 0x0a;

async function input() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const all = Buffer.concat(chunks);
  const end = all.indexOf(NEWLINE);
  return { asked: JSON.parse(all.toString("utf8", 0, end)), bytes: all.subarray(end + 1) };
}

/** The parser of one kind is loaded only for a document of that kind: half of what a child takes is loading. */
async function read(asked, bytes) {
  const kind = kindOf(bytes, asked.type);
  if (kind === null || !asked.kinds.includes(kind)) {
    return { ok: false, why: "kind", says: `it is not ${asked.kinds.join(" or ")}${kind ? ` but ${kind}` : ""}` };
  }
  if (kind === "pdf") {
    const { readPdf } = await import("./pdf.mjs");
    return { ok: true, value: { kind, ...(await readPdf(bytes, asked)) } };
  }
  const text = decoded(bytes, asked.type);
  if (kind === "html") {
    const { readHtml } = await import("./html.mjs");
    return { ok: true, value: { kind, ...readHtml(text, asked) } };
  }
  return { ok: true, value: { kind, ...readText(text, asked) } };
}

function faultOf(error) {
  if (error instanceof PastBound) return { ok: false, why: "bound", bound: error.bound, says: error.message };
  const says = error instanceof Unreadable ? error.message : `the reader stumbled: ${String(error).slice(0, 200)}`;
  return { ok: false, why: "unreadable", says };
}

let isSaid = false;

/** The one answer, and the end. A fault that is heard of later belongs to work that nobody waits for. */
function say(answer) {
  if (isSaid) return;
  isSaid = true;
  process.stdout.write(JSON.stringify(answer), () => process.exit(0));
}

for (const event of ["uncaughtException", "unhandledRejection"]) process.on(event, (error) => say(faultOf(error)));
const { asked, bytes } = await input();
say(await read(asked, bytes).catch(faultOf));
