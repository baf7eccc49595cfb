import { systemClock } from "../clock.ts";

/** Largest number of settlements of one wallet at once. */
const MAX_PER_WALLET = 64;
/** Longest wait of a settlement for earlier ones of its wallet, real ms. */
const MAX_WAIT_MS = 20_000;

/** One settlement that is running. */
interface RunningSettlement {
  amountAtomic: bigint;
  isOver: boolean;
  /** Resolves when the settlement has ended. */
  over: Promise<void>;
}

/**
 * Bounds the settlements (transactions that collect signed payments) that run at once for one payer's wallet. Each is
 * simulated before it is sent, but only against the newest block. If twelve settlements of a wallet with money for
 * one ran at once, all simulations would pass, and eleven transactions would revert at our cost. So a settlement runs
 * beside earlier ones while the wallet's balance covers all of them, and otherwise waits for them. Settlements that
 * other processes send are not counted.
 */
export class InFlightSettlements {
  readonly #runningByWallet = new Map<string, readonly RunningSettlement[]>();

  /**
   * Runs a settlement: at once if no settlement of this wallet is running, otherwise as soon as the wallet's balance
   * covers it beside the earlier ones that still run, or turns out too small for it alone.
   * @param amountAtomic what the settlement takes from the wallet, atomic units
   * @param readBalance reads the wallet's balance, atomic units; called only while other settlements of the wallet
   * run
   * @param settle runs the settlement
   * @returns what `settle` returns, or null when it was not run: 64 settlements are running, or the earlier ones took
   * more than 20 s
   * @throws what `readBalance` and `settle` throw
   */
  async run<T>(
    wallet: string,
    amountAtomic: bigint,
    readBalance: () => Promise<bigint>,
    settle: () => Promise<T>,
  ): Promise<T | null> {
    const earlier = this.#runningByWallet.get(wallet) ?? [];
    if (earlier.length >= MAX_PER_WALLET) return null;
    let resolveOver = () => {};
    const over = new Promise<void>((resolve) => {
      resolveOver = resolve;
    });
    const settlement: RunningSettlement = { amountAtomic, isOver: false, over };
    this.#runningByWallet.set(wallet, [...earlier, settlement]);
    try {
      return (await this.#waitTurn(earlier, amountAtomic, readBalance)) ? await settle() : null;
    } finally {
      settlement.isOver = true;
      const remaining = this.#runningByWallet.get(wallet)!.filter((other) => other !== settlement);
      if (remaining.length > 0) this.#runningByWallet.set(wallet, remaining);
      else this.#runningByWallet.delete(wallet);
      resolveOver();
    }
  }

  /**
   * Waits while the balance does not cover this settlement and the earlier ones that still run. Later ones are not
   * waited for, so that no two settlements wait for each other.
   * @returns false after 20 s
   */
  async #waitTurn(
    earlier: readonly RunningSettlement[],
    amountAtomic: bigint,
    readBalance: () => Promise<bigint>,
  ): Promise<boolean> {
    const deadline = systemClock.monotonic() + MAX_WAIT_MS;
    for (;;) {
      const running = earlier.filter(({ isOver }) => !isOver);
      if (running.length === 0) return true;
      const balance = await readBalance();
      const neededAtomic = running.reduce((sum, one) => sum + one.amountAtomic, amountAtomic);
      // When the wallet holds less than this settlement's amount, the settlement need not wait: its simulation refuses
      // it.
      if (balance >= neededAtomic || balance < amountAtomic) return true;
      const waitMs = deadline - systemClock.monotonic();
      if (waitMs <= 0) return false;
      const timerController = new AbortController();
      const timeout = systemClock.sleep(waitMs, timerController.signal).catch(() => {});
      await Promise.race([timeout, ...running.map((one) => one.over)]);
      timerController.abort();
    }
  }
}
