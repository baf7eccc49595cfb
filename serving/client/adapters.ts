import { type Demanded, mppOffersOf, type Offer, offerOf } from "../../pipelines/record/terms/offers.ts";
import { demandedIn, inError, inResult, type Places } from "../../pipelines/record/terms/tools.ts";
import { type Demand, isMcpRequest, read402, readMcpAnswer, toolIn } from "./demands.ts";
import { type Decision, type Guard, PaymentRefused, unreadable } from "./guard.ts";
import type { Fetch } from "./http.ts";

/** What a 402 without its own answer in time is given for its body. */
const BODY_WITHIN_MS = 5000;

/** May this be paid? What was not read whole is refused, whatever the guard would say. */
const judged = (guard: Guard, demand: Omit<Demand, "offers">, { offers, unread }: Demanded): Promise<Decision> =>
  unread === null ? guard({ ...demand, offers }) : Promise.resolve(unreadable(unread));

export interface FetchOptions {
  /**
   * Offers that the wallet above may take; the others are not asked about. Default all. One whose scheme or network cannot
   * be read is never left out.
   */
  offers?: (offer: Offer) => boolean;
  /** Told of every decision, those to pay included: the place to keep the signed answer. */
  onDecision?: (decision: Decision, url: string) => void;
}

/** Nobody can tell by its scheme and network whether a wallet takes an offer that has none of them. */
const isHidden = ({ unread = [] }: Offer): boolean =>
  unread.some((member) => member === "entry" || member === "scheme" || member === "network");

/**
 * A fetch that hands a 402 on only if the guard lets it be paid, and else answers 403 with a problem document (RFC 9457) in
 * its place, so that no wallet above it ever sees terms to sign: `wrapFetchWithPayment(guardedFetch(guard), client)` of
 * `@x402/fetch`, `Mppx.create({ fetch: guardedFetch(guard), methods })` of mppx. It knows where the request went, which a
 * 402 may lie about. The 402 that answers a payment is asked about as well: some clients pay the next one. So is what an MCP
 * server demands in its answer to a message.
 * @param fetch default the runtime's own
 */
export function guardedFetch(
  guard: Guard,
  options: FetchOptions = {},
  fetch: Fetch = globalFetch,
): typeof globalThis.fetch {
  const { offers: takes = () => true, onDecision } = options;
  return async (input, init) => {
    const request = input instanceof Request ? input : null;
    const method = (init?.method ?? request?.method ?? "GET").toUpperCase();
    const isMcp = isMcpRequest(method, new Headers(init?.headers ?? request?.headers));
    const asked = request?.url ?? String(input);
    const response = await fetch(input, init);
    if (response.status !== 402 && !(isMcp && response.ok)) return response;
    // The response's own address: after a redirect another host asks for money.
    const url = response.url || asked;
    const isTool = response.status !== 402;
    const demanded = isTool ? await readMcpAnswer(response) : await read402(response, BODY_WITHIN_MS);
    if (isTool && demanded.offers.length === 0 && demanded.unread === null) return response;
    const offers = demanded.offers.filter((offer) => isHidden(offer) || takes(offer));
    const tool = isTool ? toolIn(init?.body) : null;
    const at = tool === null ? { url, method } : { url: toolUrl(url, tool) };
    const decision = await judged(guard, at, { ...demanded, offers });
    onDecision?.(decision, at.url);
    if (decision.allow) return response;
    response.body?.cancel().catch(() => {});
    return refusedResponse(decision, at.url);
  };
}

const globalFetch: Fetch = (input, init) => globalThis.fetch(input, init);

/** A tool of an MCP server, as the service is asked about it. */
const toolUrl = (server: string, tool: string): string => `${server.split("#", 1)[0]}#${encodeURIComponent(tool)}`;

/** The 403 that stands in the place of a 402 that is not paid. `refused_by` tells it from a seller's own 403. */
function refusedResponse({ outcome, reason, says, concerns, answer, fault }: Decision, url: string): Response {
  const problem = {
    type: "about:blank",
    title: outcome === "not_asked" ? "Payment not checked" : "Payment refused",
    status: 403,
    detail: says,
    instance: url,
    refused_by: "touchstone-client",
    ...{ outcome, reason, fault, concerns, answer },
  };
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store" };
  return new Response(JSON.stringify(problem), { status: 403, headers });
}

export interface HookOptions {
  /** Url of the request, where it is known: else the HTTP client's, else what the 402 names, which its seller wrote. */
  url?: string;
  method?: string;
  onDecision?: (decision: Decision, url: string) => void;
}

/** What the official client tells its hook before it signs: the 402, and the offer that it chose. */
interface PaymentCreation {
  paymentRequired: { x402Version: number; resource?: { url?: string } };
  selectedRequirements: object;
}

/** As much of `x402Client` of `@x402/core` as is needed. */
interface HookedClient {
  onBeforePaymentCreation(
    hook: (context: PaymentCreation) => Promise<undefined | { abort: true; reason: string }>,
  ): unknown;
}

/** As much of its `x402HTTPClient`. */
interface HookedHttpClient {
  onPaymentRequired(hook: (context: { paymentRequired: object; requestUrl: string }) => Promise<undefined>): unknown;
}

/**
 * Puts a guard in front of the official x402 client: in its hook before a payment is created, where the offer that it chose
 * is known and nothing is signed. A refusal stops the payment with an error that begins `Payment creation aborted:`.
 *
 * Pass the `x402HTTPClient` and give the same one to `wrapFetchWithPayment`: it knows which url answered 402. A bare
 * `x402Client` knows only the `resource` that the 402 names; a seller may name somebody else's there, and then only the
 * address that it pays gives it away.
 * @returns the client, for chaining
 */
export function guardClient<C extends HookedClient | HookedHttpClient>(
  client: C,
  guard: Guard,
  options: HookOptions = {},
): C {
  const asked = new WeakMap<object, string>();
  const hook = async ({ paymentRequired, selectedRequirements }: PaymentCreation) => {
    const v1 = (selectedRequirements as { resource?: unknown }).resource;
    const claimed = paymentRequired.resource?.url ?? (typeof v1 === "string" ? v1 : undefined);
    const url = options.url ?? asked.get(paymentRequired) ?? claimed;
    if (url === undefined)
      return { abort: true as const, reason: "not checked: the 402 does not say of which url it is" };
    const offer = offerOf(selectedRequirements, paymentRequired.x402Version === 1 ? 1 : 2);
    const decision = await guard({ url, method: options.method, offers: [offer] });
    options.onDecision?.(decision, url);
    return decision.allow ? undefined : { abort: true as const, reason: decision.says };
  };
  if (!("onPaymentRequired" in client)) {
    client.onBeforePaymentCreation(hook);
    return client;
  }
  client.onPaymentRequired(async ({ paymentRequired, requestUrl }) => {
    if (requestUrl) asked.set(paymentRequired, requestUrl);
    return undefined;
  });
  clientOf(client).onBeforePaymentCreation(hook);
  return client;
}

/** The payment client inside an HTTP client; it is private in the package's types, and has no other way in. */
const clientOf = (http: HookedHttpClient): HookedClient => (http as unknown as { client: HookedClient }).client;

/** As mppx hands it to `onChallenge`. */
interface Challenge {
  method: string;
  intent?: string;
  expires?: string | undefined;
  request: unknown;
}

/** How mppx marks a challenge that it made of an entry of x402's header: its request is that entry. */
const OF_X402 = Symbol.for("mppx.x402.challenge");

const offersIn = (challenge: Challenge): Offer[] =>
  (challenge as { [OF_X402]?: unknown })[OF_X402] ? [offerOf(challenge.request, 2)] : mppOffersOf(challenge);

/**
 * `onChallenge` of `Mppx.create`, for one endpoint. Where {@link guardedFetch} can be passed instead, pass that: it knows
 * each url. (Handlers of `onChallengeReceived` are no place for a guard: mppx drops what they throw, and pays.)
 * @throws PaymentRefused out of the fetch that asked
 */
export const mppxChallenge =
  (guard: Guard, url: string, method?: string) =>
  async (challenge: Challenge): Promise<undefined> => {
    const decision = await guard({ url, method, offers: offersIn(challenge) });
    if (!decision.allow) throw new PaymentRefused(decision);
  };

/** As much of an MCP client as is needed, whichever package it is of. */
interface ToolCaller {
  // biome-ignore lint/suspicious/noExplicitAny: results differ between packages and revisions of the protocol
  callTool(call: { name: string; [more: string]: unknown }, ...rest: any[]): Promise<any>;
}

/**
 * A guard around an MCP client whose tools ask for money, wherever a client above it may read that: in their result (its
 * structured content, a text, a member of `_meta`) or in the JSON-RPC error that the client throws. A demand that is refused
 * comes back as an error without terms, so whoever pays above it has nothing to sign. Each tool is asked about as an endpoint
 * of its own, `server#tool`.
 * @param server url of the MCP server
 */
export function guardTools<C extends ToolCaller>(client: C, guard: Guard, server: string): Pick<C, "callTool"> {
  /** What is handed on in the place of a demand; null where it is the demand itself, or where there is none. */
  const refusal = async (tool: string, places: Places): Promise<object | null> => {
    const demanded = demandedIn(places);
    if (demanded.offers.length === 0 && demanded.unread === null) return null;
    const decision = await judged(guard, { url: toolUrl(server, tool) }, demanded);
    if (decision.allow) return null;
    return { isError: true, content: [{ type: "text", text: `Payment refused: ${decision.says}` }] };
  };
  const callTool: ToolCaller["callTool"] = async (call, ...rest) => {
    let result: unknown;
    try {
      result = await client.callTool(call, ...rest);
    } catch (error) {
      const refused = await refusal(call.name, inError((error as { data?: unknown } | null)?.data));
      if (refused === null) throw error;
      return refused;
    }
    return (await refusal(call.name, inResult(result))) ?? result;
  };
  return { callTool } as Pick<C, "callTool">;
}
