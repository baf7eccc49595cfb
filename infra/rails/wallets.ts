import { createHmac } from "node:crypto";
import { type Address, encodeFunctionData, type Hex, parseAbi, toHex } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { ConfigError } from "../config.ts";
import type { PaymentNeed, Wallet, Wallets } from "./rails.ts";
import { ChainDown, chainRead, createReader, type Reader } from "./rpc.ts";

/** A chain and a token on it, both local. */
interface LocalToken {
  rpcUrl: string;
  /** Address of the token. */
  asset: string;
}

const TOKEN_ABI = parseAbi([
  "function topUp(address[] accounts, uint256[] floors)",
  "function balanceOf(address) view returns (uint256)",
  "function transfer(address to, uint256 amount) returns (bool)",
]);
/**
 * An account whose key the nodes of the local chains hold. It mints the tokens that wallets need; on a local Tempo
 * chain, where nobody can mint, it sends tokens that it holds.
 */
export const LOCAL_MINTER: Address = "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720";
const ACCOUNTS_PER_TRANSACTION = 64;
const GAS_PER_ACCOUNT = 70_000;
const MINT_ATTEMPTS = 5;
const MAX_WAITING = 2_000;
/**
 * Atomic units that a blind wallet on Tempo gets in addition to its payments, for fees, which are paid in the same
 * token. Each fee is far lower.
 */
const TEMPO_FEE_RESERVE = 50_000n;

export interface LocalWalletsOptions extends LocalToken {
  /** Secret from which all keys are derived, at least 16 bytes. */
  seed: Uint8Array;
  /** The local chain's token, which can be minted. */
  asset: string;
  /** A local Tempo chain (CAIP-2) and its dollar token. Payments on that chain are made by the same wallets. */
  tempo?: LocalToken & { network: string };
  /** Atomic units to which the known wallet is topped up when it holds less than half of them. Default 10,000 USDC. */
  knownFloorAtomic?: bigint;
}

/** Wallets of the local chain, with further wallets by role. */
export interface LocalWallets extends Wallets {
  /**
   * Returns the wallet of a role, e.g. the float that pays sellers, or the till that buyers pay into.
   * @param floorAtomic atomic units that the wallet is topped up to when it holds less than half of them; 0n for no
   * top-up. Default: the floor of the known wallet
   */
  named(role: string, floorAtomic?: bigint): Promise<Wallet>;
}

/**
 * Creates wallets on the local chain. Keys are HMAC-SHA256(seed, label), where the label holds the role and, for a
 * blind wallet, the endpoint's capability id (`cap`) and the day. So nothing is stored, and a restart has the same
 * wallets. They are funded by minting, or on Tempo by transfers from one account of the node, so no transfer runs from
 * one wallet to another.
 * @throws RangeError for a seed of less than 16 bytes
 */
export function createLocalWallets(options: LocalWalletsOptions): LocalWallets {
  const { seed, tempo, knownFloorAtomic = 10_000_000_000n } = options;
  if (seed.length < 16) throw new RangeError("a wallet seed has at least 16 bytes");
  const localMint = openMint(options, mintToFloors);
  const tempoMint = tempo && openMint(tempo, sendMissing);
  const isTempo = (need?: PaymentNeed): boolean => need !== undefined && need.network === tempo?.network;
  const known = walletOf(seed, "known");
  return {
    known: (need) => (isTempo(need) ? tempoMint! : localMint).withFloor(known, knownFloorAtomic),
    async named(role, floorAtomic = knownFloorAtomic) {
      if (!/^[a-z][a-z-]{0,31}$/.test(role)) throw new TypeError(`no name for a wallet: ${role}`);
      return localMint.withFloor(walletOf(seed, `named|${role}`), floorAtomic);
    },
    async blind(cap, day, atLeastAtomic, need) {
      const wallet = walletOf(seed, `blind|${cap}|${day}`);
      if (isTempo(need)) await tempoMint!.fund(wallet.address, atLeastAtomic + TEMPO_FEE_RESERVE);
      else await localMint.fund(wallet.address, atLeastAtomic);
      return wallet;
    },
  };
}

/**
 * Tops up a batch of accounts to their floors.
 * @throws ChainDown
 */
type TopUp = (reader: Reader, token: Address, batch: TopUpRequest[]) => Promise<void>;

/** Returns functions that top up wallets with one token of a local chain. */
function openMint({ rpcUrl, asset }: LocalToken, topUp: TopUp) {
  const reader = createReader(rpcUrl);
  const token = asset.toLowerCase() as Address;
  const fund = createFunding((batch) => topUp(reader, token, batch));
  return {
    /** Tops an account up to a floor, atomic units. */
    fund,
    /** Tops up an account to a floor as {@link fund} does, if the account holds less than half of the floor. */
    async withFloor(wallet: Wallet, floorAtomic: bigint): Promise<Wallet> {
      if ((await balanceOfAccount(reader, token, wallet.address as Address)) * 2n < floorAtomic)
        await fund(wallet.address, floorAtomic);
      return wallet;
    },
  };
}

const balanceOfAccount = (reader: Reader, token: Address, account: Address): Promise<bigint> =>
  chainRead("a balance", () =>
    reader.readContract({ address: token, abi: TOKEN_ABI, functionName: "balanceOf", args: [account] }),
  );

/** Derives the wallet of a seed and a label; its key is HMAC-SHA256(seed, label). */
export function walletOf(seed: Uint8Array, label: string): Wallet {
  // A secp256k1 key has to be below the group order. About one digest in 2^127 is not; then the next round is tried.
  for (let round = 0; ; round++) {
    const privateKey: Hex = `0x${createHmac("sha256", seed).update(`${label}|${round}`).digest("hex")}`;
    try {
      return { address: privateKeyToAddress(privateKey).toLowerCase(), privateKey };
    } catch (error) {
      if (round === 3) throw error;
    }
  }
}

/** An account that waits to be topped up. */
interface TopUpRequest {
  address: Address;
  /** Atomic units that the account has to hold at least. */
  floor: bigint;
  /** Called when the account was topped up, or with the error why it was not. */
  done: (error?: unknown) => void;
}

/**
 * Returns a function that tops up an account to a floor. Requests that come while a mint is running share the next
 * transaction.
 */
function createFunding(
  topUp: (batch: TopUpRequest[]) => Promise<void>,
): (address: string, floor: bigint) => Promise<void> {
  const waiting: TopUpRequest[] = [];
  let isRunning = false;
  async function run(): Promise<void> {
    isRunning = true;
    while (waiting.length > 0) {
      const batch = waiting.splice(0, ACCOUNTS_PER_TRANSACTION);
      const failure = await topUp(batch).then(
        () => undefined,
        (error: unknown) => error,
      );
      for (const { done } of batch) done(failure);
    }
    isRunning = false;
  }
  return (address, floor) =>
    new Promise((resolve, reject) => {
      if (waiting.length >= MAX_WAITING) return reject(new Error("too many wallets wait for money"));
      waiting.push({ address: address as Address, floor, done: (error) => (error ? reject(error) : resolve()) });
      if (!isRunning) queueMicrotask(() => isRunning || void run());
    });
}

/** Mints, in one transaction, what each account of a batch lacks to its floor. @throws ChainDown */
async function mintToFloors(reader: Reader, token: Address, batch: TopUpRequest[]): Promise<void> {
  const args = [batch.map((one) => one.address), batch.map((one) => one.floor)] as const;
  const data = encodeFunctionData({ abi: TOKEN_ABI, functionName: "topUp", args });
  await sendLocally(reader, { to: token, data, gas: `0x${(GAS_PER_ACCOUNT * (batch.length + 1)).toString(16)}` });
}

/** Sends from the minter what each account of a batch lacks to its floor, for a token that nobody can mint here. */
async function sendMissing(reader: Reader, token: Address, batch: TopUpRequest[]): Promise<void> {
  for (const { address, floor } of batch) {
    const balance = await balanceOfAccount(reader, token, address);
    if (balance >= floor) continue;
    const data = encodeFunctionData({ abi: TOKEN_ABI, functionName: "transfer", args: [address, floor - balance] });
    await sendLocally(reader, { to: token, data });
  }
}

/**
 * Sends a transaction from {@link LOCAL_MINTER}, and again when another process sent from that account at the same
 * moment.
 * @throws ChainDown
 */
export async function sendLocally(reader: Reader, call: { to: Address; data: Hex; gas?: Hex }): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const transaction = { from: LOCAL_MINTER, ...call };
      // A method of the node that the client's types do not know; it answers when the transaction is in a block.
      const receipt: { status: Hex } = await reader.request({
        method: "eth_sendTransactionSync",
        params: [transaction],
      } as never);
      if (receipt.status !== "0x1") throw new Error("the token refused to give");
      return;
    } catch (error) {
      const isNonceClash = /nonce|underpriced|already/i.test(String(error));
      if (!isNonceClash) throw new ChainDown("wallets could not be funded", { cause: error });
      if (attempt === MINT_ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 5 * attempt));
    }
  }
}

/**
 * Refuses to mint on anything but a local chain, recognised by its node (anvil).
 * @throws ConfigError on any other chain; ChainDown when the node does not answer
 */
export async function requireLocalChain(rpcUrl: string): Promise<void> {
  const reader = createReader(rpcUrl);
  const version = await chainRead("its version", () => reader.request({ method: "web3_clientVersion" }));
  if (!/^anvil\b/i.test(version))
    throw new ConfigError([`wallets.mint: money is minted on a local chain alone, and this node is ${version}`]);
}

/**
 * Sets the balance of an address to 1,000 ETH for gas when it has less than 1 ETH. Works on a local chain (anvil) only;
 * other nodes do not know the method, and it throws.
 */
export async function giveLocalGas(rpcUrl: string, address: string): Promise<void> {
  const reader = createReader(rpcUrl);
  const balance = await chainRead("gas", () => reader.getBalance({ address: address as Address }));
  if (balance >= 10n ** 18n) return;
  // A method of the node that the client's types do not know.
  await reader.request({ method: "anvil_setBalance", params: [address, toHex(10n ** 21n)] } as never);
}
