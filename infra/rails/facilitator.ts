import { x402Facilitator } from "@x402/core/facilitator";
import type { FacilitatorClient } from "@x402/core/server";
import type { Network } from "@x402/core/types";
import { ExactEvmScheme } from "@x402/evm/exact/facilitator";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/facilitator";
import { EVM_NETWORK_CHAIN_ID_MAP } from "@x402/evm/v1";
import { type Hex, verifyTypedData } from "viem";
import { createReader } from "./rpc.ts";
import { createSender } from "./sender.ts";

export interface FacilitatorOptions {
  rpcUrl: string;
  /** CAIP-2, `eip155:<chain id>`. */
  network: string;
  /** Key that pays the gas of settlements, 0x + 64 hex. It needs the chain's own coin, never the token. */
  privateKey: string;
}

export interface Facilitator extends FacilitatorClient {
  /** Address settlements are sent from. */
  readonly address: string;
}

/**
 * x402 facilitator in this process: verifies and settles `exact` payments, v1 and v2, on one chain. Its verdict comes
 * from the protocol's own package. Settlements may run in parallel; each waits until its transaction is in a block.
 */
export function createFacilitator({ rpcUrl, network, privateKey }: FacilitatorOptions): Facilitator {
  const chainId = Number(network.replace(/^eip155:/, ""));
  const reader = createReader(rpcUrl);
  const sender = createSender(reader, chainId, privateKey as Hex);
  const signer: ConstructorParameters<typeof ExactEvmScheme>[0] = {
    getAddresses: () => [sender.address],
    readContract: (call) => reader.readContract(call as Parameters<typeof reader.readContract>[0]),
    verifyTypedData: (message) => verifyTypedData(message as Parameters<typeof verifyTypedData>[0]),
    writeContract: (call) => sender.write(call),
    sendTransaction: async () => {
      throw new Error("this facilitator deploys no wallets");
    },
    waitForTransactionReceipt: ({ hash }) => sender.receipt(hash),
    getCode: (query) => reader.getCode(query),
  };
  const names = Object.entries(EVM_NETWORK_CHAIN_ID_MAP).filter(([, id]) => id === chainId);
  const facilitator = new x402Facilitator().register(network as Network, new ExactEvmScheme(signer)).registerV1(
    names.map(([name]) => name as Network),
    new ExactEvmSchemeV1(signer),
  );
  return {
    address: sender.address.toLowerCase(),
    verify: (payload, requirements) => facilitator.verify(payload, requirements),
    settle: (payload, requirements) => facilitator.settle(payload, requirements),
    getSupported: async () => facilitator.getSupported() as Awaited<ReturnType<FacilitatorClient["getSupported"]>>,
  };
}
