import { signObject } from "../../infra/keys/signer.ts";
import { capOf, cardOf } from "../helpers/public-record.ts";
import { SIGNERS } from "../pipelines/4-publish/world.ts";

/**
 * What a large record says of endpoint i, as RFC 8785 text. Everything here is ASCII and its members are written down in
 * order, so that JSON.stringify prints just that: a million endpoints take minutes and not an hour. record-data.ts holds
 * some of them against the record's own canonicalizer.
 */

export const AT = "2026-11-21T12:00:00.000Z";
export const specOf = (i: number) => ({ url: `https://seller${i % 9_973}.example/api/v1/resource/${i}` });
/** Says nothing; as long as a digest. */
export const hashOf = (i: number): string =>
  (Math.imul(i + 1, 2_654_435_761) >>> 0).toString(16).padStart(8, "0").repeat(8);

const share = (i: number, at: number): number => Number(((hashOf(i * 7 + at).charCodeAt(at % 8) % 97) / 97).toFixed(6));

/** Members by name, as RFC 8785 orders them. */
const sorted = <T extends object>(object: T): T =>
  Object.fromEntries(Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1))) as T;

const PLAIN = cardOf(specOf(0));
const SIGNED = { canonicalization: "RFC8785", signing_key_id: SIGNERS.cards.kid, signature: "" };
const SHAPE = sorted({ ...PLAIN, ...SIGNED, weights_applied: sorted(PLAIN.weights_applied) });
const COMPONENTS = Object.entries(sorted(PLAIN.components!)).map(([name, one]) => [name, sorted(one)] as const);
const ORDER = Object.keys(PLAIN.components!);

/** What varies from card to card, as in real ones, so that these pack as those do. */
function varying(i: number, capability_id: string) {
  const components: Record<string, object> = {};
  for (const [name, one] of COMPONENTS) {
    const at = ORDER.indexOf(name);
    components[name] = { ...one, point: share(i, at), n_eff: 30 + share(i, at + 9) };
  }
  return {
    capability_id,
    components,
    composite: share(i, 20),
    sample_count: 30 + (i % 400),
    evidence_sample: [hashOf(i), hashOf(i + 1), hashOf(i + 2)],
  };
}

/** A card before its signature, in any order. */
export const plainCard = (i: number): object => ({ ...PLAIN, ...varying(i, capOf(specOf(i))) });

/** The signed card: Ed25519 over all but the signature. */
function cardText(i: number, capability_id: string): string {
  const card = { ...SHAPE, ...varying(i, capability_id) };
  const bytes = JSON.stringify({ ...card, signature: undefined });
  const signature = Buffer.from(SIGNERS.cards.sign(Buffer.from(bytes))).toString("base64url");
  return JSON.stringify({ ...card, signature });
}

/** Listing, card and index line of one endpoint. */
export interface EndpointText {
  url: string;
  capability_id: string;
  listing: (index: number, seq: number) => string;
  grade: (index: number, seq: number) => string;
  line: (leaf: number) => string;
}

export function endpointText(i: number): EndpointText {
  const { url } = specOf(i);
  const capability_id = capOf({ url });
  const card = cardText(i, capability_id);
  const description = `resource ${i} of a seller`;
  const why = `B: ${30 + (i % 400)} paid calls.`;
  const inputs = {
    digest: hashOf(i),
    kin: hashOf(1),
    positions: { "observations.free": i, "observations.paid": i },
  };
  return {
    url,
    capability_id,
    listing: (index, seq) =>
      JSON.stringify({
        ...{ at: AT, capability_id, class: "any", defects: [], description, index, kind: "listing", method: "GET" },
        ...{ seller_controlled: true, seq, tool: null, url },
      }),
    grade: (index, seq) =>
      `{"at":"${AT}","card":${card},"day":"2026-11-21","headline":true,"index":${index},"inputs":${JSON.stringify(inputs)},` +
      `"kind":"grade","raw_band":"B","seq":${seq},"why":"${why}"}`,
    line: (leaf) =>
      `{"band":"B","capability_id":"${capability_id}","card":${card},"class":"any","defects":[],"description":"${description}",` +
      `"leaf":${leaf},"method":"GET","sample_count":${30 + (i % 400)},"tier":"OUTCOME_VERIFIED","tool":null,"url":"${url}","why":"${why}"}`,
  };
}

/** The same card by the record's own way, to hold the text against. */
export const signedCard = (i: number) => signObject(SIGNERS.cards, plainCard(i));
