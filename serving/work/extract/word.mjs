/**
 * Extracts DOCX: mammoth converts it to HTML by its styles, which is then read. Running headers and pictures are left
 * out.
 */
import { readHtml } from "./html.mjs";
import { openPackage } from "./package.mjs";

/** Parts that mammoth parses: all are checked before. */
const PARSED = /^(?:\[Content_Types\]\.xml|_rels\/\.rels|word\/(?:_rels\/)?\w+\.xml(?:\.rels)?)$/;
const STYLES = ["p[style-name='Title'] => h1:fresh", "p[style-name='Subtitle'] => p:fresh"];
/** Matches the arrow behind a footnote or endnote, a link back to its place in the text. */
const BACK = / ?<a href="#(?:foot|end)note-ref-[\w-]{1,40}">↑<\/a>/g;

/**
 * Lets mammoth derive its promises from those of the language by assigning `__proto__`, which the flags of this process
 * forbid. Any other prototype is refused, and none can be read.
 */
function allowPromises() {
  const isOfPromise = (value) => value === Promise || value === Promise.prototype || value instanceof Promise;
  Object.defineProperty(Object.prototype, "__proto__", {
    configurable: false,
    get: undefined,
    set(value) {
      if (!isOfPromise(value)) throw new TypeError("no prototype but that of a promise may be assigned");
      Object.setPrototypeOf(this, value);
    },
  });
}

/**
 * Extracts a DOCX.
 * @param {Buffer} bytes
 * @throws PastBound, Unreadable
 */
export async function readWord(bytes, asked) {
  const pack = await openPackage(bytes, asked.limits);
  for (const name of pack.names()) if (PARSED.test(name)) await pack.text(name);
  allowPromises();
  const { default: mammoth } = await import("mammoth");
  const { value } = await mammoth.convertToHtml(
    { buffer: bytes },
    { styleMap: STYLES, convertImage: () => [], externalFileAccess: false },
  );
  const read = readHtml(`<html><body>${value.replace(BACK, "")}</body></html>`, { ...asked, part: "whole" });
  return { ...read, metadata: await pack.metadata() };
}
