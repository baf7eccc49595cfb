import type { Sender } from "../../infra/rails/sender.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import type { Gas } from "../record/order-step.ts";
import type { Order } from "./order.ts";

/**
 * Reads the gas cost of a transaction, as a member of the order's next step. The result is empty when we did not send
 * the transaction, its cost is unknown, or the order's steps already have it.
 */
export type GasOf = (order: Order, kind: Gas["kind"], tx: string | null | undefined) => Promise<{ gas?: Gas }>;

/** Wei spent and number of transactions, by the purpose of the transactions (charge, hold, refund ..). */
export type GasSums = Partial<Record<Gas["kind"], { transactions: number; wei: bigint }>>;

/**
 * Returns a function that reads the gas of one of our transactions, counts it in the metrics, and returns it as a
 * member of the order's next step.
 * @param sender sends our transactions and knows their costs; those that a facilitator sent cost us nothing
 */
export const createGasLookup =
  (sender: Pick<Sender, "spent">, metrics: Pick<Metrics, "count">): GasOf =>
  async (order, kind, tx) => {
    const isNew = tx && !order.gas.some((one) => one.tx === tx);
    const wei = isNew ? await sender.spent(tx) : null;
    if (!tx || wei === null) return {};
    metrics.count("touchstone_orders_gas_wei_total", { kind }, Number(wei));
    return { gas: { kind, tx, wei: wei.toString() } };
  };

export function sumGas(costs: Iterable<Gas>): GasSums {
  const sums: GasSums = {};
  for (const { kind, wei } of costs) {
    const { transactions, wei: weiBefore } = sums[kind] ?? { transactions: 0, wei: 0n };
    sums[kind] = { transactions: transactions + 1, wei: weiBefore + BigInt(wei) };
  }
  return sums;
}
