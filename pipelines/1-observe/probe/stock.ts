import { dayOf } from "../../record/time.ts";
import type { Call } from "../call.ts";
import type { Request } from "./request.ts";

/**
 * What makes a blind call look like any buyer's: both legs are sent as the protocols' own packages send them over Node's
 * fetch (`@x402/fetch`, `mppx`, `@modelcontextprotocol/client`). Held against those packages by test.
 */

/** Of a blind call, in whose name both legs leave (Egress, `stock`): that of its wallet, which pays on this day alone. */
export const stockOf = (cap: string, call: Pick<Call, "blind" | "plannedAt">): string | undefined =>
  call.blind ? `${cap} ${dayOf(call.plannedAt)}` : undefined;

/** The name that the MCP package's own examples give; nobody is asked to choose one. */
export const STOCK_CLIENT = { name: "my-client", version: "1.0.0" };

/** Spelt as mpp's package spells them; those of x402 are in capitals. */
const SPELT: Readonly<Record<string, string>> = {
  AUTHORIZATION: "Authorization",
  "PAYMENT-AUTHORIZATION": "Payment-Authorization",
};

/** Header lines of a stock client's request, beside those that every request of Node's fetch has. */
export function stockHeaders(
  request: Pick<Request, "body">,
  payment: { header: string; value: string } | undefined,
): Record<string, string> {
  const headers: Record<string, string> = request.body ? { "Content-Type": "application/json" } : {};
  if (!payment) return headers;
  const name = SPELT[payment.header];
  if (name) return { ...headers, [name]: payment.value };
  return {
    ...headers,
    [payment.header]: payment.value,
    "Access-Control-Expose-Headers": "PAYMENT-RESPONSE,X-PAYMENT-RESPONSE",
  };
}
