import { dayOf } from "../../record/time.ts";
import type { Call } from "../call.ts";
import { declaredHeadersOf, type Request } from "./request.ts";

/**
 * This module makes a blind call (paid from a wallet that the seller does not know as ours) look like the call of any
 * buyer. Both requests of the call are sent as the protocols' own packages send them with Node's fetch
 * (`@x402/fetch`, `mppx`, `@modelcontextprotocol/client`). A test compares our requests with those of the packages.
 */

/**
 * Returns the name of the stock client (one that sends what the protocols' own packages send) whose connection both
 * requests of a blind call use (option `stock` of egress). There is one client for each blind wallet, which pays on
 * one day only. undefined for other calls.
 */
export const stockClientName = (cap: string, call: Pick<Call, "blind" | "plannedAt">): string | undefined =>
  call.blind ? `${cap} ${dayOf(call.plannedAt)}` : undefined;

/** The client name in the examples of the MCP package, which many buyers leave as it is. */
export const STOCK_CLIENT = { name: "my-client", version: "1.0.0" };

/** Header names as the mpp package spells them. The x402 package writes its header names in capitals. */
const HEADER_SPELLINGS: Readonly<Record<string, string>> = {
  AUTHORIZATION: "Authorization",
  "PAYMENT-AUTHORIZATION": "Payment-Authorization",
};

/** Makes the headers of a stock client's request, without those that Node's fetch adds to every request. */
export function stockHeaders(
  request: Pick<Request, "body" | "headers">,
  payment: { header: string; value: string } | undefined,
): Record<string, string> {
  const { "content-type": type = "application/json", ...declared } = declaredHeadersOf(request);
  const headers: Record<string, string> = { ...(request.body ? { "Content-Type": type } : {}), ...declared };
  if (!payment) return headers;
  const name = HEADER_SPELLINGS[payment.header];
  if (name) return { ...headers, [name]: payment.value };
  return {
    ...headers,
    [payment.header]: payment.value,
    "Access-Control-Expose-Headers": "PAYMENT-RESPONSE,X-PAYMENT-RESPONSE",
  };
}
