import { type Offer, type PaymentDemand, readMppOffers, readOffer } from "../../pipelines/record/terms/offers.ts";
import {
  findDemandsInError,
  findDemandsInResult,
  readToolDemand,
  type ToolDemands,
} from "../../pipelines/record/terms/tools.ts";
import { type Demand, isMcpRequest, read402, readMcpAnswer, toolIn } from "./demands.ts";
import { type Decision, type Guard, PaymentRefused, unreadable } from "./guard.ts";
import type { Fetch } from "./http.ts";

/** Time in which the body of a 402 must have come, ms. */
const BODY_WITHIN_MS = 5000;

/** Asks the guard about a demand. A demand that could not be read whole is refused without asking. */
const judged = (guard: Guard, demand: Omit<Demand, "offers">, { offers, unread }: PaymentDemand): Promise<Decision> =>
  unread === null ? guard({ ...demand, offers }) : Promise.resolve(unreadable(unread));

export interface FetchOptions {
  /**
   * Which offers can the wallet above this fetch take? The guard is asked about these only. Default all. An offer whose
   * scheme or network cannot be read is never left out.
   */
  offers?: (offer: Offer) => boolean;
  /** Called with every decision, also those to pay: the place to keep the signed answer. */
  onDecision?: (decision: Decision, url: string) => void;
}

/** Is scheme or network of an offer unread? Then nobody can tell whether the wallet takes it. */
const isHidden = ({ unread = [] }: Offer): boolean =>
  unread.some((member) => member === "entry" || member === "scheme" || member === "network");

/**
 * A fetch that returns a 402 only if the guard allows the payment. Otherwise it returns a 403 with a problem document
 * (RFC 9457), so that no wallet above it sees terms to sign: `wrapFetchWithPayment(guardedFetch(guard), client)` of
 * `@x402/fetch`, `Mppx.create({ fetch: guardedFetch(guard), methods })` of mppx. It knows where the request went, about
 * which a 402 may lie. The guard is also asked about a 402 that answers a payment, since some clients pay that one too,
 * and about what an MCP server demands in its answer to a message.
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
    // The response's own address: after a redirect another host demands the payment.
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

/** The url by which the service knows a tool of an MCP server. */
const toolUrl = (server: string, tool: string): string => `${server.split("#", 1)[0]}#${encodeURIComponent(tool)}`;

/** The 403 that replaces a 402 that must not be paid. `refused_by` distinguishes it from a seller's own 403. */
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
  /**
   * Url of the request, where it is known. Default: the HTTP client's, else the one that the 402 names, which its
   * seller wrote.
   */
  url?: string;
  method?: string;
  onDecision?: (decision: Decision, url: string) => void;
}

/** What the official client passes to its hook before it signs: the 402, and the offer that it chose. */
interface PaymentCreation {
  paymentRequired: { x402Version: number; resource?: { url?: string } };
  selectedRequirements: object;
}

/** The part of `x402Client` of `@x402/core` that is used. */
interface HookedClient {
  onBeforePaymentCreation(
    hook: (context: PaymentCreation) => Promise<undefined | { abort: true; reason: string }>,
  ): unknown;
}

/** The part of its `x402HTTPClient` that is used. */
interface HookedHttpClient {
  onPaymentRequired(hook: (context: { paymentRequired: object; requestUrl: string }) => Promise<undefined>): unknown;
}

/**
 * Puts a guard in front of the official x402 client, in its hook before a payment is created: the chosen offer is known
 * then, and nothing is signed yet. A refusal stops the payment with an error that begins `Payment creation aborted:`.
 *
 * Pass the `x402HTTPClient` that `wrapFetchWithPayment` gets too: it knows which url answered 402. A bare `x402Client`
 * knows only the `resource` that the 402 names. A seller may name another seller's url there; then only the payee's
 * address shows it.
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
    const offer = readOffer(selectedRequirements, paymentRequired.x402Version === 1 ? 1 : 2);
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

/**
 * The payment client inside an HTTP client. It is private in the package's types, and there is no other way to reach
 * it.
 */
const clientOf = (http: HookedHttpClient): HookedClient => (http as unknown as { client: HookedClient }).client;

/** A challenge as mppx passes it to `onChallenge`. */
interface Challenge {
  method: string;
  intent?: string;
  expires?: string | undefined;
  request: unknown;
}

/** Marks a challenge that mppx made from an entry of x402's header; its request is that entry. */
const OF_X402 = Symbol.for("mppx.x402.challenge");

const offersIn = (challenge: Challenge): Offer[] =>
  (challenge as { [OF_X402]?: unknown })[OF_X402] ? [readOffer(challenge.request, 2)] : readMppOffers(challenge);

/**
 * A handler for `onChallenge` of `Mppx.create`, for one endpoint. Use {@link guardedFetch} where possible: it knows
 * each url. (Do not guard in a handler of `onChallengeReceived`: mppx ignores its errors, and pays.)
 * @throws PaymentRefused, through the fetch that made the request
 */
export const mppxChallenge =
  (guard: Guard, url: string, method?: string) =>
  async (challenge: Challenge): Promise<undefined> => {
    const decision = await guard({ url, method, offers: offersIn(challenge) });
    if (!decision.allow) throw new PaymentRefused(decision);
  };

/** The part of an MCP client that is used, whichever package it is from. */
interface ToolCaller {
  // biome-ignore lint/suspicious/noExplicitAny: results differ between packages and revisions of the protocol
  callTool(call: { name: string; [more: string]: unknown }, ...rest: any[]): Promise<any>;
}

/**
 * Wraps an MCP client whose tools demand payments. A demand may be in a tool's result (its structured content, a text,
 * a member of `_meta`) or in the JSON-RPC error that the client throws. If the guard refuses it, the caller gets an
 * error without terms, so a paying client above has nothing to sign. The service is asked about each tool as an
 * endpoint of its own, `server#tool`.
 * @param server url of the MCP server
 */
export function guardTools<C extends ToolCaller>(client: C, guard: Guard, server: string): Pick<C, "callTool"> {
  /** What replaces a refused demand; null where the demand is passed on, or there is none. */
  const refusal = async (tool: string, places: ToolDemands): Promise<object | null> => {
    const demanded = readToolDemand(places);
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
      const refused = await refusal(call.name, findDemandsInError((error as { data?: unknown } | null)?.data));
      if (refused === null) throw error;
      return refused;
    }
    return (await refusal(call.name, findDemandsInResult(result))) ?? result;
  };
  return { callTool } as Pick<C, "callTool">;
}
