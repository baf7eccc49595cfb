/** Detects the format of a document and decodes its text. */
import { clean, cutTo } from "./bounds.mjs";

/** Bytes that are examined, as in browsers (WHATWG MIME Sniffing, section 5.2). */
const HEAD_BYTES = 1_445;
/** Bytes in which `%PDF-` may begin, as PDF readers accept it; ISO 32000-1 requires it first. */
const PDF_HEAD_BYTES = 1_024;
const HTML_TAG =
  /^\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--|<!doctype html|<(?:html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|main|article|section|meta|ul|ol|link)[\s>])/i;
const TEXT_TYPE = /^(?:text\/|application\/(?:[\w.-]+\+)?(?:json|xml|yaml|javascript|x-ndjson)\b)/i;
const HTML_TYPE = /^(?:text\/html|application\/xhtml\+xml)\b/i;

/** Returns "pdf", "html", "text" or null, from the bytes and the declared media type. */
export function kindOf(bytes, type = "") {
  if (bytes.subarray(0, PDF_HEAD_BYTES).includes("%PDF-")) return "pdf";
  const head = bytes.subarray(0, HEAD_BYTES);
  const isSaidHtml = HTML_TYPE.test(type.trim());
  const wide = charsetOf(bytes, type).startsWith("utf-16");
  if (!wide && !isSaidHtml && head.includes(0)) return null;
  const text = wide ? new TextDecoder(charsetOf(bytes, type)).decode(head) : head.toString("latin1");
  if (isSaidHtml || HTML_TAG.test(text.replace(/^(?:\ufeff|\u00ef\u00bb\u00bf)/, ""))) return "html";
  return type === "" || TEXT_TYPE.test(type.trim()) ? "text" : null;
}

/** Returns the charset: of a byte order mark, else of the media type, else of a meta element, else UTF-8. */
function charsetOf(bytes, type) {
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return "utf-16be";
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return "utf-8";
  const head = bytes.toString("latin1", 0, PDF_HEAD_BYTES);
  const declared =
    /;\s*charset\s*=\s*"?([\w:.-]{1,40})/i.exec(type) ??
    /<meta[^>]{0,200}?charset\s*=\s*["']?([\w:.-]{1,40})/i.exec(head);
  return declared ? declared[1].toLowerCase() : "utf-8";
}

/** Decodes bytes. An unknown charset is read as UTF-8, and invalid bytes become U+FFFD. */
export function decoded(bytes, type = "") {
  try {
    return new TextDecoder(charsetOf(bytes, type)).decode(bytes);
  } catch {
    return new TextDecoder().decode(bytes);
  }
}

/** Extracts plain text. */
export function readText(text, { limits }) {
  const whole = clean(text).trim();
  const kept = cutTo(whole, limits.textChars);
  const none = { title: null, author: null, language: null, description: null, published: null, pages: null };
  return {
    part: "whole",
    metadata: none,
    text: kept,
    headings: [],
    tables: [],
    links: [],
    cut: kept.length < whole.length ? ["text"] : [],
  };
}
