import { createHmac } from "node:crypto";
import { formatUnits } from "viem";
import { type Clock, systemClock } from "../clock.ts";
import { forEachConcurrent } from "../concurrency.ts";
import type { Logger, Metrics } from "../telemetry.ts";
import { NoWallet, type PaymentNeed, type Rail, type Wallet, type Wallets } from "./rails.ts";
import type { WalletFolder, WalletUse } from "./wallet-folder.ts";

export interface FundedWalletsOptions {
  folder: Pick<WalletFolder, "dir" | "read" | "use">;
  /** Reads balances from the chain; decimals are only used in messages. */
  rail: Pick<Rail, "balance" | "decimalsOf">;
  /** At least 16 bytes. Key of the random choice among unused wallets, so that others cannot predict the choice. */
  secret: Uint8Array;
  logger: Pick<Logger, "warn">;
  metrics: Pick<Metrics, "count">;
  /** Clock of real time (default: the system's), never of simulated time, since a payment expires in chain time. */
  clock?: Pick<Clock, "now">;
}

/** Validity that is assumed for a payment whose validity is not known, s: the longest that this service signs. */
const LONGEST_VALIDITY_S = 300;
/**
 * Time after a payment's validity for which its amount stays reserved, s: signing it, and reading its block, take time.
 */
const BLOCK_MARGIN_S = 60;
/** Time for which a wallet that held too little is skipped, ms. */
const POOR_WALLET_PAUSE_MS = 60_000;
const MAX_CONCURRENT_READS = 8;

/** A signed payment that may still settle, and until when (unix ms). `place` is its network and asset. */
interface OpenPayment {
  address: string;
  place: string;
  amountAtomic: bigint;
  until: number;
}

const assetKey = ({ network, asset }: Pick<PaymentNeed, "network" | "asset">): string =>
  `${network} ${asset.toLowerCase()}`;

const shuffleWallets = (secret: Uint8Array, drawLabel: string, wallets: readonly Wallet[]): Wallet[] =>
  wallets
    .map((wallet) => ({
      wallet,
      rank: createHmac("sha256", secret).update(`draw|${drawLabel}|${wallet.address}`).digest("hex"),
    }))
    .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    .map(({ wallet }) => wallet);

/** Tracks the balances of wallets minus the payments that were signed and may still settle. */
function createBalances(rail: Pick<Rail, "balance">, now: () => number) {
  const openPayments: OpenPayment[] = [];
  const poorUntil = new Map<string, number>();

  /** Returns the balance of a wallet minus its open payments, atomic units; it may be negative. @throws ChainDown */
  async function freeBalance(address: string, need: PaymentNeed): Promise<bigint> {
    const place = assetKey(need);
    const { value: balance } = await rail.balance(address, need);
    // A payment that settled within the last minutes is missing from the balance and also still open, so it is
    // subtracted twice: the result may be too low but never too high.
    const paymentsOfWallet = openPayments.filter(
      (one) => one.until > now() && one.address === address && one.place === place,
    );
    return paymentsOfWallet.reduce((left, { amountAtomic }) => left - amountAtomic, balance);
  }

  /** Subtracts a payment from the free balance of a wallet while it may still settle. @returns the wallet */
  function reserve(wallet: Wallet, need: PaymentNeed): Wallet {
    const expiredPayments = openPayments.filter(({ until }) => until <= now());
    for (const one of expiredPayments) openPayments.splice(openPayments.indexOf(one), 1);
    const { amountAtomic, validForS = LONGEST_VALIDITY_S, onlyAsked = false } = need;
    const until = now() + (validForS + BLOCK_MARGIN_S) * 1_000;
    if (!onlyAsked) openPayments.push({ address: wallet.address, place: assetKey(need), amountAtomic, until });
    return wallet;
  }

  /**
   * Returns the first of these wallets that can pay, or null. Skips wallets that held too little within the last
   * minute.
   */
  async function findFundedWallet(wallets: readonly Wallet[], need: PaymentNeed): Promise<Wallet | null> {
    const key = (wallet: Wallet) => `${wallet.address} ${assetKey(need)}`;
    const candidates = wallets.filter((wallet) => (poorUntil.get(key(wallet)) ?? 0) <= now());
    for (let from = 0; from < candidates.length; from += MAX_CONCURRENT_READS) {
      const batch = candidates.slice(from, from + MAX_CONCURRENT_READS);
      const hasEnough = new Map<Wallet, boolean>();
      await forEachConcurrent(batch, MAX_CONCURRENT_READS, async (wallet) => {
        const isEnough = (await freeBalance(wallet.address, need)) >= need.amountAtomic;
        hasEnough.set(wallet, isEnough);
        if (!isEnough && need.amountAtomic > 0n) poorUntil.set(key(wallet), now() + POOR_WALLET_PAUSE_MS);
      });
      const fundedWallet = batch.find((wallet) => hasEnough.get(wallet));
      if (fundedWallet) return fundedWallet;
    }
    return null;
  }

  return { freeBalance, reserve, findFundedWallet };
}

/**
 * Creates wallets that an operator funds from outside. No money is minted, and no wallet is filled from another one,
 * so that transfers do not link them.
 *
 * A blind wallet (one that sellers do not know) is chosen at random among those never used. It belongs to one
 * endpoint on one UTC day and never pays on another day, because the published evidence of its day names it. When no
 * unused wallet has the money, a wallet that another endpoint uses on the same day is shared, and a metric counts
 * that. When none has the money, the call is not made (NoWallet).
 *
 * The amounts of signed payments that may still settle are reserved, so that no payment is signed that the wallet
 * cannot cover: a seller that gets an uncovered signature would look like one that refuses to deliver.
 */
export function createFundedWallets(options: FundedWalletsOptions): Wallets {
  const { folder, rail, secret, logger, metrics, clock = systemClock } = options;
  if (secret.length < 16) throw new RangeError("the secret of the draw must have at least 16 bytes");
  const { freeBalance, reserve, findFundedWallet } = createBalances(rail, () => clock.now().getTime());
  const formatAmount = (atomic: bigint, need: PaymentNeed): string =>
    `${formatUnits(atomic, rail.decimalsOf?.(need) ?? 6)} on ${need.network}`;

  async function drawBlindWallet(cap: string, day: string, need: PaymentNeed): Promise<Wallet> {
    const { blind, uses } = folder.read();
    const usesOf = new Map<string, WalletUse[]>();
    for (const use of uses) usesOf.set(use.address, [...(usesOf.get(use.address) ?? []), use]);
    const usesOfWallet = (wallet: Wallet): WalletUse[] => usesOf.get(wallet.address) ?? [];
    const walletsOfDay = blind.filter(
      (one) => usesOfWallet(one).length > 0 && usesOfWallet(one).every((use) => use.day === day),
    );
    const ownWallet = await findFundedWallet(
      walletsOfDay.filter((one) => usesOfWallet(one).some((use) => use.cap === cap)),
      need,
    );
    if (ownWallet) return ownWallet;
    const shuffle = (wallets: Wallet[]) => shuffleWallets(secret, `${day}|${cap}`, wallets);
    const unused = blind.filter((one) => usesOfWallet(one).length === 0);
    const unusedWallet = await findFundedWallet(shuffle(unused), need);
    const sharedWallet = unusedWallet
      ? null
      : await findFundedWallet(
          shuffle(walletsOfDay.filter((one) => !usesOfWallet(one).some((u) => u.cap === cap))),
          need,
        );
    const drawnWallet = unusedWallet ?? sharedWallet;
    if (!drawnWallet) {
      metrics.count("touchstone_blind_wallets_missing_total", { network: need.network });
      throw new NoWallet(
        `no blind wallet has ${formatAmount(need.amountAtomic, need)}: ${unused.length} of ${blind.length} were never used`,
      );
    }
    if (sharedWallet) {
      metrics.count("touchstone_blind_wallets_shared_total", { network: need.network });
      logger.warn({ day, network: need.network }, "a blind wallet is shared by two endpoints: too few have money");
    }
    folder.use({ address: drawnWallet.address, day, cap, network: need.network });
    return drawnWallet;
  }

  // Wallets are chosen one at a time: two choices at once could take one wallet twice, or reserve its money twice.
  let lastDraw: Promise<unknown> = Promise.resolve();
  const runInOrder = <T>(work: () => Promise<T>): Promise<T> => {
    const result = lastDraw.then(work);
    lastDraw = result.catch(() => {});
    return result;
  };
  return {
    known: (need) =>
      runInOrder(async () => {
        const { known } = folder.read();
        if (!known) throw new NoWallet(`there is no known wallet in ${folder.dir}: touchstone wallets new`);
        if (!need) return known;
        const freeAmount = await freeBalance(known.address, need);
        if (freeAmount >= need.amountAtomic) return reserve(known, need);
        metrics.count("touchstone_known_wallet_short_total", { network: need.network });
        const cost = `the call costs ${formatAmount(need.amountAtomic, need)}`;
        throw new NoWallet(
          `the known wallet has ${formatAmount(freeAmount < 0n ? 0n : freeAmount, need)} left, and ${cost}`,
        );
      }),
    blind: (cap, day, atLeastAtomic, need) =>
      runInOrder(async () => {
        if (!need) throw new TypeError("a funded wallet is drawn for a network and an asset");
        const blindNeed = { ...need, amountAtomic: atLeastAtomic };
        return reserve(await drawBlindWallet(cap, day, blindNeed), blindNeed);
      }),
  };
}
