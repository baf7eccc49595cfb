import { isAddress, verifyMessage } from "viem";
import { z } from "zod";
import { canonicalText } from "../../infra/canonical.ts";
import { verifyBytes } from "../../infra/keys/verify.ts";
import { fromBase58 } from "../record/base58.ts";
import type { BodyOf } from "../record/bodies.ts";
import { faultsOf, pointerOf } from "../record/faults.ts";
import { idOf } from "../record/ids.ts";
import { addressKey } from "../record/networks.ts";
import { RFC3339, rfc3339 } from "../record/time.ts";
import { BadDispute, NotThePayee } from "./errors.ts";

/** A dispute is accepted this long after it was signed, ms. */
const MAX_AGE_MS = 7 * 86_400_000;
/** A seller's clock may be this much ahead of ours, ms. */
const MAX_CLOCK_AHEAD_MS = 300_000;
const LONE_SURROGATE = /\p{Surrogate}/u;

const HEX_SIGNATURE = /^0x[0-9a-fA-F]{130}$/;
const isEvmAddress = (address: string): boolean => isAddress(address, { strict: false });
function isPayee(text: string): boolean {
  return isEvmAddress(text) || fromBase58(text, 32) !== null;
}

const PAYEE_MESSAGE = "must be 0x and 40 hex digits, or the base58 of 32 bytes";
/** An address that can be paid and can sign: EVM or Solana. */
export const SigningPayee = z
  .string()
  .regex(/^(?:0x[0-9a-fA-F]{40}|[1-9A-HJ-NP-Za-km-z]{32,44})$/, PAYEE_MESSAGE)
  .refine(isPayee, PAYEE_MESSAGE);

const SIGNATURE_MESSAGE = "must be 0x and 65 bytes in hex, or the base58 of 64 bytes";
export const PayeeSignature = z
  .string()
  .max(132)
  .regex(/^(?:0x[0-9a-fA-F]{130}|[1-9A-HJ-NP-Za-km-z]{64,88})$/, SIGNATURE_MESSAGE)
  .refine((text) => HEX_SIGNATURE.test(text) || fromBase58(text, 64) !== null, SIGNATURE_MESSAGE);
/** A time in the record's form. */
export const SignedAt = z.string().regex(RFC3339, "must look like 2026-11-21T12:00:00.000Z");

const ID_PATTERNS = { cap: /^cap_[0-9A-HJKMNP-TV-Z]{26}$/, rec: /^rec_[0-9A-HJKMNP-TV-Z]{26}$/ };

/** A seller's dispute as it is sent: the five members of the statement, the address that is paid, and the signature. */
export const SignedDispute = z.strictObject({
  capability_id: z.string().regex(ID_PATTERNS.cap, "is not a capability id"),
  record_id: z.string().regex(ID_PATTERNS.rec, "is not a record id").nullable(),
  says: z
    .string()
    .min(1, "must say something")
    .max(2_000, "must be at most 2000 characters")
    .refine((text) => !LONE_SURROGATE.test(text), "holds half a character"),
  at: SignedAt,
  service: z.string().max(300),
  pay_to: SigningPayee,
  signature: PayeeSignature,
});
export type SignedDispute = z.infer<typeof SignedDispute>;

/**
 * The statement that the seller signs: the RFC 8785 form of five members. An Ethereum address signs it with EIP-191
 * (personal_sign), a Solana address signs its UTF-8 bytes with Ed25519.
 */
export const statementOf = ({
  capability_id,
  record_id,
  says,
  at,
  service,
}: Omit<SignedDispute, "pay_to" | "signature">) => canonicalText({ capability_id, record_id, says, at, service });

/**
 * Id of a dispute, made from statement and payee. The signature is left out, since it has two valid forms for one
 * statement.
 */
export const disputeId = (dispute: SignedDispute): string =>
  `dsp_${idOf([statementOf(dispute), addressKey(dispute.pay_to)])}`;

/** Validates a value as a dispute to this service, at this time. @throws BadDispute with a pointer for each fault */
export function readDispute(value: unknown, service: string, now: Date): SignedDispute {
  const parsed = SignedDispute.safeParse(value);
  if (!parsed.success) {
    throw new BadDispute(faultsOf(parsed.error).map(({ path, detail }) => ({ pointer: pointerOf(path), detail })));
  }
  const problems = [...findServiceProblem(parsed.data, service), ...findDisputeTimeProblem(parsed.data, now)];
  if (problems.length > 0) throw new BadDispute(problems);
  return parsed.data;
}

const findServiceProblem = (dispute: SignedDispute, service: string) =>
  dispute.service === service ? [] : [{ pointer: "/service", detail: `must be ${service}` }];

function findDisputeTimeProblem({ at }: SignedDispute, now: Date) {
  const detail = findTimeProblem(at, now, { ms: MAX_AGE_MS, words: "7 days" });
  return detail === null ? [] : [{ pointer: "/at", detail }];
}

/** Returns what is wrong with the time of a signature, or null. @param maxAge how long a signature is accepted */
export function findTimeProblem(text: string, now: Date, maxAge: { ms: number; words: string }): string | null {
  const time = new Date(text);
  if (Number.isNaN(time.getTime()) || rfc3339(time) !== text) return "is no time";
  const ageMs = now.getTime() - time.getTime();
  if (ageMs > maxAge.ms) return `was signed more than ${maxAge.words} ago: sign it again`;
  return ageMs < -MAX_CLOCK_AHEAD_MS ? "is still to come" : null;
}

/**
 * Checks that a dispute was signed by its payTo, and that the record has seen this endpoint ask to be paid there. Only
 * wallets with a key can sign: a contract's signature (ERC-1271) would need a chain.
 * @param payTos addresses in {@link addressKey} form
 * @throws NotThePayee
 */
export async function checkPayee(dispute: SignedDispute, payTos: ReadonlySet<string>): Promise<void> {
  const { pay_to, capability_id } = dispute;
  if (!payTos.has(addressKey(pay_to))) {
    throw new NotThePayee(`no 402 of ${capability_id} in the record asked to be paid at ${pay_to}`);
  }
  if (!(await isSignedBy(pay_to, statementOf(dispute), dispute.signature)))
    throw new NotThePayee(`the signature is not ${pay_to}'s over the statement`);
}

/**
 * Did the wallet of this address sign the statement: by EIP-191 for an Ethereum address, by Ed25519 over UTF-8 for a
 * Solana one?
 */
export const isSignedBy = async (pay_to: string, statement: string, signature: string): Promise<boolean> =>
  isEvmAddress(pay_to) ? isSignedByEvm(pay_to, statement, signature) : isSignedBySolana(pay_to, statement, signature);

async function isSignedByEvm(pay_to: string, message: string, signature: string): Promise<boolean> {
  if (!HEX_SIGNATURE.test(signature)) return false;
  const [address, hex] = [pay_to, signature] as `0x${string}`[];
  // viem throws for a signature that is no point of the curve: it is as wrong as any other.
  return verifyMessage({ address: address!, message, signature: hex! }).catch(() => false);
}

/**
 * A Solana address is the public key itself. Program-derived addresses are not on the curve, so nobody can sign for
 * them.
 */
function isSignedBySolana(pay_to: string, statement: string, signature: string): boolean {
  const [key, bytes] = [fromBase58(pay_to, 32), fromBase58(signature, 64)];
  return key !== null && bytes !== null && verifyBytes(key, Buffer.from(statement), bytes);
}

/** The dispute in the form of a log record, with everything that is needed to verify the signature again. */
export const disputeBody = (dispute: SignedDispute, now: Date): BodyOf<"dispute"> => ({
  id: disputeId(dispute),
  ...dispute,
  received_at: rfc3339(now),
});
