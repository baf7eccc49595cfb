import { InMemoryPendingSettlementStore, x402Facilitator } from "@x402/core/facilitator";
import type { FacilitatorClient } from "@x402/core/server";
import type { Network } from "@x402/core/types";
import { ExactEvmScheme } from "@x402/evm/exact/facilitator";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/facilitator";
import { type Address, type Hex, hashTypedData, isAddressEqual, parseAbi, recoverAddress } from "viem";
import { BoundedMap } from "../bounded-map.ts";
import { authorizationOf, TOKEN_ERRORS } from "./authorization.ts";
import { v1NamesOf } from "./charge.ts";
import { InFlightSettlements } from "./in-flight.ts";
import { ChainDown, createReader, isTransportError, type Reader } from "./rpc.ts";
import { createSender, errorText, type Sender, WouldRevert } from "./sender.ts";
import { balanceOf } from "./settlement.ts";

export interface FacilitatorOptions {
  /** One node, or several in the order in which they are asked. */
  rpcUrl: string | readonly string[];
  /** CAIP-2, `eip155:<chain id>`. */
  network: string;
  /**
   * Sends settlements and pays their gas: it needs the chain's own coin, never the token. One line of nonces is enough
   * for all that this process sends; or the key of a line of its own, 0x + 64 hex.
   */
  sender: Sender | Hex;
}

export interface Facilitator extends FacilitatorClient {
  /** Address settlements are sent from. */
  readonly address: string;
}

/**
 * What went wrong on the way to the chain during one question. The protocol's package takes a node that does not answer
 * for a payment that is not valid, and a receipt that does not come for a transfer that failed: neither may be
 * believed.
 */
interface Course {
  trouble?: unknown;
  tx?: Hex;
  /** What the transfer would have reverted with: it was not sent. */
  refused?: string;
}

/** The protocol's words for what tokens revert with: OpenZeppelin's names, and the sentences of USDC (FiatTokenV2). */
const REASONS: readonly [RegExp, string][] = [
  [/InsufficientBalance|exceeds balance/i, "invalid_exact_evm_insufficient_balance"],
  [/UsedAuthorization|authorization is used/i, "invalid_exact_evm_nonce_already_used"],
  [/AuthorizationTime|authorization is expired/i, "invalid_exact_evm_payload_authorization_valid_before"],
  [/InvalidSignature|invalid signature/i, "invalid_exact_evm_signature"],
];
const reasonOf = (reverts: string): string =>
  REASONS.find(([words]) => words.test(reverts))?.[1] ?? "invalid_exact_evm_transaction_simulation_failed";

const ERRORS = parseAbi(TOKEN_ERRORS);

type Signer = ConstructorParameters<typeof ExactEvmScheme>[0];

/** Signatures that are remembered, newest kept. */
const MAX_SIGNED = 1_000;

/** The package asks for one signature twice, as it verifies a payment and as it settles it: 3 ms of a core each time. */
function signatureCheck(): Signer["verifyTypedData"] {
  const good = new BoundedMap<string, true>(MAX_SIGNED);
  return async ({ address, signature, ...message }) => {
    const hash = hashTypedData(message as Parameters<typeof hashTypedData>[0]);
    const key = `${address} ${hash} ${signature}`;
    if (good.has(key)) return true;
    const isGood = isAddressEqual(await recoverAddress({ hash, signature }), address as Address);
    if (isGood) good.set(key, true);
    return isGood;
  };
}

interface SignerParts {
  reader: Reader;
  sender: Sender;
  isSigned: Signer["verifyTypedData"];
}

/** What the package asks of the chain in the course of one question, and what of it failed. */
function signerIn(course: Course, { reader, sender, isSigned }: SignerParts): Signer {
  const noted = async <T>(work: () => Promise<T>, isTrouble: (error: unknown) => boolean): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      if (isTrouble(error)) course.trouble ??= error;
      throw error;
    }
  };
  const read = <T>(work: () => Promise<T>) => noted(work, isTransportError);
  const codes = new Map<Hex, Promise<Hex | undefined>>();
  return {
    getAddresses: () => [sender.address],
    readContract: (call) => read(() => reader.readContract(call as Parameters<typeof reader.readContract>[0])),
    verifyTypedData: isSigned,
    async writeContract(call) {
      try {
        course.tx = await sender.write({ ...call, abi: [...call.abi, ...ERRORS] });
        return course.tx;
      } catch (error) {
        if (error instanceof WouldRevert) course.refused = error.reason;
        else course.trouble ??= error;
        throw error;
      }
    },
    sendTransaction: async () => {
      throw new Error("this facilitator deploys no wallets");
    },
    waitForTransactionReceipt: ({ hash }) =>
      noted(
        () => sender.receipt(hash),
        () => true,
      ),
    // The package asks of one payer twice.
    getCode({ address }) {
      const code = codes.get(address) ?? read(() => reader.getCode({ address }));
      codes.set(address, code);
      return code;
    },
  };
}

/**
 * x402 facilitator in this process: verifies and settles `exact` payments, v1 and v2, on one chain. Its verdict comes
 * from the protocol's own package. Settlements may run in parallel; each waits until its transaction is in a block.
 *
 * A settlement that would revert as of the newest block is refused without a transaction, and beside others of the same
 * payer it goes ahead only while that one holds enough for all (under-way.ts): what still reverts was emptied by its
 * payer in the block in between, or by another process of ours.
 *
 * `verify` throws ChainDown when the verdict would stand on a chain that was not asked. `settle` answers
 * `settlement_pending`, with the transaction where there is one, when it cannot know what became of it.
 */
export function createFacilitator(options: FacilitatorOptions): Facilitator {
  const { rpcUrl, network } = options;
  const chainId = Number(network.replace(/^eip155:/, ""));
  const reader = createReader(rpcUrl);
  const sender = typeof options.sender === "string" ? createSender(reader, chainId, options.sender) : options.sender;
  const parts = { reader, sender, isSigned: signatureCheck() };
  const known = { pendingSettlementStore: new InMemoryPendingSettlementStore() };
  /** The package's own, with a signer of this question. To follow a question through shared ones slows every promise. */
  const facilitatorIn = (course: Course) => {
    const signer = signerIn(course, parts);
    return new x402Facilitator()
      .register(network as Network, new ExactEvmScheme(signer, known))
      .registerV1(v1NamesOf(network) as Network[], new ExactEvmSchemeV1(signer));
  };
  const run = async <T>(ask: (facilitator: x402Facilitator) => Promise<T>) => {
    const course: Course = {};
    try {
      const answer = await ask(facilitatorIn(course));
      return { ...course, answer };
    } catch (error) {
      return { ...course, error };
    }
  };
  const underWay = new InFlightSettlements();
  /** Null: those of the same payer before it take too long. What carries no EIP-3009 authorization waits for nobody. */
  const inTurn = <T>(payload: unknown, asset: string, settling: () => Promise<T>): Promise<T | null> => {
    const signed = authorizationOf(payload);
    if (!signed) return settling();
    const { from, valueAtomic } = signed;
    const held = () => balanceOf({ reader, asset: asset as Address }, from);
    return underWay.run(`${asset} ${from}`.toLowerCase(), valueAtomic, held, settling);
  };
  return {
    address: sender.address.toLowerCase(),
    async verify(payload, requirements) {
      const course = await run((facilitator) => facilitator.verify(payload, requirements));
      if ("answer" in course && (course.answer.isValid || !course.trouble)) return course.answer;
      if (!course.trouble) throw (course as { error: unknown }).error;
      throw new ChainDown(`a payment was not verified: ${errorText(course.trouble)}`, { cause: course.trouble });
    },
    async settle(payload, requirements) {
      const { network } = requirements;
      const not = (errorReason: string, errorMessage: string, transaction = "") => ({
        ...{ success: false, errorReason, errorMessage, transaction, network },
      });
      const settling = () => run((facilitator) => facilitator.settle(payload, requirements));
      const course = await inTurn(payload, requirements.asset, settling).catch((trouble: unknown) => ({ trouble }));
      if (!course) return not("payer_has_others_under_way", "settlements of this payer before it take too long");
      const { refused, trouble, tx }: Course = course;
      if (refused !== undefined) return not(reasonOf(refused), refused);
      if ("answer" in course && (course.answer.success || !trouble)) return course.answer;
      if (!trouble) throw (course as { error: unknown }).error;
      return not("settlement_pending", errorText(trouble), tx);
    },
    getSupported: async () =>
      facilitatorIn({}).getSupported() as Awaited<ReturnType<FacilitatorClient["getSupported"]>>,
  };
}
