/** Detects the format of a document, from its bytes and what it is declared as, and decodes its text. */
import { charsetOf, clean, cutTo, NO_METADATA, Unreadable } from "./bounds.mjs";

/** Bytes that are examined, as in browsers (WHATWG MIME Sniffing, section 5.2). */
const HEAD_BYTES = 1_445;
/** Bytes in which `%PDF-` may begin, as PDF readers accept it; ISO 32000-1 requires it first. */
const PDF_HEAD_BYTES = 1_024;
const HTML_TAG =
  /^\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--|<!doctype html|<(?:html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|main|article|section|meta|ul|ol|link)[\s>])/i;
/** The beginning of a whole page, as opposed to a piece of HTML with which a Markdown text may begin. */
const HTML_PAGE = /^\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!doctype html|<html[\s>])/i;
const TEXT_TYPE = /^(?:text\/|application\/(?:[\w.-]+\+)?(?:json|xml|yaml|javascript|x-ndjson)\b)/i;
/** Types that say nothing about the kind. */
const VAGUE_TYPE = /^(?:|application\/(?:octet-stream|binary|x-download|force-download|zip)|binary\/octet-stream)$/;
/** Bytes that no text has (WHATWG MIME Sniffing, section 3). */
// biome-ignore lint/suspicious/noControlCharactersInRegex: those are what is looked for.
const BINARY = /[\0-\x08\x0b\x0e-\x1a\x1c-\x1f]/;

/** Media types and the kinds that they name. */
const TYPES = [
  ["pdf", /^application\/(?:x-)?pdf$/],
  ["html", /^(?:text\/html|application\/xhtml\+xml)$/],
  ["markdown", /^text\/(?:x-)?markdown$/],
  ["csv", /^(?:(?:text|application)\/csv|text\/(?:x-csv|tab-separated-values))$/],
  [
    "docx",
    /^application\/(?:vnd\.openxmlformats-officedocument\.wordprocessingml\.|vnd\.ms-word\.(?:document|template)\.)/,
  ],
  ["xlsx", /^application\/(?:vnd\.openxmlformats-officedocument\.spreadsheetml\.|vnd\.ms-excel\.(?:sheet|template)\.)/],
  ["pptx", /^application\/(?:vnd\.openxmlformats-officedocument\.presentationml\.|vnd\.ms-powerpoint\.)/],
  ["image", /^image\/(?!svg)/],
];
/** Extensions that tell kinds of text apart, where the type does not. */
const NAMES = [
  ["markdown", /\.(?:md|markdown|mdown)$/i],
  ["csv", /\.(?:csv|tsv|tab)$/i],
];

const starts = (bytes, at, text) => bytes.toString("latin1", at, at + text.length) === text;

/** Signatures: of kinds that are read, of containers that are examined further, and of formats that are refused. */
const SIGNATURES = [
  ["image", (b) => starts(b, 0, "\x89PNG\r\n\x1a\n") || starts(b, 0, "\xff\xd8\xff") || starts(b, 0, "GIF8")],
  [
    "image",
    (b) => starts(b, 0, "II*\0") || starts(b, 0, "MM\0*") || (starts(b, 0, "BM") && b.length > 54 && b[5] === 0),
  ],
  ["image", (b) => (starts(b, 0, "RIFF") && starts(b, 8, "WEBP")) || /^P[456]\s/.test(b.toString("latin1", 0, 3))],
  ["zip", (b) => starts(b, 0, "PK\x03\x04") || starts(b, 0, "PK\x05\x06")],
  ["compound", (b) => starts(b, 0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")],
  ["an RTF document", (b) => starts(b, 0, "{\\rtf")],
  ["a PostScript document", (b) => starts(b, 0, "%!PS")],
  ["a packed file (gzip)", (b) => starts(b, 0, "\x1f\x8b")],
  ["a packed file (7z or RAR)", (b) => starts(b, 0, "7z\xbc\xaf\x27\x1c") || starts(b, 0, "Rar!")],
  ["a picture or film of ISO 14496 (HEIC, AVIF, MP4)", (b) => starts(b, 4, "ftyp")],
];

/** The name of the stream that holds an encrypted Office document (MS-OFFCRYPTO section 2.3.4). */
const ENCRYPTED = Buffer.from("EncryptedPackage", "utf16le");

/** Names what a compound file holds. @throws Unreadable for an encrypted Office document */
function compound(bytes) {
  if (bytes.includes(ENCRYPTED)) throw new Unreadable("it is locked with a password");
  return { refused: "a binary Office document of before 2007 (.doc, .xls or .ppt)" };
}

/**
 * Returns what the bytes are by a signature: `{kind}`, `{refused}` with a name, or null.
 * @throws Unreadable, PastBound
 */
async function signed(bytes, limits) {
  if (bytes.subarray(0, PDF_HEAD_BYTES).includes("%PDF-")) return { kind: "pdf" };
  const name = SIGNATURES.find(([, has]) => has(bytes))?.[0];
  if (name === undefined) return null;
  if (name === "image") return { kind: "image" };
  if (name === "compound") return compound(bytes);
  if (name !== "zip") return { refused: name };
  const { kindOfPackage } = await import("./package.mjs");
  return kindOfPackage(bytes, limits);
}

const mediaType = (type) => type.split(";", 1)[0].trim().toLowerCase();

/** Returns the kind that a declared type names: one of ours, "text", "other", or null if it says nothing. */
function declaredKind(type) {
  const media = mediaType(type);
  if (VAGUE_TYPE.test(media)) return null;
  return TYPES.find(([, names]) => names.test(media))?.[0] ?? (TEXT_TYPE.test(media) ? "text" : "other");
}

function namedKind(url) {
  let path = "";
  try {
    path = new URL(url).pathname;
  } catch {
    // There is no address, or none that names anything.
  }
  return NAMES.find(([, ends]) => ends.test(path))?.[0] ?? null;
}

/** Returns the kind of a document without signature, or null. */
function textualKind(bytes, type, said, url) {
  const head = bytes.subarray(0, HEAD_BYTES);
  const charset = charsetOf(bytes, type);
  const wide = charset.startsWith("utf-16");
  const text = (wide ? new TextDecoder(charset).decode(head) : head.toString("latin1")).replace(/^(?:\ufeff|ï»¿)/, "");
  if (said === "html") return "html";
  if (!wide && BINARY.test(text)) return null;
  const marked =
    said === "markdown" || said === "csv" ? said : said === null || said === "text" ? namedKind(url) : null;
  if ((marked ? HTML_PAGE : HTML_TAG).test(text)) return "html";
  if (marked) return marked;
  return said === null || said === "text" ? "text" : null;
}

/**
 * Detects the kind of a document. A signature of the bytes decides; bytes of text are of the kind that their type says,
 * or their name if the type does not tell kinds of text apart. Markdown or CSV that is not accepted counts as "text" if
 * that is accepted.
 * @param {{type?: string, url: string | null, kinds: string[], limits: object}} asked
 * @returns {{kind: string, mismatch: string | null} | {refused: string}} `refused` says what it is instead
 * @throws Unreadable, PastBound
 */
export async function kindOf(bytes, { type = "", url, kinds, limits }) {
  const said = declaredKind(type);
  const found = await signed(bytes, limits);
  if (found?.refused) return found;
  let kind = found?.kind ?? textualKind(bytes, type, said, url);
  const media = mediaType(type).slice(0, 100);
  if (kind === null)
    return {
      refused: said === null || BINARY.test(bytes.toString("latin1", 0, 64)) ? "" : `text, declared as ${media}`,
    };
  const isKin = said === "text" && ["markdown", "csv"].includes(kind);
  const mismatch = said === null || said === kind || isKin ? null : `declared as ${media}, and read as ${kind}`;
  if (["markdown", "csv"].includes(kind) && !kinds.includes(kind) && kinds.includes("text")) kind = "text";
  return kinds.includes(kind) ? { kind, mismatch } : { refused: kind };
}

/** Extracts plain text. @throws Unreadable */
export function readText(text, { limits }) {
  const whole = clean(text).trim();
  if (whole === "") throw new Unreadable("there is no text in it");
  const kept = cutTo(whole, limits.textChars);
  return {
    part: "whole",
    metadata: NO_METADATA,
    text: kept,
    headings: [],
    tables: [],
    links: [],
    cut: kept.length < whole.length ? ["text"] : [],
  };
}
