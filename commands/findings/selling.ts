import { type Address, formatEther, formatGwei, formatUnits, parseUnits } from "viem";
import type { Config } from "../../infra/config.ts";
import { broken, type Finding, off, ok, runCheck, warn } from "../../infra/finding.ts";
import { hasEscrow } from "../../infra/rails/escrow.ts";
import { ESCROW } from "../../infra/rails/escrow-terms.ts";
import { checkNetwork } from "../../infra/rails/network-checks.ts";
import { type Network, railOn, soldNetwork } from "../../infra/rails/networks.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import { chainRead, createReader, type Reader } from "../../infra/rails/rpc.ts";
import { supportsExactOn } from "../../infra/rails/till.ts";
import { WalletFolder } from "../../infra/rails/wallet-folder.ts";
import { walletsFolderOf } from "../../pipelines/roles/data-folder.ts";

/**
 * Number of transactions for which the gas wallet must hold enough. With less nothing is sold, since the service bears
 * the cost of a call that it cannot charge.
 */
const MIN_AFFORDABLE_TRANSACTIONS = 10n;
/** Units of gas that are assumed for one transaction. */
const GAS_PER_TRANSACTION = 500_000n;

/**
 * Returns the balance of the gas wallet (`coin`), the balance that it needs, and the current gas price, all in wei.
 * @throws ChainDown
 */
export async function gasOf(reader: Reader, address: string) {
  const coin = await chainRead("gas", () => reader.getBalance({ address: address as Address }));
  const { maxFeePerGas: price } = await chainRead("the price of gas", () => reader.estimateFeesPerGas());
  return { coin, needs: price * GAS_PER_TRANSACTION * MIN_AFFORDABLE_TRANSACTIONS, price };
}

/**
 * Escrow is offered only if blocks become final within this time, seconds, since the seller is paid, and the buyer
 * gets the answer, only after the payment into escrow is final.
 */
const FINAL_WITHIN_S = 12;

/**
 * Returns why escrow is not offered on a network: its contracts are not deployed there, or blocks become final too
 * late. Null when it is offered.
 * @throws ChainDown
 */
export async function whyNoEscrow(network: Network, rail: Pick<Rail, "balance">): Promise<string | null> {
  if (!(await hasEscrow(createReader(network.rpcUrls)))) return "its contracts are not on this chain";
  const { head, final } = await rail.balance(ESCROW);
  const finalDelayS = head.time - final.time;
  return finalDelayS <= FINAL_WITHIN_S
    ? null
    : `a block is final after ${finalDelayS} s: set a number of confirmations instead`;
}

/** Checks what selling needs: network, wallets and balances, facilitators, escrow. Sends nothing. */
export async function sellingFindings(config: Config): Promise<Finding[]> {
  const network = soldNetwork(config);
  if (!network) return [off("sell", "sell.network names no network, so nothing is sold")];
  const rail = railOn([network]);
  const networkFindings = await runCheck("sell.network", "check its nodes", () => checkNetwork(network));
  const nodeFindings = networkFindings.map((one) => ({ ...one, name: `sell ${one.name}` }));
  // The checks below request the same nodes, so they are left out when none answers.
  if (!networkFindings.some(({ name, standing }) => name.includes(" node ") && standing === "ok"))
    return [
      ...nodeFindings,
      broken(
        `sell network ${network.id}`,
        "none of its nodes answers, so nothing is sold",
        "see the findings about its nodes",
      ),
    ];
  const otherFindings = await Promise.all([
    runCheck("sell wallets", "check the folder of the wallets", () => walletFindings(config, network, rail)),
    ...config.sell.facilitators.map((one, n) =>
      runCheck(`facilitator ${n + 1}`, "try again, or name another one", () => facilitatorFindings(one, n, network)),
    ),
    runCheck("escrow", "check the node", async () => {
      const reason = await whyNoEscrow(network, rail);
      return [reason === null ? ok("escrow", "is offered") : ok("escrow", `is not offered: ${reason}`)];
    }),
  ]);
  return [...nodeFindings, ...otherFindings.flat()];
}

async function walletFindings(config: Config, network: Network, rail: Pick<Rail, "balance">): Promise<Finding[]> {
  const { till, float, gas } = new WalletFolder(walletsFolderOf(config)).read();
  if (!till || !float || !gas)
    return [broken("sell wallets", "till, float or gas is missing", "touchstone wallets new")];
  const { symbol, decimals } = network.assets[0]!;
  const [{ value: inTill }, { value: inFloat }] = await Promise.all([
    rail.balance(till.address),
    rail.balance(float.address),
  ]);
  const { coin, needs, price } = await gasOf(createReader(network.rpcUrls), gas.address);
  const lowWater = parseUnits(config.wallets.low_water, decimals);
  const floatText = `${formatUnits(inFloat, decimals)} ${symbol}`;
  return [
    ok("sell till", `${till.address} holds ${formatUnits(inTill, decimals)} ${symbol}`),
    inFloat >= lowWater
      ? ok("sell float", `${float.address} holds ${floatText}`)
      : warn("sell float", `${float.address} holds ${floatText}`, `send ${symbol} to it: sellers are paid from it`),
    coin >= needs
      ? ok("sell gas", `${gas.address} holds ${formatEther(coin)} of the chain's coin`)
      : broken(
          "sell gas",
          `${gas.address} holds ${formatEther(coin)} of the chain's coin, and ${formatEther(needs)} is needed: nothing is sold`,
          "send a little of the chain's own coin to it",
        ),
    ...(price > network.gasCeiling
      ? [
          broken(
            "sell gas price",
            `gas costs ${formatGwei(price)} gwei, more than ${formatGwei(network.gasCeiling)}: nothing is sold`,
            "compare with another node; if the price is right, raise gas_ceiling_gwei of the network",
          ),
        ]
      : []),
  ];
}

async function facilitatorFindings(
  facilitator: Config["sell"]["facilitators"][number],
  n: number,
  network: Network,
): Promise<Finding[]> {
  const name = `facilitator ${n + 1}`;
  if (facilitator === "own") return [ok(name, "this process: the wallet for gas pays")];
  if (await supportsExactOn({ name, ...facilitator }, network.id))
    return [ok(name, `it settles exact on ${network.id}`)];
  const text = `${facilitator.url} does not list exact on ${network.id} as supported`;
  return [broken(name, text, "name another facilitator, or another network")];
}
