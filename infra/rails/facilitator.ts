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
  /** Addresses of the nodes, in the order in which they are asked. */
  rpcUrl: string | readonly string[];
  /** CAIP-2, `eip155:<chain id>`. */
  network: string;
  /**
   * Sends settlements and pays their gas: it needs the chain's own coin, never the token. Either a sender that is shared
   * with other parts of this process, or a key (0x + 64 hex) for a sender of its own.
   */
  sender: Sender | Hex;
}

export interface Facilitator extends FacilitatorClient {
  /** Lower-case address that settlements are sent from. */
  readonly address: string;
}

/**
 * The events on the chain during one `verify` or `settle`. The protocol's package reports a node that does not answer
 * as an invalid payment, and a missing receipt as a failed transfer; this record tells such answers apart.
 */
interface CallRecord {
  /** The first failure to reach the chain. */
  chainFailure?: unknown;
  /** The transaction that was sent. */
  tx?: Hex;
  /** The revert of the simulated transfer, which therefore was not sent. */
  refused?: string;
}

/**
 * The protocol's reason for each text with which tokens revert: OpenZeppelin's error names, and USDC's sentences
 * (FiatTokenV2).
 */
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

/** Number of verified signatures that are remembered. */
const MAX_SIGNED = 1_000;

/**
 * Verifies signatures and remembers valid ones. The package checks each signature twice, when it verifies a payment and
 * when it settles it, and a check takes 3 ms of a core.
 */
function createSignatureCheck(): Signer["verifyTypedData"] {
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

interface SignerDeps {
  reader: Reader;
  sender: Sender;
  isSigned: Signer["verifyTypedData"];
}

/** Returns the package's access to the chain for one `verify` or `settle`; it notes failures in `callRecord`. */
function createSigner(course: CallRecord, { reader, sender, isSigned }: SignerDeps): Signer {
  const noted = async <T>(work: () => Promise<T>, isTrouble: (error: unknown) => boolean): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      if (isTrouble(error)) course.chainFailure ??= error;
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
        else course.chainFailure ??= error;
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
    // The package asks for the code of one payer twice.
    getCode({ address }) {
      const code = codes.get(address) ?? read(() => reader.getCode({ address }));
      codes.set(address, code);
      return code;
    },
  };
}

/**
 * Creates an x402 facilitator in this process: it verifies and settles `exact` payments, v1 and v2, on one chain, with the
 * protocol's own package. Settlements may run in parallel; each waits until its transaction is in a block.
 *
 * A settlement that would revert as of the newest block is refused without a transaction. Settlements of one payer run in
 * parallel only while the payer's balance covers all of them (in-flight.ts). A transaction can still revert when the payer,
 * or another process of ours, empties the wallet one block earlier.
 *
 * `verify` throws ChainDown when the chain could not be asked. `settle` answers `settlement_pending`, with the transaction
 * if one was sent, when the outcome is unknown.
 */
export function createFacilitator(options: FacilitatorOptions): Facilitator {
  const { rpcUrl, network } = options;
  const chainId = Number(network.replace(/^eip155:/, ""));
  const reader = createReader(rpcUrl);
  const sender = typeof options.sender === "string" ? createSender(reader, chainId, options.sender) : options.sender;
  const parts = { reader, sender, isSigned: createSignatureCheck() };
  const known = { pendingSettlementStore: new InMemoryPendingSettlementStore() };
  /** Creates the package's facilitator for one call. Its signer notes failures, so it cannot be shared between calls. */
  const facilitatorIn = (course: CallRecord) => {
    const signer = createSigner(course, parts);
    return new x402Facilitator()
      .register(network as Network, new ExactEvmScheme(signer, known))
      .registerV1(v1NamesOf(network) as Network[], new ExactEvmSchemeV1(signer));
  };
  const run = async <T>(ask: (facilitator: x402Facilitator) => Promise<T>) => {
    const course: CallRecord = {};
    try {
      const answer = await ask(facilitatorIn(course));
      return { ...course, answer };
    } catch (error) {
      return { ...course, error };
    }
  };
  const inFlight = new InFlightSettlements();
  /**
   * Settles when earlier settlements of the same payer leave enough money; null when they take too long. A payload without
   * an EIP-3009 authorization is settled at once.
   */
  const inTurn = <T>(payload: unknown, asset: string, settling: () => Promise<T>): Promise<T | null> => {
    const signed = authorizationOf(payload);
    if (!signed) return settling();
    const { from, valueAtomic } = signed;
    const readBalance = () => balanceOf({ reader, asset: asset as Address }, from);
    return inFlight.run(`${asset} ${from}`.toLowerCase(), valueAtomic, readBalance, settling);
  };
  return {
    address: sender.address.toLowerCase(),
    async verify(payload, requirements) {
      const course = await run((facilitator) => facilitator.verify(payload, requirements));
      if ("answer" in course && (course.answer.isValid || !course.chainFailure)) return course.answer;
      if (!course.chainFailure) throw (course as { error: unknown }).error;
      throw new ChainDown(`a payment was not verified: ${errorText(course.chainFailure)}`, {
        cause: course.chainFailure,
      });
    },
    async settle(payload, requirements) {
      const { network } = requirements;
      const not = (errorReason: string, errorMessage: string, transaction = "") => ({
        ...{ success: false, errorReason, errorMessage, transaction, network },
      });
      const settling = () => run((facilitator) => facilitator.settle(payload, requirements));
      const course = await inTurn(payload, requirements.asset, settling).catch((chainFailure: unknown) => ({
        chainFailure,
      }));
      if (!course) return not("payer_has_others_under_way", "settlements of this payer before it take too long");
      const { refused, chainFailure, tx }: CallRecord = course;
      if (refused !== undefined) return not(reasonOf(refused), refused);
      if ("answer" in course && (course.answer.success || !chainFailure)) return course.answer;
      if (!chainFailure) throw (course as { error: unknown }).error;
      return not("settlement_pending", errorText(chainFailure), tx);
    },
    getSupported: async () =>
      facilitatorIn({}).getSupported() as Awaited<ReturnType<FacilitatorClient["getSupported"]>>,
  };
}
