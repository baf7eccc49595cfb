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

/** Greatest age of a dispute's signature at which the dispute is accepted, ms. */
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
/** A time in the form that all records use. */
export const SignedAt = z.string().regex(RFC3339, "must look like 2026-11-21T12:00:00.000Z");

const ID_PATTERNS = { cap: /^cap_[0-9A-HJKMNP-TV-Z]{26}$/, rec: /^rec_[0-9A-HJKMNP-TV-Z]{26}$/ };

/**
 * A seller's dispute as it is sent: the five members of the signed statement, the payee's address, and the signature.
 */
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
 * The statement that the seller signs: the RFC 8785 form of five members. The holder of an Ethereum address signs it
 * with EIP-191 (personal_sign), the holder of a Solana address signs its UTF-8 bytes with Ed25519.
 */
export const statementOf = ({
  capability_id,
  record_id,
  says,
  at,
  service,
}: Omit<SignedDispute, "pay_to" | "signature">) => canonicalText({ capability_id, record_id, says, at, service });

/**
 * Id of a dispute, made from statement and payee. The signature is left out, since one statement can have two valid
 * signatures of one key.
 */
export const disputeId = (dispute: SignedDispute): string =>
  `dsp_${idOf([statementOf(dispute), addressKey(dispute.pay_to)])}`;

/**
 * Checks that a value has the form of a dispute, that it is addressed to this service, and that the time which it states
 * is recent. It does not verify the signature.
 * @throws BadDispute with a pointer for each fault
 */
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
 * Checks that the holder of `pay_to` signed the dispute, and that a 402 of this endpoint in the record named that
 * address. Only wallets with a private key can sign: verifying a contract's signature (ERC-1271) would need access to
 * a chain.
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
 * Returns whether the holder of this address signed the statement: by EIP-191 for an Ethereum address, by Ed25519
 * over the UTF-8 bytes for a Solana address.
 */
export const isSignedBy = async (pay_to: string, statement: string, signature: string): Promise<boolean> =>
  isEvmAddress(pay_to) ? isSignedByEvm(pay_to, statement, signature) : isSignedBySolana(pay_to, statement, signature);

async function isSignedByEvm(pay_to: string, message: string, signature: string): Promise<boolean> {
  if (!HEX_SIGNATURE.test(signature)) return false;
  const [address, hex] = [pay_to, signature] as `0x${string}`[];
  // viem throws for a signature that is no point of the curve. Such a signature is just wrong.
  return verifyMessage({ address: address!, message, signature: hex! }).catch(() => false);
}

/**
 * Returns whether the key that is this Solana address signed the statement. A program-derived address is not on the
 * curve, so nobody can sign for it.
 */
function isSignedBySolana(pay_to: string, statement: string, signature: string): boolean {
  const [key, bytes] = [fromBase58(pay_to, 32), fromBase58(signature, 64)];
  return key !== null && bytes !== null && verifyBytes(key, Buffer.from(statement), bytes);
}

/** Makes the log record's body of a dispute. It contains everything that is needed to verify the signature again. */
export const disputeBody = (dispute: SignedDispute, now: Date): BodyOf<"dispute"> => ({
  id: disputeId(dispute),
  ...dispute,
  received_at: rfc3339(now),
});
