import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { hasFixedBlockTime } from "../../infra/rails/networks.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import type { Logger } from "../../infra/telemetry.ts";

/**
 * Time of the newest block of the chain that we pay on. `fixedBlockTime`: the chain makes blocks at a fixed pace.
 * Only then does an old newest block show that a clock is wrong.
 */
export interface ChainTime {
  newest: Date;
  fixedBlockTime: boolean;
}

/**
 * Returns a function that reads the time of the chain's newest block, or returns null when the node does not answer.
 */
export const createChainTimeReader =
  (rail: Pick<Rail, "head" | "network">, logger: Logger) => async (): Promise<ChainTime | null> => {
    try {
      const head = await rail.head({ network: rail.network });
      return { newest: new Date(head.time * 1000), fixedBlockTime: hasFixedBlockTime(rail.network) };
    } catch (error) {
      // The chain's time is only compared with our clock here, so publication goes on without it.
      logger.warn({ err: error }, "the chain's time could not be read");
      return null;
    }
  };

/** This machine's clock must be wrong, so nothing is published: a wrong time in the log could not be removed. */
export class ClockRefused extends Failure {
  constructor(reason: string) {
    super("failed", `not publishing: ${reason}`);
  }
}

const MAX_CLOCK_DIFFERENCE_MS = 30_000;

export interface Clocks {
  clock: Clock;
  chainTime?: () => Promise<ChainTime | null>;
}

/**
 * Returns the time of the next publication: now, and never before the time of `generation`, the last extension of the
 * log. A simulated clock may go back after a crash; then the time of `generation` is returned.
 * @throws ClockRefused when a real clock is behind the time of `generation`.
 */
export function publicationTime({ clock }: Clocks, generation: { at: string } | null): Date {
  const now = clock.now();
  const lastTime = generation ? new Date(generation.at) : now;
  if (now >= lastTime) return now;
  if (clock.simulated) return lastTime;
  throw new ClockRefused(`our clock says ${now.toISOString()}, the last generation was at ${lastTime.toISOString()}`);
}

/**
 * Compares `publishAt` with the time of the chain's newest block. Does nothing in simulated time.
 * @throws ClockRefused when the block is over 30 s ahead or, on a chain with a fixed block time, over 30 s behind
 */
export async function checkAgainstChain({ clock, chainTime }: Clocks, publishAt: Date): Promise<void> {
  const chain = clock.simulated || !chainTime ? null : await chainTime();
  if (!chain) return;
  const aheadMs = chain.newest.getTime() - publishAt.getTime();
  if (aheadMs > MAX_CLOCK_DIFFERENCE_MS || (chain.fixedBlockTime && -aheadMs > MAX_CLOCK_DIFFERENCE_MS)) {
    const direction = aheadMs > 0 ? "ahead of" : "behind";
    throw new ClockRefused(
      `the chain's newest block is ${Math.round(Math.abs(aheadMs) / 1000)} s ${direction} our clock`,
    );
  }
}

/**
 * Returns whether `time`, which the clock of another process gave, is over 30 s after the time of the next
 * publication. False in simulated time, which differs between processes.
 * @throws ClockRefused when our own clock is behind that of the last generation or of the chain
 */
export async function isAhead(clocks: Clocks, generation: { at: string } | null, time: string): Promise<boolean> {
  if (clocks.clock.simulated) return false;
  const publishAt = publicationTime(clocks, generation);
  if (new Date(time).getTime() - publishAt.getTime() <= MAX_CLOCK_DIFFERENCE_MS) return false;
  await checkAgainstChain(clocks, publishAt);
  return true;
}
