import { mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { LocalChain } from "../../fixtures/chain/local-chain.ts";

/** Makes a data folder with what a running demo leaves there for other commands: the description of its world. */
export async function makeDemoFolder({ rpcUrl, chainId, asset }: LocalChain): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "demo-folder-"));
  await mkdir(join(dir, "market"));
  await writeFile(join(dir, "market/world.json"), JSON.stringify({ pid: process.pid, rpcUrl, chainId, asset }));
  return dir;
}
