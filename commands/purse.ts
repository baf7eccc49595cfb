import { join } from "node:path";
import { x402Client } from "@x402/core/client";
import { AuthCaptureEvmScheme } from "@x402/evm/auth-capture/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { createSecret, hasSecret, loadSecret } from "../infra/keys/keys.ts";
import { accountOf } from "../infra/rails/account.ts";
import type { Wallet } from "../infra/rails/rails.ts";
import { readKeyFile } from "../infra/rails/wallet-folder.ts";
import { createLocalWallets } from "../infra/rails/wallets.ts";
import { foldersOf } from "../pipelines/roles/data-folder.ts";
import { payBy } from "../serving/client/index.ts";
import { isAlive, readWorld } from "./world.ts";

/**
 * Name of the secret from which the wallet of the demo's user (the purse) is derived, and of the folder of that secret
 * inside the market's folder.
 */
const PURSE_SECRET = "purse";
/** Amount to which the demo's purse is filled whenever it holds less than half of it, in micro-units: 10 USDC. */
const FULL_MICRO = 10_000_000n;

/** The wallet from which the user of the command line pays. */
export interface Purse {
  address: string;
  /** Description of the wallet, for a person. */
  says: string;
  /** Networks on which the wallet pays, in the notation of the official x402 client. */
  networks: `${string}:${string}`;
  wallet: Wallet;
}

/**
 * Opens the wallet of a key file, which nobody but its owner may be able to read. Without a key file it opens the
 * demo's purse, whose money is minted on the local chain of the demo in this data folder.
 * @throws Failure `keys`; `wallet` if there is neither a key file nor a demo; `chain` if the demo is not running
 */
export async function openPurse(config: Config, keyFile: string | undefined): Promise<Purse> {
  if (keyFile !== undefined) {
    const wallet = readKeyFile(keyFile);
    return { wallet, address: wallet.address, networks: "eip155:*", says: `the wallet of ${keyFile}` };
  }
  const { market } = foldersOf(config.data_dir);
  const world = readWorld(market);
  if (world === null) {
    const reason = `there is no wallet to pay from: no --key is given, and ${config.data_dir} has no demo`;
    throw new Failure("wallet", `${reason}. Name the file of your wallet's key with --key`);
  }
  if (!isAlive(world.pid)) throw new Failure("chain", `the demo of ${config.data_dir} is not running: npm start`);
  const dir = join(market, PURSE_SECRET);
  if (!hasSecret(dir, PURSE_SECRET)) createSecret(dir, PURSE_SECRET);
  const { rpcUrl, asset, chainId } = world;
  const wallet = await createLocalWallets({ rpcUrl, asset, seed: loadSecret(dir, PURSE_SECRET) }).named(
    "buyer",
    FULL_MICRO,
  );
  return { wallet, address: wallet.address, networks: `eip155:${chainId}`, says: "the demo's purse" };
}

/**
 * Returns a fetch that pays a 402 once, with the official x402 client. `most`: largest amount of one payment, in
 * dollars. `escrow`: true to pay into escrow instead of on delivery.
 */
export function createPayingFetch(
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
