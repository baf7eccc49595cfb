import { type Address, formatUnits } from "viem";
import { systemClock } from "../infra/clock.ts";
import { type Config, ConfigError } from "../infra/config.ts";
import { accountOf } from "../infra/rails/account.ts";
import { createAuthorizations } from "../infra/rails/authorization.ts";
import { requireNetworks } from "../infra/rails/network-checks.ts";
import { type Network, paidNetworks, railOn, type Token, tokenOn } from "../infra/rails/networks.ts";
import { NoWallet, type Rail, type Wallet } from "../infra/rails/rails.ts";
import { chainRead, createReader } from "../infra/rails/rpc.ts";
import { createSender } from "../infra/rails/sender.ts";
import { WalletFolder } from "../infra/rails/wallet-folder.ts";
import { type WalletBalances, type WalletReport, walletFindings, walletReport } from "../infra/rails/wallet-report.ts";
import { dayOf } from "../pipelines/record/time.ts";
import { walletsFolderOf } from "../pipelines/roles/data-folder.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/**
 * `touchstone wallets new`: creates the wallets that are missing: the known one, the one for gas, those that selling
 * needs, and blind ones until --blind of them were never used. A second run creates nothing. Prints what to send to
 * each.
 */
export function newWallets(config: Config, options: OptionsOf<"wallets new">): void {
  const folder = new WalletFolder(walletsFolderOf(config));
  const had = folder.read();
  const used = new Set(had.uses.map(({ address }) => address));
  const unused = had.blind.filter(({ address }) => !used.has(address));
  const sells = config.sell.network !== null;
  const made = folder.make(Math.max(0, options.blind - unused.length), sells);
  const now = folder.read();
  const one = (role: "known" | "gas" | "till" | "float") => ({
    address: now[role]!.address,
    made: had[role] === null,
  });
  const facts = {
    ...{ dir: folder.dir, known: one("known"), gas: one("gas") },
    ...(sells ? { till: one("till"), float: one("float") } : {}),
    blind: made.map(({ address }) => address),
    /** Blind wallets that existed before and were never used. */
    unused: unused.map(({ address }) => address),
  };
  const was = (single: { made: boolean }): string => (single.made ? "" : " (existed)");
  const were = `${unused.length} unused blind wallets existed, ${made.length === 0 ? "none" : made.length} made`;
  print(options, facts, [
    `The wallets are in ${folder.dir}. Anybody with a copy of that folder can spend their money.`,
    `known  ${facts.known.address}${was(facts.known)}  send the asset here: it pays most calls`,
    `gas    ${facts.gas.address}${was(facts.gas)}  send a little of the chain's own coin here: it pays the gas of \`wallets sweep\`${sells ? " and of sales" : ""}`,
    ...(facts.till
      ? [`till   ${facts.till.address}${was(facts.till)}  send nothing here: it receives buyers' payments`]
      : []),
    ...(facts.float
      ? [`float  ${facts.float.address}${was(facts.float)}  send the asset here: it pays sellers for buyers`]
      : []),
    ...unused.map(({ address }) => `blind  ${address} (existed)`),
    ...facts.blind.map((address) => `blind  ${address}`),
    ...(unused.length > 0 ? [`${were}.`] : []),
    "A blind wallet needs only the asset, no coin for gas. Fund each separately, with uneven amounts and at different times,",
    "from addresses that are not known to be yours, never from the known wallet. The reasons: docs/networks-and-wallets.md",
  ]);
}

/** Opens the folder of the wallets. @throws NoWallet if it has none */
function wallets(config: Config): WalletFolder {
  const folder = new WalletFolder(walletsFolderOf(config));
  if (!folder.read().known) throw new NoWallet(`there are no wallets in ${folder.dir}: touchstone wallets new`);
  return folder;
}

const stateOf = ({ role, day, caps }: WalletBalances, today: string): string => {
  if (role !== "blind") return "";
  if (day === null) return "never used";
  const whose = caps.length === 1 ? "one endpoint" : `${caps.length} endpoints`;
  return day >= today ? `in use today, ${whose}` : `used on ${day}, ${whose}: what is left can be swept`;
};

/**
 * `touchstone wallets list`: prints addresses, balances on every network, the day each blind wallet paid, and low
 * balances.
 */
export async function listWallets(config: Config, options: OptionsOf<"wallets list">): Promise<void> {
  const networks = paidNetworks(config);
  const folder = wallets(config);
  const report = await walletReport(folder.read(), railOn(networks), networks);
  const low = { money: config.wallets.low_water, blind: config.wallets.low_blind };
  const findings = walletFindings(report, low);
  print(options, { ...report, findings }, textOf(report, findings, dayOf(systemClock.now())));
}

export function textOf(
  { wallets, pools }: WalletReport,
  findings: ReturnType<typeof walletFindings>,
  today: string,
): string[] {
  return [
    ...wallets.map((one) => {
      const holds = Object.entries(one.balances).map(([place, units]) => `${units ?? "(not asked)"} ${place}`);
      return [one.role.padEnd(5), one.address, holds.join(", "), stateOf(one, today)].filter(Boolean).join("  ");
    }),
    ...pools.map(
      ({ network, symbol, known, fresh, freshTotal }) =>
        `${network} ${symbol}: known ${known ?? "(not asked)"}; fresh blind ${fresh ?? "?"} with ${freshTotal ?? "?"}`,
    ),
    ...findings
      .filter(({ standing }) => standing !== "ok")
      .map(({ name, says, todo }) => `LOW ${name}: ${says}; ${todo}`),
  ];
}

type SweepOptions = OptionsOf<"wallets sweep">;

interface SweptWallet {
  network: string;
  symbol: string;
  from: string;
  amount: string;
  /** null: it was not sent, or is not on the chain yet. */
  tx: string | null;
  says: string;
}

/** Number of times that a sweep looks for its transfer on the chain. */
const CHAIN_READS = 40;
/** Pause between two looks for a transfer on the chain, ms. */
const PAUSE_MS = 500;
const VALID_S = 600;
/** Time after which no signed payment of a wallet can still settle, ms. */
const PAYMENT_OPEN_MS = 3_600_000;

/**
 * `touchstone wallets sweep`: moves the rest of each blind wallet that paid on a past day to one address, by a signed
 * EIP-3009 authorization that the gas wallet submits, so that a blind wallet never needs gas. It leaves wallets that
 * paid today, and unused ones. With `--till` it moves the whole till instead, also the money for refunds. It reads the
 * result from the chain.
 */
export async function sweepWallets(config: Config, options: SweepOptions): Promise<void> {
  if (!/^0x[0-9a-fA-F]{40}$/.test(options.to)) throw new ConfigError([`--to: ${options.to} is not an address`]);
  const named = paidNetworks(config).filter(({ id }) => options.network === undefined || id === options.network);
  if (named.length === 0) throw new ConfigError([`--network: ${options.network} is not in the settings`]);
  const held = wallets(config).read();
  if (!held.gas) throw new NoWallet("there is no gas wallet: touchstone wallets new");
  await requireNetworks(named);
  // A payment that was signed shortly before midnight may still be charged.
  const today = dayOf(new Date(systemClock.now().getTime() - PAYMENT_OPEN_MS));
  const isOver = ({ address }: Wallet): boolean => {
    const days = held.uses.filter((use) => use.address === address).map(({ day }) => day);
    return days.length > 0 && days.every((day) => day < today);
  };
  if (options.till && !held.till) throw new NoWallet("there is no till: set sell.network, then touchstone wallets new");
  const over = options.till ? [held.till!] : held.blind.filter(isOver);
  const rail = railOn(named);
  const swept: SweptWallet[] = [];
  for (const network of named) {
    for (const token of network.assets) {
      const sweep = sweeper(network, token, { rail, gas: held.gas, options });
      for (const wallet of over) {
        const one = await sweep(wallet);
        if (one) swept.push(one);
      }
    }
  }
  const lines = swept.map(({ network, symbol, from, amount, tx, says }) =>
    [`${amount} ${symbol}`, from, network, tx ?? "", says].filter(Boolean).join("  "),
  );
  print(options, { to: options.to.toLowerCase(), swept }, lines.length > 0 ? lines : ["There is nothing to sweep."]);
}

/**
 * Returns a function that sweeps a wallet in one asset. Call it for one wallet at a time: the gas wallet's nonces are
 * in sequence.
 */
function sweeper(network: Network, token: Token, parts: { rail: Rail; gas: Wallet; options: SweepOptions }) {
  const { rail, gas, options } = parts;
  const reader = createReader(network.rpcUrls);
  const place = { network: network.id, asset: token.address };
  const chainId = Number(network.id.slice("eip155:".length));
  const sender = createSender(reader, chainId, accountOf(gas), network.gasCeiling);
  const authorizations = createAuthorizations(tokenOn(network, token), sender);
  return async (wallet: Wallet): Promise<SweptWallet | null> => {
    const { value: amountAtomic, head } = await rail.balance(wallet.address, place);
    if (amountAtomic === 0n) return null;
    const amount = formatUnits(amountAtomic, token.decimals);
    const transfer = { network: network.id, symbol: token.symbol, from: wallet.address, amount };
    if (options.dryRun) return { ...transfer, tx: null, says: "would be swept" };
    const coin = await chainRead("gas", () => reader.getBalance({ address: gas.address as Address }));
    if (coin === 0n) throw new NoWallet(`the gas wallet ${gas.address} has nothing on ${network.id}`);
    const signed = await authorizations.signTransfer(wallet, {
      to: options.to,
      amountAtomic,
      validForSeconds: VALID_S,
    });
    const outcome = await authorizations.submitTransfer(signed);
    if (outcome.outcome === "refused") return { ...transfer, tx: null, says: `refused: ${outcome.reason}` };
    const { nonce } = signed.authorization;
    for (let n = 0; n < CHAIN_READS; n++) {
      const query = { from: wallet.address, nonce, sinceBlock: head.number, ...place };
      const { value: seen } = await rail.settlementOf(query);
      if (seen) return { ...transfer, tx: seen.tx, says: seen.final ? "swept" : "swept, not final yet" };
      await systemClock.sleep(PAUSE_MS);
    }
    return { ...transfer, tx: null, says: "sent, but not on the chain yet: check with wallets list" };
  };
}
