import { systemClock } from "../clock.ts";

/** Settlements of one wallet at once, and how long one waits for those before it, real ms. */
const MAX_OF_ONE = 64;
const WAIT_MS = 20_000;

interface One {
  amountAtomic: bigint;
  isOver: boolean;
  over: Promise<void>;
}

/**
 * What is being taken from wallets by this process at this moment. A simulation sees the newest block alone: of twelve
 * settlements of a wallet with money for one, each would pass, and eleven would revert at our cost. So one goes ahead
 * beside those before it while the wallet holds enough for all of them, and otherwise once they are over. Settlements
 * that other processes send are not seen here.
 */
export class InFlightSettlements {
  readonly #of = new Map<string, readonly One[]>();

  /**
   * Does it when its turn has come: at once where nothing of this wallet is under way.
   * @param held what the wallet holds now, asked only where something else is under way
   * @returns null: it was not done, since too many wait, or those before it took more than 20 s
   * @throws what `held` and `act` throw
   */
  async run<T>(
    wallet: string,
    amountAtomic: bigint,
    held: () => Promise<bigint>,
    act: () => Promise<T>,
  ): Promise<T | null> {
    const before = this.#of.get(wallet) ?? [];
    if (before.length >= MAX_OF_ONE) return null;
    let end = () => {};
    const over = new Promise<void>((resolve) => {
      end = resolve;
    });
    const one: One = { amountAtomic, isOver: false, over };
    this.#of.set(wallet, [...before, one]);
    try {
      return (await this.#turn(before, amountAtomic, held)) ? await act() : null;
    } finally {
      one.isOver = true;
      const left = this.#of.get(wallet)!.filter((other) => other !== one);
      if (left.length > 0) this.#of.set(wallet, left);
      else this.#of.delete(wallet);
      end();
    }
  }

  /** Waits only for those that came before, so that no two wait for each other. */
  async #turn(before: readonly One[], amountAtomic: bigint, held: () => Promise<bigint>): Promise<boolean> {
    const deadline = systemClock.monotonic() + WAIT_MS;
    for (;;) {
      const left = before.filter(({ isOver }) => !isOver);
      if (left.length === 0) return true;
      const has = await held();
      const all = left.reduce((sum, one) => sum + one.amountAtomic, amountAtomic);
      // With less than its own amount it waits for nobody: its simulation refuses it.
      if (has >= all || has < amountAtomic) return true;
      const waitMs = deadline - systemClock.monotonic();
      if (waitMs <= 0) return false;
      const enough = new AbortController();
      const late = systemClock.sleep(waitMs, enough.signal).catch(() => {});
      await Promise.race([late, ...left.map((one) => one.over)]);
      enough.abort();
    }
  }
}
