import { join } from "node:path";
import { x402Client } from "@x402/core/client";
import { AuthCaptureEvmScheme } from "@x402/evm/auth-capture/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { createSecret, hasSecret, loadSecret } from "../infra/keys/keys.ts";
import { isAlive } from "../infra/processes.ts";
import { accountOf } from "../infra/rails/account.ts";
import type { Wallet } from "../infra/rails/rails.ts";
import { readKeyFile } from "../infra/rails/wallet-folder.ts";
import { createLocalWallets } from "../infra/rails/wallets.ts";
import { folders } from "../pipelines/roles/data-folder.ts";
import { payBy } from "../serving/client/index.ts";
import { readWorld } from "./world.ts";

/** Name of the file with the secret that the demo's purse follows from, in a folder of its own beside the market. */
const PURSE = "purse";
/** Amount up to which the demo's purse is filled when it holds less than half of it: 10 USDC, in micro-units. */
const FULL_MICRO = 10_000_000n;

/** The wallet of the person at the terminal. */
export interface Purse {
  address: string;
  /** Tells whose money it is. */
  says: string;
  /** Networks that it pays on, as the official client names them. */
  networks: `${string}:${string}`;
  wallet: Wallet;
}

/**
 * The wallet of a key file that its owner alone can read; without one the demo's own purse, whose money is minted on the
 * local chain of the demo in this data folder.
 * @throws Failure `keys`; `wallet` where there is neither; `chain` where the demo is not running
 */
export async function openPurse(config: Config, keyFile: string | undefined): Promise<Purse> {
  if (keyFile !== undefined) {
    const wallet = readKeyFile(keyFile);
    return { wallet, address: wallet.address, networks: "eip155:*", says: `the wallet of ${keyFile}` };
  }
  const { market } = folders(config.data_dir);
  const world = readWorld(market);
  if (world === null) {
    const what = `no demo was started in ${config.data_dir}, whose money could be used`;
    throw new Failure("wallet", `${what}: name the file of your wallet's key with --key`);
  }
  if (!isAlive(world.pid)) throw new Failure("chain", `the demo of ${config.data_dir} is not running: npm start`);
  const dir = join(market, PURSE);
  if (!hasSecret(dir, PURSE)) createSecret(dir, PURSE);
  const { rpcUrl, asset, chainId } = world;
  const wallet = await createLocalWallets({ rpcUrl, asset, seed: loadSecret(dir, PURSE) }).named("buyer", FULL_MICRO);
  return { wallet, address: wallet.address, networks: `eip155:${chainId}`, says: "the demo's purse" };
}

/**
 * A fetch that pays a 402 once, by the official client. @param most a decimal sum of dollars, which one payment cannot
 * exceed
 */
export function payingFrom(
  { wallet, networks }: Purse,
  fetch: typeof globalThis.fetch,
  { most, escrow }: { most: string; escrow: boolean },
): typeof globalThis.fetch {
  const account = accountOf(wallet);
  const client = new x402Client()
    .register(networks, new ExactEvmScheme(account))
    .register(networks, new AuthCaptureEvmScheme(account))
    .registerPolicy(payBy(escrow ? "escrow" : "delivery") as never)
    .setSpendControls({ maxAmountPerPayment: `$${most}` });
  return wrapFetchWithPayment(fetch, client) as typeof globalThis.fetch;
}
