import type { Order } from "../../pipelines/orders/order.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import type { Payment } from "./payments.ts";

/**
 * Seconds for which our offers ask a buyer to sign its payment (`maxTimeoutSeconds`): longer than our call of the
 * seller and the settlement after it take (payments.md).
 */
export const OFFERED_VALIDITY_S = 240;

/** A fault of a payment: an error code of x402's specification (section 9), and its description. */
export interface PaymentFault {
  code: string;
  says: string;
}

/** Error codes of x402's specification by those of the version 2 packages, where they differ. */
const SPECIFIED_CODES: Readonly<Record<string, string>> = {
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

/** Converts a facilitator's reason, a code or a sentence, to a code of the specification. */
const toSpecifiedCode = (reason: string): string =>
  SPECIFIED_CODES[reason] ?? (/^[a-z0-9_]{1,100}$/.test(reason) ? reason : "unexpected_verify_error");

/** Converts the reason of a facilitator or of the escrow to a fault. */
export const faultFromReason = (reason: string): PaymentFault => ({
  code: toSpecifiedCode(reason),
  says: `the payment is not valid: ${reason}`,
});

/**
 * Longest validity of a payment that is accepted, seconds. Until a payment expires, its order is watched, and a refund
 * is not sent.
 */
const MAX_VALIDITY_S = 3_600;
/** The official clients set `validAfter` this many seconds before the time of signing. */
const SIGNED_BEFORE_S = 600;

const utc = (seconds: number): string => new Date(seconds * 1000).toISOString();

/**
 * Returns the fault of a payment's validity, or null. The fault names our time, and the error of the buyer's clock in
 * case the payment was signed just now for {@link OFFERED_VALIDITY_S}.
 * @param now unix seconds
 * @param holdsS seconds from now for which the payment must still be valid
 */
export function validityFault(
  payment: Pick<Payment, "validAfter" | "validBefore">,
  now: number,
  holdsS: number,
): PaymentFault | null {
  const { validAfter, validBefore } = payment;
  const isNotYetValid = validAfter > now;
  const expiresTooSoon = validBefore < now + holdsS;
  const isValidTooLong = validBefore > now + MAX_VALIDITY_S;
  if (!isNotYetValid && !expiresTooSoon && !isValidTooLong) return null;
  const clockErrorS = expiresTooSoon
    ? validBefore - OFFERED_VALIDITY_S - now
    : Math.max(validBefore - OFFERED_VALIDITY_S, validAfter + SIGNED_BEFORE_S) - now;
  const maxSafe = BigInt(Number.MAX_SAFE_INTEGER);
  const shownErrorS = BigInt(Math.abs(clockErrorS)) < maxSafe && clockErrorS !== 0 ? clockErrorS : 0;
  const clock = `Our clock says ${utc(now)}. If you signed it just now for ${OFFERED_VALIDITY_S} s, your clock is ${Math.abs(shownErrorS)} s ${shownErrorS < 0 ? "behind" : "ahead"}.`;
  if (isNotYetValid)
    return { code: VALID_AFTER, says: `the payment does not hold yet, but in ${validAfter - now} s. ${clock}` };
  const requirement = expiresTooSoon
    ? `must hold for at least ${holdsS} s`
    : `may hold for at most ${MAX_VALIDITY_S} s`;
  return {
    code: VALID_BEFORE,
    says: `the payment ${requirement} from now, and holds for ${validBefore - now} s. ${clock}`,
  };
}

const VALID_AFTER = "invalid_exact_evm_payload_authorization_valid_after";
const VALID_BEFORE = "invalid_exact_evm_payload_authorization_valid_before";

/** Returns the error code for an order's payment that was finally not settled. */
export function settleFailure(order: Order): string {
  const { state, refusedAt, quote } = order;
  if (state === "hold_failed") return "invalid_transaction_state";
  if (refusedAt !== null && parseMoney(refusedAt) < parseMoney(quote.total)) return "insufficient_funds";
  return order.expired ? VALID_BEFORE : "unexpected_settle_error";
}
