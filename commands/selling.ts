import { randomBytes } from "node:crypto";
import type { Clock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { type Egress, saying } from "../infra/egress/egress.ts";
import { ownLoop } from "../infra/loop-watch.ts";
import { createAuthorizations } from "../infra/rails/authorization.ts";
import { createEscrow } from "../infra/rails/escrow.ts";
import { createFacilitator } from "../infra/rails/facilitator.ts";
import { networksIn, railOn } from "../infra/rails/networks.ts";
import type { Wallet } from "../infra/rails/rails.ts";
import { createReader, type Reader } from "../infra/rails/rpc.ts";
import { createSender, type Sender } from "../infra/rails/sender.ts";
import { createTill, type Till } from "../infra/rails/till.ts";
import { giveLocalGas, type LocalWallets } from "../infra/rails/wallets.ts";
import type { Store } from "../infra/store/store.ts";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import { Control } from "../pipelines/1-observe/probe/exchange.ts";
import { PRICES } from "../pipelines/1-observe/queue.ts";
import { ownReader } from "../pipelines/1-observe/reading/reader.ts";
import { Buying } from "../pipelines/orders/buying.ts";
import { ORDER_CAPS, type OrderCaps } from "../pipelines/orders/caps.ts";
import { Holding } from "../pipelines/orders/holding.ts";
import { OrderLog } from "../pipelines/orders/order-log.ts";
import { PublishingCalls, payerNames } from "../pipelines/orders/publishing-calls.ts";
import { type Recovering, Recovery, STALE_MS, startRecovery } from "../pipelines/orders/recovery.ts";
import { foldsOf } from "../pipelines/roles/parts.ts";
import type { Sales } from "../serving/buy/counter.ts";
import { SALE_POLICY } from "../serving/buy/eligible.ts";
import type { ServingLog } from "../serving/replica/late-log.ts";

/** The money of a service that sells: which wallets it has, and who charges its buyers. */
export interface SellingMoney {
  rpcUrl: string;
  asset: string;
  reader: Reader;
  /** Pays the gas of refunds, and operates the escrow: of one key there is one line of nonces in a process. */
  sender: Sender;
  /** Charges buyers. */
  charger: Till;
  /** Wallet that buyers pay, and refunds leave from. */
  till: Wallet;
  /** Wallet that sellers are paid from, with money on it. */
  float(): Promise<Wallet>;
  caps?: OrderCaps;
  settlePollMs?: readonly number[];
  staleMs?: number;
  lookMs?: number;
}

export interface SellingParts {
  config: Config;
  egress: Egress;
  log: ServingLog;
  /** Calls that their buyers publish are put there. */
  publicStore: Store;
  /** The names of buyers hang on it: another secret makes other names of the same wallets. */
  secret: Uint8Array;
  logger: Logger;
  metrics: Metrics;
}

export interface OpenSales extends Sales {
  recovering: Recovering;
  close(): Promise<void>;
}

/** What calls are bought with, over this process's way out and the log; orders that were left open are brought on. */
export function openSales(parts: SellingParts, clock: Clock, money: SellingMoney): OpenSales {
  const { config, egress, log, publicStore, secret, logger, metrics } = parts;
  const sold = networksIn(config)[0]!;
  const { id: network, confirmations } = sold;
  const asset = money.asset.toLowerCase() as `0x${string}`;
  const assets = sold.assets.filter(({ address }) => address === asset);
  const rail = railOn([{ ...sold, assets, rpcUrls: [money.rpcUrl], agree: 1 }]);
  const seller = {
    ...{ egress, reader: ownReader, loop: ownLoop, rail, float: money.float },
    control: new Control(saying(egress, { pool: PRICES }), config.control_urls),
  };
  const replica = randomBytes(9).toString("base64url");
  const orders = new OrderLog(log, clock, replica, foldsOf(config, log, logger));
  const { reader, sender } = money;
  const onChain = { reader, network, asset, confirmations };
  const escrow = createEscrow({ money: onChain, sender, payTo: money.till.address });
  const authorizations = createAuthorizations(onChain, sender);
  const pollMs = money.settlePollMs;
  const holding = new Holding({ orders, escrow, rail, confirmations, logger, metrics, ...(pollMs ? { pollMs } : {}) });
  const buying = new Buying({
    ...{ orders, seller, till: money.charger, holding, authorizations },
    ...{ caps: money.caps ?? ORDER_CAPS, clock, logger, metrics },
    ...(pollMs ? { settlePollMs: pollMs } : {}),
  });
  const publishing = new PublishingCalls({ orders, log, publicStore, nameOf: payerNames(secret), metrics });
  const recovery = new Recovery({
    ...{ buying, holding, rail, publishing, logger, metrics, staleMs: money.staleMs ?? STALE_MS },
    ...{ till: async () => money.till, authorizations },
  });
  const recovering = startRecovery(recovery, logger, money.lookMs);
  return {
    ...{ buying, seller, till: money.charger, policy: SALE_POLICY, recovering },
    cashier: { network, asset, payTo: money.till.address.toLowerCase(), escrow },
    close: async () => {
      orders.close();
      await recovering.stop();
      await rail.close();
    },
  };
}

/** Wallets and a facilitator of the demo's own chain, where money is minted and gas is given. */
export async function localMoney(
  chain: { rpcUrl: string; asset: string; network: string },
  wallets: Pick<LocalWallets, "named">,
): Promise<SellingMoney> {
  const { rpcUrl, asset, network } = chain;
  const gas = await wallets.named("gas", 0n);
  const privateKey = gas.privateKey as `0x${string}`;
  await giveLocalGas(rpcUrl, gas.address);
  const reader = createReader(rpcUrl);
  const sender = createSender(reader, Number(network.slice("eip155:".length)), privateKey);
  return {
    ...{ rpcUrl, asset, reader, sender },
    ...{ till: await wallets.named("till", 0n), float: () => wallets.named("float") },
    charger: createTill("in process", createFacilitator({ rpcUrl, network, privateKey, sender })),
    settlePollMs: [0, 30, 100, 300],
  };
}
