import type { WorldInfo } from "../../../fixtures/market/world.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import { createLocalWallets } from "../../../infra/rails/wallets.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { createObserver, type Observer } from "../../../pipelines/1-observe/observer.ts";
import { STEADY_LOOP } from "../../helpers/steady-loop.ts";
import { CONFIG, type FakeLog, type LogMemory } from "./world.ts";

export interface MarketObserverParts {
  log: FakeLog;
  egress: Egress;
  clock: Clock;
  memory: LogMemory;
  /** Wallets hang on it: two observers of one market have different ones. */
  seed: number;
}

/** An observer of the real market, which pays on its chain. */
export function marketObserver({ rpcUrl, asset, chainId, control }: WorldInfo, parts: MarketObserverParts): Observer {
  const { seed, ...rest } = parts;
  return createObserver({
    loop: STEADY_LOOP,
    ...rest,
    rail: createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 }),
    wallets: createLocalWallets({ rpcUrl, asset, seed: Buffer.alloc(32, seed) }),
    logger: createLogger("silent"),
    metrics: createMetrics(),
    config: {
      ...CONFIG,
      controlUrls: [control],
      hostsAtOnce: 24,
      settlePollMs: [20],
    },
  });
}
