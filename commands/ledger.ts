import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { LogNotBegun } from "../infra/log/log.ts";
import { openLog } from "../infra/log/open.ts";
import { LogTail } from "../infra/log/tail.ts";
import { createEvmRail } from "../infra/rails/evm.ts";
import { configuredNetworks, type Network } from "../infra/rails/networks.ts";
import { nodeFault } from "../infra/rails/node-fault.ts";
import { ChainDown, createReader, SHORT_RETRIES } from "../infra/rails/rpc.ts";
import { createLogger } from "../infra/telemetry.ts";
import { type Books, booksOf, type Difference, findDifferences, type Owed } from "../pipelines/orders/ledger.ts";
import { OrderTable } from "../pipelines/orders/order-table.ts";
import { formatSum } from "../pipelines/record/money.ts";
import { LOG_TOPIC_OPTIONS } from "../pipelines/record/topics.ts";
import { foldersOf } from "../pipelines/roles/data-folder.ts";
import { requireDataFolder, withOpen } from "./files.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** An amount of the asset with six decimals; negative with a minus sign. */
type SignedAmount = string;

/** The result of `touchstone ledger`: the books of each asset in which calls were sold. */
interface LedgerReport {
  schema: "svc.ledger.v1";
  assets: {
    network: string;
    asset: string;
    /** Number of orders in the books of this asset. */
    orders: number;
    /** Balance of each account: debits are positive, credits negative; the sum over all accounts is zero. */
    accounts: Record<string, SignedAmount>;
    sum: SignedAmount;
    /**
     * The service's wallets by address. `books`: balance by the books. `holds`: balance on the chain; null if no node
     * was asked.
     */
    wallets: Record<string, { cash: "till" | "float"; books: SignedAmount; holds: SignedAmount | null }>;
    /** Gas of the service's own transactions, in wei of the chain's coin, by purpose. */
    gas: Record<string, { transactions: number; wei: string }>;
    /**
     * Open amounts: refunds that are due, calls whose outcome is not known yet, and losses; `who` is the buyer or the
     * seller.
     */
    owed: { what: Owed["what"]; who: string; fault: Owed["fault"] | null; orders: number; amount: SignedAmount }[];
    /**
     * Movements of the books that are missing on the chain, or have another amount there; null if no node was asked.
     */
    differences: Difference[] | null;
    /**
     * Movements that the nodes did not show, but that may be in blocks that are not final yet; null if no node was
     * asked.
     */
    unseen: Difference[] | null;
  }[];
}

const formatSigned = (micro: bigint): SignedAmount => (micro < 0n ? `-${formatSum(-micro)}` : formatSum(micro));

/**
 * `touchstone ledger`: prints the books of the sold calls (orders), compared with the chain.
 * @throws Failure `record` if they differ, or if the accounts of an asset do not sum to zero
 */
export async function ledgerCommand(config: Config, options: OptionsOf<"ledger">): Promise<void> {
  requireDataFolder(config);
  const ledger = await ledgerOf(config, options.rpc);
  print(options, ledger, linesOf(ledger));
  const differenceCount = ledger.assets.reduce((all, { differences }) => all + (differences?.length ?? 0), 0);
  const unbalancedCount = ledger.assets.filter(({ sum }) => sum !== formatSigned(0n)).length;
  const faults = [
    ...(differenceCount > 0 ? [`the chain differs from the books in ${differenceCount} movements`] : []),
    ...(unbalancedCount > 0 ? [`the accounts of ${unbalancedCount} assets do not sum to zero`] : []),
  ];
  if (faults.length > 0) throw new Failure("record", faults.join("; "));
}

/** The nodes to ask about a network, and how many of them have to agree. */
type Nodes = Pick<Network, "rpcUrls" | "agree">;

/** Returns the nodes of a network: those of the settings, else of the demo's chain; null if there is neither. */
function nodesOf(config: Config, network: string): Nodes | null {
  const configured = configuredNetworks(config).find(({ id, rpcUrls }) => id === network && rpcUrls.length > 0);
  if (configured) return configured;
  const worldFile = join(foldersOf(config.data_dir).market, "world.json");
  if (!existsSync(worldFile)) return null;
  return { rpcUrls: [(JSON.parse(readFileSync(worldFile, "utf8")) as { rpcUrl: string }).rpcUrl], agree: 1 };
}

/** Reads the CAIP-2 id of a node's chain. @throws ChainDown */
async function chainOf(rpcUrl: string): Promise<string> {
  try {
    return `eip155:${await createReader(rpcUrl, SHORT_RETRIES).getChainId()}`;
  } catch (error) {
    throw new ChainDown(nodeFault(error).says, { cause: error });
  }
}

/**
 * Computes the books from the orders in the log, and compares them with the chain.
 * @param rpcUrl node to ask about the books of its chain; undefined: the nodes of the settings; null: the books are not
 * compared with the chain
 * @throws LogRefused, LogDown, ChainDown
 */
export async function ledgerOf(config: Config, rpcUrl?: string | null): Promise<LedgerReport> {
  const dir = foldersOf(config.data_dir).log;
  const assets: LedgerReport["assets"] = [];
  // Opening a log that does not exist would create it. Without a log there are no orders.
  if (config.log === null && !existsSync(dir)) return { schema: "svc.ledger.v1", assets };
  await withOpen(openLog(config, LOG_TOPIC_OPTIONS, dir, createLogger(config.log_level)), async (log) => {
    const table = new OrderTable(Number.POSITIVE_INFINITY);
    await new LogTail(log, "orders", (record) => table.apply(record)).catchUp();
    const chain = typeof rpcUrl === "string" ? await chainOf(rpcUrl) : null;
    for (const books of booksOf(table.all())) {
      const [network] = books.asset.split(" ") as [string];
      const named = chain === network ? { rpcUrls: [rpcUrl!], agree: 1 } : null;
      assets.push(await assetReportOf(books, config, rpcUrl === undefined ? nodesOf(config, network) : named));
    }
  }).catch((error: unknown) => {
    if (!(error instanceof LogNotBegun)) throw error;
  });
  return { schema: "svc.ledger.v1", assets };
}

async function assetReportOf(
  books: Books,
  config: Config,
  nodes: Nodes | null,
): Promise<LedgerReport["assets"][number]> {
  const [network, asset] = books.asset.split(" ") as [string, string];
  const confirmations = configuredNetworks(config).find(({ id }) => id === network)?.confirmations ?? 1;
  const rail = nodes && createEvmRail({ rpcUrl: nodes.rpcUrls, agree: nodes.agree, network, asset, confirmations });
  const wallets: LedgerReport["assets"][number]["wallets"] = {};
  for (const [address, { cash, micro }] of walletsOf(books)) {
    const holds = rail ? formatSigned((await rail.balance(address)).value) : null;
    wallets[address] = { cash, books: formatSigned(micro), holds };
  }
  const found = rail ? await findDifferences(books.movements, rail) : null;
  return {
    ...{ network, asset, orders: books.orders },
    accounts: Object.fromEntries([...books.accounts].sort().map(([name, micro]) => [name, formatSigned(micro)])),
    sum: formatSigned([...books.accounts.values()].reduce((all, one) => all + one, 0n)),
    ...{ wallets, owed: owedOf(books.owed) },
    gas: Object.fromEntries(
      Object.entries(books.gas).map(([kind, { transactions, wei }]) => [kind, { transactions, wei: wei.toString() }]),
    ),
    differences: found?.filter(({ unseen }) => !unseen) ?? null,
    unseen: found?.filter(({ unseen }) => unseen) ?? null,
  };
}

/** Returns the balance by the books of each of the service's wallets, by its address. */
function walletsOf({ movements }: Books): Map<string, { cash: "till" | "float"; micro: bigint }> {
  const wallets = new Map<string, { cash: "till" | "float"; micro: bigint }>();
  for (const { what, from, to, cash, micro } of movements) {
    const isIncoming = what === "charge" || what === "call sent back";
    const address = isIncoming ? to : from;
    const balanceBefore = wallets.get(address)?.micro ?? 0n;
    wallets.set(address, { cash, micro: balanceBefore + (isIncoming ? micro : -micro) });
  }
  return wallets;
}

function owedOf(owed: readonly Owed[]): LedgerReport["assets"][number]["owed"] {
  const groups = new Map<string, { one: Owed; orders: number; micro: bigint }>();
  for (const one of owed) {
    const key = `${one.what} ${one.fault ?? ""} ${one.who}`;
    const { orders, micro } = groups.get(key) ?? { orders: 0, micro: 0n };
    groups.set(key, { one, orders: orders + 1, micro: micro + one.micro });
  }
  return [...groups.values()].map(({ one: { what, who, fault }, orders, micro }) => ({
    ...{ what, who, fault: fault ?? null, orders, amount: formatSigned(micro) },
  }));
}

const OWED_TEXT = { refund: "to be refunded to", exposure: "not known yet, at", loss: "not paid back by" } as const;

/** Formats the ledger for people. */
export function linesOf({ assets }: LedgerReport): string[] {
  if (assets.length === 0) return ["no orders yet"];
  return assets.flatMap(({ network, asset, orders, accounts, sum, wallets, gas, owed, differences, unseen }) => [
    `${asset} on ${network}: ${orders} orders`,
    ...Object.entries(accounts).map(([name, amount]) => `  ${name.padEnd(20)} ${amount.padStart(16)}`),
    `  ${"together".padEnd(20)} ${sum.padStart(16)}`,
    ...Object.entries(wallets).map(
      ([address, { cash, books, holds }]) =>
        `${cash} ${address}: ${books} by the books, holds ${holds ?? "(not asked)"}`,
    ),
    ...Object.entries(gas).map(([kind, { transactions, wei }]) => `gas of ${transactions} ${kind}s: ${wei} wei`),
    ...owed.map(({ what, who, fault, orders: n, amount }) => {
      const faultText = fault === null ? "" : ` (fault: ${fault})`;
      return `${amount} ${OWED_TEXT[what]} ${who}, ${n} orders${faultText}`;
    }),
    ...(differences === null ? [`the chain was not asked: name a node of ${network} with --rpc`] : []),
    ...(differences ?? []).map(({ order, what, tx, says }) => `DIFFERS ${order} ${what} ${tx}: ${says}`),
    ...(unseen ?? []).map(({ order, what, tx, says }) => `not final yet ${order} ${what} ${tx}: ${says}`),
    ...(differences?.length === 0 && unseen?.length === 0 ? ["every movement in the books is on the chain"] : []),
  ]);
}
