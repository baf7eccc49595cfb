import { canonicalText } from "../../infra/canonical-text.ts";
import { parseUrl } from "../../infra/url.ts";
import { METHODS } from "../../pipelines/record/vocabulary.ts";
import type { CheckAnswer } from "./answers.ts";

/** Crockford's base32, upper case: no I, L, O, U. */
const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/** Characters of an id: 130 bits. */
const CHARS = 26;

/**
 * Capability id (docs/design/records.md, Identity), with WebCrypto: cap_ and the first 130 bits of sha256 over the RFC 8785
 * text of ["1", method, url, tool], in Crockford's base32.
 */
export async function capabilityId(method: string, url: string, tool = ""): Promise<string> {
  const text = new TextEncoder().encode(canonicalText(["1", method, url, tool]));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
  const bits = Array.from(digest, (byte) => byte.toString(2).padStart(8, "0")).join("");
  const letters = Array.from({ length: CHARS }, (_, i) => ALPHABET[Number.parseInt(bits.slice(5 * i, 5 * i + 5), 2)]);
  return `cap_${letters.join("")}`;
}

/** The tool that a url names in its fragment; "" where it names none. */
function toolOf(url: string): string {
  const hash = parseUrl(url)?.hash.slice(1) ?? "";
  try {
    return decodeURIComponent(hash);
  } catch {
    return "";
  }
}

/**
 * Is this the answer for that method? An answer does not name its method, but the id of the endpoint that it is about is made
 * of one, so a signed answer about GET cannot stand in for one about POST. What is not in the record has no id, and an
 * endpoint that was asked about by its id has one method anyway. A tool of an MCP server is called by POST; its id is not
 * known where the question does not name it.
 */
export async function isOfMethod(answer: CheckAnswer, method: string): Promise<boolean> {
  const { matched, asked, url, capabilityId: id } = answer;
  if (matched === "none" || id === asked) return true;
  if (url === undefined || id === undefined) return false;
  if (id === (await capabilityId(method, url))) return true;
  if (method !== "POST") return false;
  if (id === (await capabilityId(method, url, toolOf(asked)))) return true;
  const others = await Promise.all(METHODS.map((other) => capabilityId(other, url)));
  return !others.includes(id);
}
