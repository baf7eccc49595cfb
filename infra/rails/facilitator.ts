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
   * Sends settlements and pays their gas: it needs the chain's own coin, never the token. Either a sender that is
   * shared with other parts of this process, or a key (0x + 64 hex) for a sender of its own.
   */
  sender: Sender | Hex;
}

export interface Facilitator extends FacilitatorClient {
  /** Lower-case address that settlements are sent from. */
  readonly address: string;
}

/**
 * What happened on the chain during one `verify` or `settle`. The protocol's package reports a node that does not
 * answer as an invalid payment, and a missing receipt as a failed transfer; this record tells such answers apart.
 */
interface CallRecord {
  /** The first failure to reach the chain. */
  chainFailure?: unknown;
  /** The transaction that was sent. */
  tx?: Hex;
  /** Why the simulated transfer reverted; it was then not sent. */
  refused?: string;
}

/**
 * The protocol's reason for each text with which tokens revert: OpenZeppelin's error names, and USDC's sentences
 * (FiatTokenV2).
 */
const REASON_OF_REVERT: readonly [RegExp, string][] = [
  [/InsufficientBalance|exceeds balance/i, "invalid_exact_evm_insufficient_balance"],
  [/UsedAuthorization|authorization is used/i, "invalid_exact_evm_nonce_already_used"],
  [/AuthorizationTime|authorization is expired/i, "invalid_exact_evm_payload_authorization_valid_before"],
  [/InvalidSignature|invalid signature/i, "invalid_exact_evm_signature"],
];
const reasonOf = (revertText: string): string =>
  REASON_OF_REVERT.find(([words]) => words.test(revertText))?.[1] ?? "invalid_exact_evm_transaction_simulation_failed";

const TOKEN_ERRORS_ABI = parseAbi(TOKEN_ERRORS);

type Signer = ConstructorParameters<typeof ExactEvmScheme>[0];

/** Number of verified signatures that are remembered. */
const MAX_REMEMBERED_SIGNATURES = 1_000;

/**
 * Verifies signatures and remembers valid ones. The package checks each signature twice, when it verifies a payment and
 * when it settles it, and a check takes 3 ms of a core.
 */
function createSignatureCheck(): Signer["verifyTypedData"] {
  const validSignatures = new BoundedMap<string, true>(MAX_REMEMBERED_SIGNATURES);
  return async ({ address, signature, ...message }) => {
    const hash = hashTypedData(message as Parameters<typeof hashTypedData>[0]);
    const key = `${address} ${hash} ${signature}`;
    if (validSignatures.has(key)) return true;
    const isValid = isAddressEqual(await recoverAddress({ hash, signature }), address as Address);
    if (isValid) validSignatures.set(key, true);
    return isValid;
  };
}

interface SignerDeps {
  reader: Reader;
  sender: Sender;
  /** Verifies the signature of a payer. */
  isSigned: Signer["verifyTypedData"];
}

/** Returns the package's access to the chain for one `verify` or `settle`; it notes failures in `callRecord`. */
function createSigner(callRecord: CallRecord, { reader, sender, isSigned }: SignerDeps): Signer {
  const recordingFailures = async <T>(
    work: () => Promise<T>,
    isChainFailure: (error: unknown) => boolean,
  ): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      if (isChainFailure(error)) callRecord.chainFailure ??= error;
      throw error;
    }
  };
  const recordingReadFailures = <T>(work: () => Promise<T>) => recordingFailures(work, isTransportError);
  const codes = new Map<Hex, Promise<Hex | undefined>>();
  return {
    getAddresses: () => [sender.address],
    readContract: (call) =>
      recordingReadFailures(() => reader.readContract(call as Parameters<typeof reader.readContract>[0])),
    verifyTypedData: isSigned,
    async writeContract(call) {
      try {
        callRecord.tx = await sender.write({ ...call, abi: [...call.abi, ...TOKEN_ERRORS_ABI] });
        return callRecord.tx;
      } catch (error) {
        if (error instanceof WouldRevert) callRecord.refused = error.reason;
        else callRecord.chainFailure ??= error;
        throw error;
      }
    },
    sendTransaction: async () => {
      throw new Error("this facilitator deploys no wallets");
    },
    waitForTransactionReceipt: ({ hash }) =>
      recordingFailures(
        () => sender.receipt(hash),
        () => true,
      ),
    // The package requests the code of one payer twice, so the first answer is kept.
    getCode({ address }) {
      const code = codes.get(address) ?? recordingReadFailures(() => reader.getCode({ address }));
      codes.set(address, code);
      return code;
    },
  };
}

/**
 * Creates an x402 facilitator in this process: it verifies and settles `exact` payments, v1 and v2, on one chain,
 * with the protocol's own package. Settlements may run in parallel; each waits until its transaction is in a block.
 *
 * A settlement that would revert as of the newest block is refused without a transaction. Settlements of one payer
 * run in parallel only while the payer's balance covers all of them (in-flight.ts). A transaction can still revert
 * when the payer, or another process of ours, empties the wallet one block earlier.
 *
 * `verify` throws ChainDown when the chain could not be asked. `settle` answers `settlement_pending`, with the
 * transaction if one was sent, when the outcome is unknown.
 */
export function createFacilitator(options: FacilitatorOptions): Facilitator {
  const { rpcUrl, network } = options;
  const chainId = Number(network.replace(/^eip155:/, ""));
  const reader = createReader(rpcUrl);
  const sender = typeof options.sender === "string" ? createSender(reader, chainId, options.sender) : options.sender;
  const parts = { reader, sender, isSigned: createSignatureCheck() };
  const schemeOptions = { pendingSettlementStore: new InMemoryPendingSettlementStore() };
  /** Creates the package's facilitator for one call. Its signer notes failures, so it cannot be shared between calls. */
  const createCallFacilitator = (callRecord: CallRecord) => {
    const signer = createSigner(callRecord, parts);
    return new x402Facilitator()
      .register(network as Network, new ExactEvmScheme(signer, schemeOptions))
      .registerV1(v1NamesOf(network) as Network[], new ExactEvmSchemeV1(signer));
  };
  const runRecorded = async <T>(ask: (facilitator: x402Facilitator) => Promise<T>) => {
    const callRecord: CallRecord = {};
    try {
      const answer = await ask(createCallFacilitator(callRecord));
      return { ...callRecord, answer };
    } catch (error) {
      return { ...callRecord, error };
    }
  };
  const inFlight = new InFlightSettlements();
  /**
   * Runs `settleNow` as soon as the payer's balance covers it beside the settlements of that payer that are running;
   * returns null when these take too long. A payload without an EIP-3009 authorization is settled at once.
   */
  const runInTurn = <T>(payload: unknown, asset: string, settleNow: () => Promise<T>): Promise<T | null> => {
    const authorization = authorizationOf(payload);
    if (!authorization) return settleNow();
    const { from, valueAtomic } = authorization;
    const readBalance = () => balanceOf({ reader, asset: asset as Address }, from);
    return inFlight.run(`${asset} ${from}`.toLowerCase(), valueAtomic, readBalance, settleNow);
  };
  return {
    address: sender.address.toLowerCase(),
    async verify(payload, requirements) {
      const callRecord = await runRecorded((facilitator) => facilitator.verify(payload, requirements));
      if ("answer" in callRecord && (callRecord.answer.isValid || !callRecord.chainFailure)) return callRecord.answer;
      if (!callRecord.chainFailure) throw (callRecord as { error: unknown }).error;
      throw new ChainDown(`a payment was not verified: ${errorText(callRecord.chainFailure)}`, {
        cause: callRecord.chainFailure,
      });
    },
    async settle(payload, requirements) {
      const { network } = requirements;
      const failureAnswer = (errorReason: string, errorMessage: string, transaction = "") => ({
        ...{ success: false, errorReason, errorMessage, transaction, network },
      });
      const settleNow = () => runRecorded((facilitator) => facilitator.settle(payload, requirements));
      const callRecord = await runInTurn(payload, requirements.asset, settleNow).catch((chainFailure: unknown) => ({
        chainFailure,
      }));
      if (!callRecord)
        return failureAnswer("payer_has_others_under_way", "settlements of this payer before it take too long");
      const { refused, chainFailure, tx }: CallRecord = callRecord;
      if (refused !== undefined) return failureAnswer(reasonOf(refused), refused);
      if ("answer" in callRecord && (callRecord.answer.success || !chainFailure)) return callRecord.answer;
      if (!chainFailure) throw (callRecord as { error: unknown }).error;
      return failureAnswer("settlement_pending", errorText(chainFailure), tx);
    },
    getSupported: async () =>
      createCallFacilitator({}).getSupported() as Awaited<ReturnType<FacilitatorClient["getSupported"]>>,
  };
}
