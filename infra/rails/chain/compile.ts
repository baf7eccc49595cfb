import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { Abi } from "viem";
import { type Artefact, artefactPath, CONTRACTS, type ContractName } from "./artefact.ts";

const require = createRequire(import.meta.url);

interface SolcOutput {
  errors?: { severity: string; formattedMessage: string }[];
  contracts?: Record<string, Record<string, { abi: Abi; evm: { bytecode: { object: string } } }>>;
}

/**
 * Compile one contract with the solc and the openzeppelin of package.json. Development only: run this file after a
 * change of a contract; a test compares. Deterministic: no metadata hash, so a path on a machine changes no byte.
 */
export function compile(contract: ContractName): Artefact {
  const solc = require("solc") as {
    version(): string;
    compile(input: string, callbacks: { import(path: string): { contents: string } }): string;
  };
  const file = `${contract}.sol`;
  const ours = (name: string) => readFileSync(fileURLToPath(new URL(`./contracts/${name}`, import.meta.url)), "utf8");
  const source = ours(file);
  const input = {
    language: "Solidity",
    sources: { [file]: { content: source } },
    settings: {
      evmVersion: "cancun",
      optimizer: { enabled: true, runs: 200 },
      metadata: { bytecodeHash: "none" },
      outputSelection: { "*": { [contract]: ["abi", "evm.bytecode.object"] } },
    },
  };
  // A contract of this folder is imported as `./Name.sol`, which the compiler calls `Name.sol`.
  const readImport = (path: string) => ({
    contents: path.includes("/") ? readFileSync(require.resolve(path), "utf8") : ours(path),
  });
  const output = JSON.parse(solc.compile(JSON.stringify(input), { import: readImport })) as SolcOutput;
  const fatal = output.errors?.filter((error) => error.severity === "error") ?? [];
  const built = output.contracts?.[file]?.[contract];
  if (fatal.length > 0 || !built) throw new Error(fatal.map((error) => error.formattedMessage).join("\n"));
  return { contract, compiler: solc.version(), abi: built.abi, bytecode: `0x${built.evm.bytecode.object}` };
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  for (const contract of CONTRACTS) {
    writeFileSync(artefactPath(contract), `${JSON.stringify(compile(contract), null, 2)}\n`);
  }
}
