import { type FacilitatorClient, HTTPFacilitatorClient } from "@x402/core/server";
import { type PaymentPayload, type PaymentRequirements, SettleError, VerifyError } from "@x402/core/types";
import { Failure } from "../errors.ts";
import { keepAddress, redact, redactError } from "../secrets.ts";
import { parseUrl } from "../url.ts";
import { authorizationOf } from "./authorization.ts";
import { v1NamesOf } from "./charge.ts";
import { Cooldowns } from "./rpc.ts";
import { errorText, type Outcome } from "./sender.ts";

/**
 * Where buyers are charged: x402 `exact`, versions 1 and 2, with EIP-3009 authorizations. It knows nothing of orders,
 * and is never asked whether money moved: that is `Rail.settlementOf`.
 */
export interface Till {
  /** For logs and status. */
  readonly name: string;
  /**
   * Would this payment settle now? Moves nothing. Two payments under one nonce are both valid, and one of them settles.
   * @param payment decoded payment header, as a stranger sent it
   * @param requirements our own offer in its v2 form; a v1 payment is held against the same offer in the words of v1
   * @throws TillDown when nobody could be asked
   */
  verify(payment: unknown, requirements: PaymentRequirements): Promise<Verified>;
  /**
   * Charge the buyer. Waits until the transaction is in a block, or as long as this till waits. Never throws for what a
   * facilitator does. After `unknown` the chain decides; the same payment may be settled again, here or elsewhere: its
   * nonce moves money once.
   */
  settle(payment: unknown, requirements: PaymentRequirements): Promise<Outcome>;
}

/** `payer` is lower-case. A reason is the facilitator's own word, any text of up to 300 characters. */
export type Verified = { valid: true; payer: string } | { valid: false; reason: string };

/** Nobody could be asked whether a payment is valid, or what was answered is no answer. Nothing is known: ask again. */
export class TillDown extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("failed", message, { ...options, retriable: true });
  }
}

const MAX_REASON = 300;
const cut = (reason: string | undefined): string => redact(reason ?? "no reason given").slice(0, MAX_REASON);

/** Stated after a receipt that says so: the transfer was undone, and this transaction is over. */
const REVERTED = new Set(["invalid_exact_evm_transaction_failed", "invalid_transaction_state"]);
/**
 * Not a verdict on the payment: the reference facilitator says `..transaction_failed` without a transaction when its
 * node did not answer, and others have words of their own for the same. Then the transaction may be on its way.
 */
const UNSURE =
  /pending|unexpected|time_?d?_?out|transaction_failed|unavailable|internal|unknown|network_error|rpc|node/;
/** A reason is a code of the protocol; a sentence is an error that somebody passed on. */
const CODE = /^[a-z0-9_]{1,100}$/;
/** Refusals of a request, not of a payment: the next one may be taken. */
const NOT_NOW = new Set([401, 403, 404, 408, 409, 425, 429]);

const isVerdict = (status: number): boolean => status >= 400 && status < 500 && !NOT_NOW.has(status);

/** A payment whose version, scheme and authorization can be read, and what its version is asked with. */
interface Readable {
  payload: PaymentPayload;
  requirements: PaymentRequirements;
  payer: string;
}

/** Null when no facilitator needs to be asked: some crash on what is missing here, and a crash is not an answer. */
function readable(payment: unknown, requirements: PaymentRequirements): Readable | null {
  const authorization = authorizationOf(payment);
  if (!authorization) return null;
  const payload = payment as PaymentPayload & { scheme?: unknown; network?: unknown };
  const { x402Version: version, accepted } = payload as { x402Version: unknown; accepted?: Record<string, unknown> };
  const named = version === 1 ? payload : accepted;
  if (typeof named?.scheme !== "string" || typeof named.network !== "string") return null;
  const { from: payer } = authorization;
  if (version === 2) return { payload, requirements, payer };
  if (version !== 1) return null;
  return { payload, requirements: asVersion1(requirements, named.network), payer };
}

/**
 * The same offer in the words of x402 v1: the amount is called `maxAmountRequired`, and the chain has a name.
 * @param spelling the buyer's name for the chain, taken when it is one of its names
 */
export function asVersion1(requirements: PaymentRequirements, spelling?: string): PaymentRequirements {
  const { amount, network, ...rest } = requirements;
  const names = v1NamesOf(network);
  const name = names.includes(spelling ?? "") ? spelling : names[0];
  // The package types v1 requirements by their v2 shape, and reads the v1 fields.
  return { ...rest, network: name ?? network, maxAmountRequired: amount } as unknown as PaymentRequirements;
}

/** A till over one facilitator, in this process or elsewhere. */
export function createTill(name: string, facilitator: FacilitatorClient): Till {
  return {
    name,
    async verify(payment, requirements) {
      const asked = readable(payment, requirements);
      if (!asked) return { valid: false, reason: "invalid_payload" };
      const answer = await facilitator.verify(asked.payload, asked.requirements).catch((error: unknown) => {
        // Some answer a payment that is not valid with a 400.
        if (error instanceof VerifyError && error.invalidReason && isVerdict(error.statusCode)) {
          return { isValid: false as const, invalidReason: error.invalidReason, payer: undefined };
        }
        throw new TillDown(`${name} cannot say whether a payment is valid: ${errorText(error)}`, {
          cause: redactError(error),
        });
      });
      if (!answer.isValid) return { valid: false, reason: cut(answer.invalidReason) };
      if (answer.payer && answer.payer.toLowerCase() !== asked.payer) {
        throw new TillDown(`${name} speaks of another payer: ${cut(answer.payer)}`);
      }
      return { valid: true, payer: asked.payer };
    },
    async settle(payment, requirements) {
      const asked = readable(payment, requirements);
      if (!asked) return { outcome: "refused", reason: "invalid_payload" };
      try {
        return settled(await facilitator.settle(asked.payload, asked.requirements));
      } catch (error) {
        if (error instanceof SettleError && isVerdict(error.statusCode)) {
          const { errorReason, transaction } = error;
          return settled({ success: false, ...(errorReason && { errorReason }), transaction });
        }
        return { outcome: "unknown", says: `${name}: ${errorText(error)}` };
      }
    },
  };
}

/** What an answer to `settle` is worth. Whatever may have been sent and is not known to be over is unknown. */
function settled(answer: {
  success: boolean;
  errorReason?: string;
  errorMessage?: string;
  transaction: string;
}): Outcome {
  const tx = /^0x[0-9a-fA-F]{64}$/.test(answer.transaction) ? { tx: answer.transaction.toLowerCase() } : null;
  if (answer.success)
    return tx ? { outcome: "sent", ...tx } : { outcome: "unknown", says: "settled, it says, nowhere" };
  const reason = cut(answer.errorReason);
  const isOver = tx ? REVERTED.has(reason) : CODE.test(reason) && !UNSURE.test(reason);
  if (isOver) return { outcome: "refused", reason, ...tx };
  return { outcome: "unknown", says: answer.errorMessage ? cut(`${reason}: ${answer.errorMessage}`) : reason, ...tx };
}

export interface HttpTillOptions {
  name: string;
  /** An operator's own choice, not a stranger's: it is fetched directly, private addresses too. */
  url: string;
  /** For one question, its answer's body included. Default 20 s: a settlement waits for a block. */
  timeout_ms?: number;
  /** Headers that the facilitator knows us by. */
  headers?: Readonly<Record<string, string>>;
}

function clientOf({ name, url, timeout_ms = 20_000, headers }: HttpTillOptions): HTTPFacilitatorClient {
  const protocol = parseUrl(url)?.protocol;
  if (protocol !== "https:" && protocol !== "http:") throw new TypeError(`${name}: no address of a facilitator`);
  keepAddress(url);
  const all = { verify: headers ?? {}, settle: headers ?? {}, supported: headers ?? {} };
  return new HTTPFacilitatorClient({ url, timeoutMs: timeout_ms, createAuthHeaders: async () => all });
}

/** A till over a facilitator that speaks the protocol's HTTP (`POST /verify`, `POST /settle`). */
export const createHttpTill = (options: HttpTillOptions): Till => createTill(options.name, clientOf(options));

/** Does it say (`GET /supported`) that it settles `exact` on this network? @throws TillDown when it says nothing */
export async function settlesOn(options: HttpTillOptions, network: string): Promise<boolean> {
  const said = await clientOf(options)
    .getSupported()
    .catch((error: unknown) => {
      const why = `${options.name} does not say what it settles: ${errorText(error)}`;
      throw new TillDown(why, { cause: redactError(error) });
    });
  return said.kinds.some((kind) => kind.scheme === "exact" && kind.network === network);
}

/**
 * Several tills in their order of preference. One that could not be asked rests for a while (30 s) and is tried again;
 * when all of them rest, they are asked all the same, since a rest is a guess and a buyer waits.
 *
 * Whether a payment is valid is asked of the next one when nobody answers. A settlement goes to one till only: after
 * `unknown` it may be on its way to a block, and whether to send it again is the caller's to decide, who reads the
 * chain. If it does, the till that left it unknown rests, so that another one is asked.
 */
export function createTills(tills: readonly Till[], resting = new Cooldowns<Till>(30_000)): Till {
  if (tills.length === 0) throw new RangeError("no till");
  return {
    name: tills.map(({ name }) => name).join(", "),
    async verify(payment, requirements) {
      const said: string[] = [];
      for (const till of resting.ordered(tills)) {
        try {
          const answer = await till.verify(payment, requirements);
          resting.succeeded(till);
          return answer;
        } catch (error) {
          if (!(error instanceof TillDown)) throw error;
          resting.failed(till);
          said.push(error.message);
        }
      }
      throw new TillDown(said.join("; "));
    },
    async settle(payment, requirements) {
      const till = resting.ordered(tills)[0]!;
      const outcome = await till.settle(payment, requirements);
      if (outcome.outcome === "unknown") resting.failed(till);
      else resting.succeeded(till);
      return outcome;
    },
  };
}
