import type { Order } from "../../pipelines/orders/order.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import type { Payment } from "./payments.ts";

/**
 * Seconds that a buyer's authorization is to hold: it must outlast our call of the seller and the settlement after it
 * (payments.md).
 */
export const VALID_S = 240;

/** What is wrong with a payment: an error code of x402's specification (section 9), and the same in words. */
export interface Wrong {
  code: string;
  says: string;
}

/** The specification's codes for what the packages of version 2 call otherwise. */
const SPECIFIED: Readonly<Record<string, string>> = {
  invalid_exact_evm_signature: "invalid_exact_evm_payload_signature",
  invalid_exact_evm_failed_to_parse_signature: "invalid_exact_evm_payload_signature",
  invalid_exact_evm_recipient_mismatch: "invalid_exact_evm_payload_recipient_mismatch",
  invalid_exact_evm_authorization_value: "invalid_exact_evm_payload_authorization_value",
  invalid_exact_evm_payload_authorization_value_mismatch: "invalid_exact_evm_payload_authorization_value",
  invalid_exact_evm_insufficient_balance: "insufficient_funds",
  invalid_exact_evm_network_mismatch: "invalid_network",
  invalid_exact_evm_scheme: "invalid_scheme",
  invalid_exact_evm_nonce_already_used: "invalid_transaction_state",
  invalid_exact_evm_transaction_simulation_failed: "invalid_transaction_state",
  invalid_exact_evm_transaction_failed: "invalid_transaction_state",
};

/** A facilitator's reason, which is one of its codes or a sentence, as a code. */
const specified = (reason: string): string =>
  SPECIFIED[reason] ?? (/^[a-z0-9_]{1,100}$/.test(reason) ? reason : "unexpected_verify_error");

/** What a facilitator, or the escrow, found. */
export const refusedBy = (reason: string): Wrong => ({
  code: specified(reason),
  says: `the payment is not valid: ${reason}`,
});

/** Longest time for which a payment may stay valid, seconds: its order is watched until then, and a refund waits. */
const MAX_HOLDS_S = 3_600;
/** Seconds before its own time from which the official clients let a payment be valid. */
const SIGNED_BEFORE_S = 600;

const utc = (seconds: number): string => new Date(seconds * 1000).toISOString();

/**
 * What is wrong with the time of a payment. A buyer whose clock is wrong signs for another time than it means to: it is told
 * our time, and by how much its clock would be wrong if it signed just now for as long as the terms say.
 * @param now unix seconds @param holdsS seconds from now in which it must still be valid
 */
export function wrongTime(
  payment: Pick<Payment, "validAfter" | "validBefore">,
  now: number,
  holdsS: number,
): Wrong | null {
  const { validAfter, validBefore } = payment;
  const early = validAfter > now;
  const late = validBefore < now + holdsS;
  const long = validBefore > now + MAX_HOLDS_S;
  if (!early && !late && !long) return null;
  const ahead = late
    ? validBefore - VALID_S - now
    : Math.max(validBefore - VALID_S, validAfter + SIGNED_BEFORE_S) - now;
  const most = BigInt(Number.MAX_SAFE_INTEGER);
  const off = BigInt(Math.abs(ahead)) < most && ahead !== 0 ? ahead : 0;
  const clock = `Our clock says ${utc(now)}. If you signed it just now for ${VALID_S} s, your clock is ${Math.abs(off)} s ${off < 0 ? "behind" : "ahead"}.`;
  if (early)
    return { code: VALID_AFTER, says: `the payment does not hold yet, but in ${validAfter - now} s. ${clock}` };
  const must = late ? `must hold for at least ${holdsS} s` : `may hold for at most ${MAX_HOLDS_S} s`;
  return { code: VALID_BEFORE, says: `the payment ${must} from now, and holds for ${validBefore - now} s. ${clock}` };
}

const VALID_AFTER = "invalid_exact_evm_payload_authorization_valid_after";
const VALID_BEFORE = "invalid_exact_evm_payload_authorization_valid_before";

/** Why an order's payment was not settled, once that is certain. */
export function settleFailure(order: Order): string {
  const { state, refusedAt, quote } = order;
  if (state === "hold_failed") return "invalid_transaction_state";
  if (refusedAt !== null && parseMoney(refusedAt) < parseMoney(quote.total)) return "insufficient_funds";
  return order.expired ? VALID_BEFORE : "unexpected_settle_error";
}
