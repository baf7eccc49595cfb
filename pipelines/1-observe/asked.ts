import type { Clock } from "../../infra/clock.ts";
import type { BodyOf, Claims } from "../record/bodies.ts";
import { capId, plannedSlot } from "../record/ids.ts";
import type { ListedCap } from "../record/memory.ts";
import { blockOf, blockStart } from "../record/time.ts";
import type { METHODS } from "../record/vocabulary.ts";
import { HANDSHAKE_OF, requestOf, type Tools } from "./call.ts";
import type { ListedClaim } from "./claims.ts";
import { type Knock, type KnockTools, knock } from "./handshake.ts";
import { originOf, samePlace } from "./places.ts";
import { draft } from "./recorder.ts";

export interface AskReport {
  /** Capabilities that were knocked at, and what each answered. */
  knocked: { cap: string; state: Knock["body"]["state"] }[];
  /** Records of listings that were new. */
  listings: number;
}

const blank = (url: string, method: Claims["method"]): Claims => ({
  url,
  method,
  tool: null,
  description: null,
  class: "any",
  offers: [],
  fixed_price: false,
  example: null,
  output_mime: null,
});

export function asListed(cap: string, url: string, method: string, claims: Claims, own: boolean): ListedCap {
  return {
    cap,
    url,
    method,
    tool: null,
    claims,
    sellerListing: null,
    standing: [],
    sellerClaims: own ? claims : null,
    firstSeen: null,
    paidBlocks: 0,
    retest: { failing: false, passes: 0 },
    lastPrice: null,
    lastPayTo: null,
  };
}

/** What the seller's own file says of the asked place, verb aside where none was asked. */
function listedTargets(ask: BodyOf<"ask">, claims: readonly ListedClaim[]): ListedCap[] {
  const fits = ({ body }: ListedClaim): boolean =>
    body.seller_controlled &&
    body.claims.tool === null &&
    samePlace(body.normalised_url, ask.normalised_url) &&
    (ask.method === null || body.claims.method === null || body.claims.method === ask.method);
  return claims.filter(fits).map(({ cap, body }) => {
    const method = body.claims.method ?? ask.method ?? "GET";
    // A template is known under its own id, and knocked at where the asker found it.
    return asListed(cap, ask.normalised_url, method, body.claims, true);
  });
}

/** What a knock outside every plan needs. */
export type KnockOnce = KnockTools & Pick<Tools, "recorder" | "intake">;

/** Knocks once outside every plan and records it under the moment's slot; `eventId` is the handshake's. */
export async function knockAsked(tools: KnockOnce, one: ListedCap, clock: Clock): Promise<Knock & { eventId: string }> {
  const seen = await knock(tools, requestOf(one, null, null).request, one.sellerClaims, clock);
  const at = clock.now();
  const block = blockOf(at);
  const minute = Math.floor((at.getTime() - blockStart(block).getTime()) / 60_000);
  const slot = { block, minute };
  const [eventId] = await tools.recorder.append([
    draft({
      type: "handshake",
      cap: one.cap,
      slot: plannedSlot(block, minute),
      attempt: HANDSHAKE_OF.asked,
      at,
      // Nothing else in the capability's partition may say where it lives: the ask lies in its host's.
      body: { slot, planned: "asked", url: one.url, method: one.method as (typeof METHODS)[number], ...seen.body },
    }),
  ]);
  // What the seller lists itself needs no second listing; under a template's id this concrete url would be a wrong one.
  if (seen.read?.readable && !one.sellerClaims) {
    await tools.intake.note402(one.cap, one.url, one.method as Claims["method"], seen.read, clock);
  }
  return { ...seen, eventId: eventId! };
}

/** Listed places that one ask may knock at: verbs of one url. */
const MAX_TARGETS = 5;

/**
 * Looks at a url somebody asked for: reads the seller's own listing of that origin, then knocks once with the listed
 * verb and example. Without a listing: with the asked verb, else GET, and POST when GET is not served there.
 */
export async function lookAtAsked(tools: Tools, ask: BodyOf<"ask">, clock: Clock): Promise<AskReport> {
  const report: AskReport = { knocked: [], listings: 0 };
  const { normalised_url: url } = ask;
  if (!tools.egress.judge(url).ok) return report;
  const seller = await tools.intake.readSeller(originOf(url), clock);
  report.listings = seller.appended;
  const targets = listedTargets(ask, seller.claims).slice(0, MAX_TARGETS);
  if (targets.length === 0) {
    const method = ask.method ?? "GET";
    targets.push(asListed(ask.cap, url, method, blank(url, method), false));
  }
  for (const one of targets) {
    const seen = await knockAsked(tools, one, clock);
    report.knocked.push({ cap: one.cap, state: seen.body.state });
    const notGet = seen.body.status === 404 || seen.body.status === 405;
    if (ask.method !== null || one.sellerClaims || !notGet) continue;
    const post = asListed(capId("POST", url), url, "POST", blank(url, "POST"), false);
    const second = await knockAsked(tools, post, clock);
    report.knocked.push({ cap: post.cap, state: second.body.state });
  }
  return report;
}
