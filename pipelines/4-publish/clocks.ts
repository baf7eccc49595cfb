import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import type { Logger } from "../../infra/telemetry.ts";

/** Time of the chain's newest block, and whether blocks have a fixed pace (only then does an old block show an error). */
export interface ChainTime {
  newest: Date;
  fixedBlockTime: boolean;
}

/** Returns a function that reads the time of the chain's newest block; it gives null when the node does not answer. */
export const chainTimeReader =
  (rail: Pick<Rail, "head" | "network">, logger: Logger) => async (): Promise<ChainTime | null> => {
    try {
      const head = await rail.head({ network: rail.network });
      return { newest: new Date(head.time * 1000), fixedBlockTime: true };
    } catch (error) {
      // The chain's time is only compared with our clock here, so publication goes on without it.
      logger.warn({ err: error }, "the chain's time could not be read");
      return null;
    }
  };

/** Our clock cannot be right, so nothing is published: a time once in the log stays there. */
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
 * Returns the time of the next publication, which is never before that of the last one. A simulated clock may go back
 * after a crash; then the time of the last generation is used.
 * @throws ClockRefused when a real clock is behind the last generation.
 */
export function publicationTime({ clock }: Clocks, generation: { at: string } | null): Date {
  const now = clock.now();
  const lastTime = generation ? new Date(generation.at) : now;
  if (now >= lastTime) return now;
  if (clock.simulated) return lastTime;
  throw new ClockRefused(`our clock says ${now.toISOString()}, the last generation was at ${lastTime.toISOString()}`);
}

/** Compares `publishAt`, a real time, with the chain. @throws ClockRefused when the newest block is more than 30 s off */
export async function compareWithChain({ clock, chainTime }: Clocks, publishAt: Date): Promise<void> {
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
