import { dayOf } from "../../record/time.ts";
import type { Call } from "../call.ts";
import type { Request } from "./request.ts";

/**
 * What makes a blind call look like any buyer's: both requests are sent as the protocols' own packages send them over
 * Node's fetch (`@x402/fetch`, `mppx`, `@modelcontextprotocol/client`). A test compares them with those packages.
 */

/**
 * For a blind call, the name of the client as which both requests leave (Egress, `stock`): one for each blind wallet,
 * which pays on one day alone.
 */
export const stockOf = (cap: string, call: Pick<Call, "blind" | "plannedAt">): string | undefined =>
  call.blind ? `${cap} ${dayOf(call.plannedAt)}` : undefined;

/** The client name in the examples of the MCP package, which many buyers leave as it is. */
export const STOCK_CLIENT = { name: "my-client", version: "1.0.0" };

/** Header names in the spelling of mpp's package; x402's package writes its names in capitals. */
const SPELLING: Readonly<Record<string, string>> = {
  AUTHORIZATION: "Authorization",
  "PAYMENT-AUTHORIZATION": "Payment-Authorization",
};

/** Headers of a stock client's request, beside those that Node's fetch adds to every request. */
export function stockHeaders(
  request: Pick<Request, "body">,
  payment: { header: string; value: string } | undefined,
): Record<string, string> {
  const headers: Record<string, string> = request.body ? { "Content-Type": "application/json" } : {};
  if (!payment) return headers;
  const name = SPELLING[payment.header];
  if (name) return { ...headers, [name]: payment.value };
  return {
    ...headers,
    [payment.header]: payment.value,
    "Access-Control-Expose-Headers": "PAYMENT-RESPONSE,X-PAYMENT-RESPONSE",
  };
}
