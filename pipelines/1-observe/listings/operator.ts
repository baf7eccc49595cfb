import type { Clock } from "../../../infra/clock.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { get, parseJson } from "../json.ts";
import type { Intake, IntakeReport } from "../listings.ts";
import { originOf } from "../places.ts";
import { readText } from "./documents.ts";
import { isSellerPath, textOf } from "./seller.ts";

/** Longest file that is read, bytes. */
export const MAX_FILE = 64 * 1024 * 1024;

/** A file or an answer that is none of the forms. */
export class ListingsUnreadable extends Error {
  override readonly name = "ListingsUnreadable";
}
/** The address does not answer with a document. */
export class ListingsUnreachable extends Error {
  override readonly name = "ListingsUnreachable";
}

export interface Handed extends IntakeReport {
  /** What the document was taken for. */
  form: string;
  /** Name of the source in the record. */
  source: string;
}

const isCatalogue = (url: string, document: unknown): boolean =>
  /\/discovery\/resources\/?$/.test(new URL(url).pathname) || typeof get(document, "pagination") === "object";

/**
 * Takes in a file that an operator hands in. It adds: what an earlier file of this name had and this one has not stays.
 * @throws ListingsUnreadable when the bytes are no text; NotRecorded
 */
export async function takeFile(intake: Intake, name: string, bytes: Uint8Array, clock: Clock): Promise<Handed> {
  if (bytes.length > MAX_FILE) throw new ListingsUnreadable(`${name} is longer than ${MAX_FILE} bytes: split it`);
  const text = textOf(bytes);
  if (text === null) throw new ListingsUnreadable(`${name} is not text in UTF-8`);
  const listed = readText(text);
  const source = `operator:${name}`;
  return {
    form: listed.form,
    source,
    ...(await intake.take({ ...listed, whole: false }, { name: source, byHand: true, signedRows: true }, clock)),
  };
}

/**
 * Takes in what stands at an address: a seller's own document (its own urls are then under its control), a Bazaar
 * catalogue, which is paged until it is stable, or any other document as a third party's word.
 * @throws ListingsUnreachable, ListingsUnreadable, NotRecorded
 */
export async function takeUrl(intake: Intake, egress: Egress, url: string, clock: Clock): Promise<Handed> {
  const result = await egress.fetch({
    url,
    method: "GET",
    headers: { accept: "application/json, */*;q=0.5" },
    profile: "evidence",
  });
  if (result.outcome !== "answered") throw new ListingsUnreachable(`${url}: ${result.says}`);
  if (result.status !== 200) throw new ListingsUnreachable(`${url}: status ${result.status}`);
  const text = textOf(result.body);
  if (text === null) throw new ListingsUnreadable(`${url} is not text in UTF-8`);
  if (isCatalogue(url, parseJson(text))) {
    const catalogue = new URL(url);
    catalogue.search = "";
    return { form: "catalogue", source: catalogue.href, ...(await intake.readCatalogue(catalogue.href, clock, true)) };
  }
  const listed = readText(text);
  // After a redirect it is no longer the named origin that speaks.
  const own = isSellerPath(url) && (result.url === "" || originOf(result.url) === originOf(url));
  const source = {
    name: url,
    byHand: true,
    ...(own ? { ownOrigin: originOf(url) } : { base: listed.base ?? originOf(url) }),
  };
  return { form: listed.form, source: url, ...(await intake.take(listed, source, clock)) };
}
