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

/** Time limit for the body of a 402, ms. */
const BODY_TIMEOUT_MS = 5000;

/** Asks the guard about a demand. A demand that could not be read whole is refused without asking the guard. */
const judge = (guard: Guard, demand: Omit<Demand, "offers">, { offers, unread }: PaymentDemand): Promise<Decision> =>
  unread === null ? guard({ ...demand, offers }) : Promise.resolve(unreadable(unread));

export interface FetchOptions {
  /**
   * Selects the offers that the wallet above this fetch can pay. The guard judges these offers, and every offer whose
   * scheme or network cannot be read. Default: all offers.
   */
  offers?: (offer: Offer) => boolean;
  /** Called with every decision, whether it allows or refuses. Use it to store the signed answer. */
  onDecision?: (decision: Decision, url: string) => void;
}

/** Is the scheme or the network of an offer unreadable? Then it is not known whether the wallet can pay it. */
const isUnreadableOffer = ({ unread = [] }: Offer): boolean =>
  unread.some((member) => member === "entry" || member === "scheme" || member === "network");

/**
 * Returns a fetch that passes on a 402 only if the guard allows the payment. Otherwise it returns a 403 with a problem
 * document (RFC 9457), so that no wallet above it sees terms to sign: `wrapFetchWithPayment(guardedFetch(guard),
 * client)` of `@x402/fetch`, `Mppx.create({ fetch: guardedFetch(guard), methods })` of mppx. The guard judges the url
 * to which the request was sent, whatever url the 402 names. It also judges a 402 in answer to a payment, since some
 * clients pay that one too, and a demand in an MCP server's answer to a message.
 * @param fetch sends the requests; default: the runtime's fetch
 */
export function guardedFetch(
  guard: Guard,
  options: FetchOptions = {},
  fetch: Fetch = globalFetch,
): typeof globalThis.fetch {
  const { offers: isPayable = () => true, onDecision } = options;
  return async (input, init) => {
    const request = input instanceof Request ? input : null;
    const method = (init?.method ?? request?.method ?? "GET").toUpperCase();
    const isMcp = isMcpRequest(method, new Headers(init?.headers ?? request?.headers));
    const asked = request?.url ?? String(input);
    const response = await fetch(input, init);
    if (response.status !== 402 && !(isMcp && response.ok)) return response;
    // After a redirect the url of the response counts: its host demands the payment.
    const url = response.url || asked;
    const isTool = response.status !== 402;
    const demanded = isTool ? await readMcpAnswer(response) : await read402(response, BODY_TIMEOUT_MS);
    if (isTool && demanded.offers.length === 0 && demanded.unread === null) return response;
    const offers = demanded.offers.filter((offer) => isUnreadableOffer(offer) || isPayable(offer));
    const tool = isTool ? toolIn(init?.body) : null;
    const at = tool === null ? { url, method } : { url: toolUrl(url, tool) };
    const decision = await judge(guard, at, { ...demanded, offers });
    onDecision?.(decision, at.url);
    if (decision.allow) return response;
    response.body?.cancel().catch(() => {});
    return refusedResponse(decision, at.url);
  };
}

const globalFetch: Fetch = (input, init) => globalThis.fetch(input, init);

/** Returns the url of an MCP server's tool in the service's record. */
const toolUrl = (server: string, tool: string): string => `${server.split("#", 1)[0]}#${encodeURIComponent(tool)}`;

/** Returns the 403 that replaces a refused 402. `refused_by` distinguishes it from a 403 of the seller. */
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
   * Url of the request, if it is known. Default: the url that the HTTP client reports, else the one that the 402 names,
   * which the seller chose.
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

/** The part of `x402Client` of `@x402/core` that is used here. */
interface HookedClient {
  onBeforePaymentCreation(
    hook: (context: PaymentCreation) => Promise<undefined | { abort: true; reason: string }>,
  ): unknown;
}

/** The part of `x402HTTPClient` of `@x402/core` that is used here. */
interface HookedHttpClient {
  onPaymentRequired(hook: (context: { paymentRequired: object; requestUrl: string }) => Promise<undefined>): unknown;
}

/**
 * Adds a guard to the official x402 client, in the hook before a payment is created, when the offer is chosen and
 * nothing is signed yet. A refusal stops the payment with an error that begins `Payment creation aborted:`.
 *
 * Pass the same `x402HTTPClient` as to `wrapFetchWithPayment`, since it knows which url answered 402. An `x402Client`
 * knows only the `resource` that the 402 names. A seller may name another seller's url there, which only a difference
 * of the payee's address reveals.
 * @returns the client, for chaining
 */
export function guardClient<C extends HookedClient | HookedHttpClient>(
  client: C,
  guard: Guard,
  options: HookOptions = {},
): C {
  const urlOf = new WeakMap<object, string>();
  const hook = async ({ paymentRequired, selectedRequirements }: PaymentCreation) => {
    const v1 = (selectedRequirements as { resource?: unknown }).resource;
    const named = paymentRequired.resource?.url ?? (typeof v1 === "string" ? v1 : undefined);
    const url = options.url ?? urlOf.get(paymentRequired) ?? named;
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
    if (requestUrl) urlOf.set(paymentRequired, requestUrl);
    return undefined;
  });
  clientOf(client).onBeforePaymentCreation(hook);
  return client;
}

/**
 * Returns the payment client of an HTTP client. The member is private in the package's types, and nothing public
 * returns it.
 */
const clientOf = (http: HookedHttpClient): HookedClient => (http as unknown as { client: HookedClient }).client;

/** A challenge as mppx passes it to `onChallenge`. */
interface Challenge {
  method: string;
  intent?: string;
  expires?: string | undefined;
  request: unknown;
}

/** Marks a challenge that mppx made from an x402 offer; `request` of the challenge is that offer. */
const OF_X402 = Symbol.for("mppx.x402.challenge");

const offersIn = (challenge: Challenge): Offer[] =>
  (challenge as { [OF_X402]?: unknown })[OF_X402] ? [readOffer(challenge.request, 2)] : readMppOffers(challenge);

/**
 * Returns a handler for `onChallenge` of `Mppx.create`, for one endpoint. Prefer {@link guardedFetch}, which knows the
 * url of each request. (Do not guard in `onChallengeReceived`: mppx ignores the errors of that handler, and pays.)
 * @throws PaymentRefused from the handler, through the fetch that made the request
 */
export const mppxChallenge =
  (guard: Guard, url: string, method?: string) =>
  async (challenge: Challenge): Promise<undefined> => {
    const decision = await guard({ url, method, offers: offersIn(challenge) });
    if (!decision.allow) throw new PaymentRefused(decision);
  };

/** The part of an MCP client that is used here, of any package. */
interface ToolCaller {
  // biome-ignore lint/suspicious/noExplicitAny: results differ between packages and revisions of the protocol
  callTool(call: { name: string; [more: string]: unknown }, ...rest: any[]): Promise<any>;
}

/**
 * Wraps an MCP client whose tools demand payments. A demand may be in a tool's result (its structured content, a text,
 * a member of `_meta`) or in the JSON-RPC error that the client throws. If the guard refuses the demand, the caller
 * gets an error result without terms, so that a paying client above has nothing to sign. Each tool is checked as a
 * separate endpoint, `server#tool`.
 * @param server url of the MCP server
 */
export function guardTools<C extends ToolCaller>(client: C, guard: Guard, server: string): Pick<C, "callTool"> {
  /** Returns the result that replaces a refused demand; null if the guard allows the demand, or there is none. */
  const refusal = async (tool: string, places: ToolDemands): Promise<object | null> => {
    const demanded = readToolDemand(places);
    if (demanded.offers.length === 0 && demanded.unread === null) return null;
    const decision = await judge(guard, { url: toolUrl(server, tool) }, demanded);
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
