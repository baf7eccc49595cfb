import { canonicalText } from "../../infra/canonical-text.ts";
import { parseUrl } from "../../infra/url.ts";
import { METHODS } from "../../pipelines/record/vocabulary.ts";
import type { CheckAnswer } from "./answers.ts";

/** Crockford's base32, upper case: no I, L, O, U. */
const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/** Number of characters of an id, 5 bits each. */
const CHARS = 26;

/**
 * Computes a capability id (docs/design/records.md, Identity) with WebCrypto: cap_ and the first 130 bits of sha256
 * over the RFC 8785 text of ["1", method, url, tool], in Crockford's base32.
 */
export async function capabilityId(method: string, url: string, tool = ""): Promise<string> {
  const text = new TextEncoder().encode(canonicalText(["1", method, url, tool]));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
  const bits = Array.from(digest, (byte) => byte.toString(2).padStart(8, "0")).join("");
  const letters = Array.from({ length: CHARS }, (_, i) => ALPHABET[Number.parseInt(bits.slice(5 * i, 5 * i + 5), 2)]);
  return `cap_${letters.join("")}`;
}

/** Returns the tool that a url names in its fragment; "" if it names none. */
function toolOf(url: string): string {
  const hash = parseUrl(url)?.hash.slice(1) ?? "";
  try {
    return decodeURIComponent(hash);
  } catch {
    return "";
  }
}

/**
 * Is this answer about that HTTP method? A signed answer about GET must not pass as an answer about POST. If the url is
 * in the record, the answer has the endpoint's id, which must equal the hash of method and url. If the url is unknown,
 * the answer names the method that was asked about. If the question was an id, the answer passes, since an id belongs
 * to one method. A tool of an MCP server is called by POST. If the question does not name the tool, the tool's id
 * cannot be computed; then an answer about POST passes unless its id is that of the url without a tool and any method.
 */
export async function isOfMethod(answer: CheckAnswer, method: string): Promise<boolean> {
  const { matched, asked, url, capabilityId: id } = answer;
  if (matched === "none") return answer.method === method;
  if (id === asked) return true;
  if (url === undefined || id === undefined) return false;
  if (id === (await capabilityId(method, url))) return true;
  if (method !== "POST") return false;
  if (id === (await capabilityId(method, url, toolOf(asked)))) return true;
  const others = await Promise.all(METHODS.map((other) => capabilityId(other, url)));
  return !others.includes(id);
}
