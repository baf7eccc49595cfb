import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Abi, Hex } from "viem";

/** What the chain needs of a contract: its ABI and the code whose run yields the code to place. */
export interface Artefact {
  contract: string;
  compiler: string;
  abi: Abi;
  /** Creation code: running it returns the runtime code with its immutables filled in. */
  bytecode: Hex;
}

/** Contracts of this folder. Each has a source in `contracts/` and a committed artefact in `artefacts/`. */
export const CONTRACTS = [
  ...(["LocalUsdc", "UsdCoin", "Multicall"] as const),
  ...(["AuthCaptureEscrow", "Eip3009Collector", "OperatorRefundCollector"] as const),
] as const;
export type ContractName = (typeof CONTRACTS)[number];

export const artefactPath = (contract: ContractName): string =>
  fileURLToPath(new URL(`./artefacts/${contract}.json`, import.meta.url));

/** The committed artefact: neither solc nor openzeppelin is needed to run the chain. */
export const readArtefact = (contract: ContractName): Artefact =>
  JSON.parse(readFileSync(artefactPath(contract), "utf8")) as Artefact;
