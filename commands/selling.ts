import { randomBytes } from "node:crypto";
import type { Clock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import type { Egress } from "../infra/egress/egress.ts";
import { ownLoop } from "../infra/loop-watch.ts";
import { createEvmRail } from "../infra/rails/evm.ts";
import type { Wallet } from "../infra/rails/rails.ts";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import { Control } from "../pipelines/1-observe/probe/exchange.ts";
import { ownReader } from "../pipelines/1-observe/reading/reader.ts";
import { Buying, type Till } from "../pipelines/orders/buying.ts";
import { ORDER_CAPS } from "../pipelines/orders/caps.ts";
import { OrderLog } from "../pipelines/orders/order-log.ts";
import { SALE_POLICY } from "../serving/buy/eligible.ts";
import type { Sales } from "../serving/buy/pay-on-delivery.ts";
import type { ServingLog } from "../serving/replica/late-log.ts";

/** Where buyers pay and sellers are paid from. */
export interface SellingMoney {
  rpcUrl: string;
  asset: string;
  till: Till;
  /** Address that buyers pay. */
  payTo: string;
  float(): Promise<Wallet>;
  settlePollMs?: readonly number[];
}

export interface SellingParts {
  config: Config;
  egress: Egress;
  log: ServingLog;
  logger: Logger;
  metrics: Metrics;
}

/** What calls are bought with, over this process's way out and the log. */
export function openSales(parts: SellingParts, clock: Clock, money: SellingMoney): Sales & { close(): Promise<void> } {
  const { config, egress, log, logger, metrics } = parts;
  const { network, confirmations } = config.chain;
  const rail = createEvmRail({ rpcUrl: money.rpcUrl, network, asset: money.asset, confirmations });
  const seller = {
    ...{ egress, reader: ownReader, loop: ownLoop, rail, float: money.float },
    control: new Control(egress, config.control_url),
  };
  const orders = new OrderLog(log, clock, randomBytes(9).toString("base64url"));
  const buying = new Buying({
    ...{ orders, seller, till: money.till, caps: ORDER_CAPS, clock, logger, metrics },
    ...(money.settlePollMs ? { settlePollMs: money.settlePollMs } : {}),
  });
  return {
    ...{ buying, seller, till: money.till, policy: SALE_POLICY },
    cashier: { network, asset: money.asset.toLowerCase(), payTo: money.payTo.toLowerCase() },
    close: async () => {
      orders.close();
      await rail.close();
    },
  };
}
