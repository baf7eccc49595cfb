import { type FacilitatorClient, HTTPFacilitatorClient } from "@x402/core/server";
import { type PaymentPayload, type PaymentRequirements, SettleError, VerifyError } from "@x402/core/types";
import { Failure } from "../errors.ts";
import { addAddressSecrets, redact, redactError } from "../secrets.ts";
import { parseUrl } from "../url.ts";
import { authorizationOf } from "./authorization.ts";
import { v1NamesOf } from "./charge.ts";
import { Cooldowns } from "./rpc.ts";
import { errorText, type Outcome } from "./sender.ts";

/**
 * A till charges buyers through a facilitator (a service that verifies and settles x402 payments): scheme `exact`,
 * versions 1 and 2, with EIP-3009 authorizations. Whether money moved is read from the chain (`Rail.settlementOf`) and
 * not taken from a till's answer.
 */
export interface Till {
  /** Name for logs and status. */
  readonly name: string;
  /**
   * Checks whether a payment would settle now, without moving money. Two payments with one nonce are both valid until
   * one of them settles.
   * @param payment decoded payment header, untrusted
   * @param requirements our offer in its v2 form; a v1 payment is compared with its v1 form
   * @throws TillDown when no facilitator answered
   */
  verify(payment: unknown, requirements: PaymentRequirements): Promise<TillVerdict>;
  /**
   * Charges the buyer and waits until the transaction is in a block, or until the till's timeout. Never throws for
   * what a facilitator does. After `unknown` the caller reads the chain. Settling a payment again, here or elsewhere,
   * is safe: its nonce moves money once.
   */
  settle(payment: unknown, requirements: PaymentRequirements): Promise<Outcome>;
}

/** `payer` is lower-case. `reason` is the facilitator's own text, at most 300 characters. */
export type TillVerdict = { valid: true; payer: string } | { valid: false; reason: string };

/** Thrown when no facilitator gave a usable answer. Whether the payment is valid is unknown; the caller asks again. */
export class TillDown extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("failed", message, { ...options, retriable: true });
  }
}

const MAX_REASON_CHARS = 300;
const shortReason = (reason: string | undefined): string =>
  redact(reason ?? "no reason given").slice(0, MAX_REASON_CHARS);

/** Reasons that a facilitator gives after the receipt of a reverted transaction. Such a transaction is final. */
const REVERT_REASONS = new Set(["invalid_exact_evm_transaction_failed", "invalid_transaction_state"]);
/**
 * Reasons that leave the outcome open. The reference facilitator answers `..transaction_failed` without a transaction
 * when its node did not answer, and other facilitators give other reasons in that case. The transaction may still
 * settle.
 */
const OPEN_REASONS =
  /pending|unexpected|time_?d?_?out|transaction_failed|unavailable|internal|unknown|network_error|rpc|node/;
/** Matches reasons that are codes of the protocol; sentences are errors that a facilitator passed on. */
const REASON_CODE = /^[a-z0-9_]{1,100}$/;
/**
 * HTTP statuses with which a facilitator refuses a request and not the payment, so that a later request may succeed.
 */
const RETRIABLE_STATUSES = new Set([401, 403, 404, 408, 409, 425, 429]);

/** Reports whether a facilitator's HTTP error status refuses the payment itself, and not only this request. */
const isVerdict = (status: number): boolean => status >= 400 && status < 500 && !RETRIABLE_STATUSES.has(status);

/** A payment with a known version, scheme and authorization, and our offer in the form of that version. */
interface ParsedPayment {
  payload: PaymentPayload;
  requirements: PaymentRequirements;
  payer: string;
}

/** Parses a payment; null when a required field is missing. Some facilitators crash on such payments, so none is asked. */
function parsePayment(payment: unknown, requirements: PaymentRequirements): ParsedPayment | null {
  const authorization = authorizationOf(payment);
  if (!authorization) return null;
  const payload = payment as PaymentPayload & { scheme?: unknown; network?: unknown };
  const { x402Version: version, accepted } = payload as { x402Version: unknown; accepted?: Record<string, unknown> };
  const schemeAndNetwork = version === 1 ? payload : accepted;
  if (typeof schemeAndNetwork?.scheme !== "string" || typeof schemeAndNetwork.network !== "string") return null;
  const { from: payer } = authorization;
  if (version === 2) return { payload, requirements, payer };
  if (version !== 1) return null;
  return { payload, requirements: toVersion1(requirements, schemeAndNetwork.network), payer };
}

/**
 * Converts an offer to x402 v1, where the amount is called `maxAmountRequired` and the chain has a name.
 * @param spelling the buyer's name for the chain, used when it is one of the chain's names
 */
export function toVersion1(requirements: PaymentRequirements, spelling?: string): PaymentRequirements {
  const { amount, network, ...rest } = requirements;
  const names = v1NamesOf(network);
  const name = names.includes(spelling ?? "") ? spelling : names[0];
  // The package's type of v1 requirements has v2's fields, but its code reads v1's.
  return { ...rest, network: name ?? network, maxAmountRequired: amount } as unknown as PaymentRequirements;
}

/** Creates a till over one facilitator, in this process or elsewhere. */
export function createTill(name: string, facilitator: FacilitatorClient): Till {
  return {
    name,
    async verify(payment, requirements) {
      const parsed = parsePayment(payment, requirements);
      if (!parsed) return { valid: false, reason: "invalid_payload" };
      const answer = await facilitator.verify(parsed.payload, parsed.requirements).catch((error: unknown) => {
        // Some facilitators answer an invalid payment with a 400.
        if (error instanceof VerifyError && error.invalidReason && isVerdict(error.statusCode)) {
          return { isValid: false as const, invalidReason: error.invalidReason, payer: undefined };
        }
        throw new TillDown(`${name} cannot say whether a payment is valid: ${errorText(error)}`, {
          cause: redactError(error),
        });
      });
      if (!answer.isValid) return { valid: false, reason: shortReason(answer.invalidReason) };
      if (answer.payer && answer.payer.toLowerCase() !== parsed.payer) {
        throw new TillDown(`${name} speaks of another payer: ${shortReason(answer.payer)}`);
      }
      return { valid: true, payer: parsed.payer };
    },
    async settle(payment, requirements) {
      const parsed = parsePayment(payment, requirements);
      if (!parsed) return { outcome: "refused", reason: "invalid_payload" };
      try {
        return toOutcome(await facilitator.settle(parsed.payload, parsed.requirements));
      } catch (error) {
        if (error instanceof SettleError && isVerdict(error.statusCode)) {
          const { errorReason, transaction } = error;
          return toOutcome({ success: false, ...(errorReason && { errorReason }), transaction });
        }
        return { outcome: "unknown", says: `${name}: ${errorText(error)}` };
      }
    },
  };
}

/**
 * Converts a facilitator's answer to `settle`. A failure is `refused` if its transaction was reverted or none was sent,
 * and `unknown` if a transaction may still settle.
 */
function toOutcome(answer: {
  success: boolean;
  errorReason?: string;
  errorMessage?: string;
  transaction: string;
}): Outcome {
  const tx = /^0x[0-9a-fA-F]{64}$/.test(answer.transaction) ? { tx: answer.transaction.toLowerCase() } : null;
  if (answer.success)
    return tx
      ? { outcome: "sent", ...tx }
      : { outcome: "unknown", says: "the facilitator reports success without a transaction" };
  const reason = shortReason(answer.errorReason);
  const isFinal = tx ? REVERT_REASONS.has(reason) : REASON_CODE.test(reason) && !OPEN_REASONS.test(reason);
  if (isFinal) return { outcome: "refused", reason, ...tx };
  return {
    outcome: "unknown",
    says: answer.errorMessage ? shortReason(`${reason}: ${answer.errorMessage}`) : reason,
    ...tx,
  };
}

export interface HttpTillOptions {
  /** Name of the till, for logs and status. */
  name: string;
  /** Base url. The operator chose it, so it is fetched without the checks for untrusted addresses. */
  url: string;
  /** Timeout of one request including the body of its answer. Default 20 s, since a settlement waits for a block. */
  timeout_ms?: number;
  /** Headers of every request, for authentication. */
  headers?: Readonly<Record<string, string>>;
}

function createFacilitatorClient({ name, url, timeout_ms = 20_000, headers }: HttpTillOptions): HTTPFacilitatorClient {
  const protocol = parseUrl(url)?.protocol;
  if (protocol !== "https:" && protocol !== "http:")
    throw new TypeError(`${name}: expected the http(s) address of a facilitator`);
  addAddressSecrets(url);
  const authHeaders = { verify: headers ?? {}, settle: headers ?? {}, supported: headers ?? {} };
  return new HTTPFacilitatorClient({ url, timeoutMs: timeout_ms, createAuthHeaders: async () => authHeaders });
}

/** Creates a till over a facilitator's HTTP interface (`POST /verify`, `POST /settle`). @throws TypeError for a bad url */
export const createHttpTill = (options: HttpTillOptions): Till =>
  createTill(options.name, createFacilitatorClient(options));

/** Reports whether a facilitator lists `exact` on this network in `GET /supported`. @throws TillDown when it fails */
export async function supportsExactOn(options: HttpTillOptions, network: string): Promise<boolean> {
  const supported = await createFacilitatorClient(options)
    .getSupported()
    .catch((error: unknown) => {
      const why = `${options.name} does not say what it settles: ${errorText(error)}`;
      throw new TillDown(why, { cause: redactError(error) });
    });
  return supported.kinds.some((kind) => kind.scheme === "exact" && kind.network === network);
}

/**
 * Combines several tills in their order of preference. For 30 s after it failed, a till is asked only after the
 * others.
 *
 * `verify` asks the next till when one does not answer. `settle` asks one till only: after `unknown` the transaction
 * may still reach a block, so the caller reads the chain before it settles again. That second attempt goes to another
 * till, and so does one after `refused`, since the refusal may be that facilitator's own trouble.
 */
export function createTills(tills: readonly Till[], cooldowns = new Cooldowns<Till>(30_000)): Till {
  if (tills.length === 0) throw new RangeError("no tills given");
  return {
    name: tills.map(({ name }) => name).join(", "),
    async verify(payment, requirements) {
      const errors: string[] = [];
      for (const till of cooldowns.inOrder(tills)) {
        try {
          const answer = await till.verify(payment, requirements);
          cooldowns.markSucceeded(till);
          return answer;
        } catch (error) {
          if (!(error instanceof TillDown)) throw error;
          cooldowns.markFailed(till);
          errors.push(error.message);
        }
      }
      throw new TillDown(errors.join("; "));
    },
    async settle(payment, requirements) {
      const till = cooldowns.inOrder(tills)[0]!;
      const outcome = await till.settle(payment, requirements);
      if (outcome.outcome === "sent") cooldowns.markSucceeded(till);
      else cooldowns.markFailed(till);
      return outcome;
    },
  };
}
