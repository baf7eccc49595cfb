import { type Address, formatUnits } from "viem";
import { systemClock } from "../infra/clock.ts";
import { type Config, ConfigError } from "../infra/config.ts";
import { Failure, type FailureCode } from "../infra/errors.ts";
import { accountOf } from "../infra/rails/account.ts";
import { createAuthorizations } from "../infra/rails/authorization.ts";
import { requireNetworks } from "../infra/rails/network-checks.ts";
import { type Network, paidNetworks, railOn, type Token, tokenOn } from "../infra/rails/networks.ts";
import { NoWallet, type Rail, type Settlement, type SettlementQuery, type Wallet } from "../infra/rails/rails.ts";
import { chainRead, createReader } from "../infra/rails/rpc.ts";
import { createSender, errorText } from "../infra/rails/sender.ts";
import { type BalanceTransfer, isTempo, prepareBalanceTransfer } from "../infra/rails/tempo.ts";
import { WalletFolder } from "../infra/rails/wallet-folder.ts";
import { type WalletBalances, type WalletReport, walletFindings, walletReport } from "../infra/rails/wallet-report.ts";
import { dayOf } from "../pipelines/record/time.ts";
import { walletsFolderOf } from "../pipelines/roles/data-folder.ts";
import { exitNameOf } from "./exit.ts";
import { print, printJson, printLines } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/**
 * `touchstone wallets new`: creates the wallets that are missing: the known one (published as ours; it pays most
 * calls), the one for gas, those that selling needs, and blind ones (not known as ours; each pays on one day only)
 * until --blind of them are unused. A second run creates nothing. Prints what to send to each wallet.
 */
export function newWallets(config: Config, options: OptionsOf<"wallets new">): void {
  const folder = new WalletFolder(walletsFolderOf(config));
  const walletsBefore = folder.read();
  const used = new Set(walletsBefore.uses.map(({ address }) => address));
  const unused = walletsBefore.blind.filter(({ address }) => !used.has(address));
  const sells = config.sell.network !== null;
  const newBlindWallets = folder.make(Math.max(0, options.blind - unused.length), sells);
  const walletsAfter = folder.read();
  const roleFacts = (role: "known" | "gas" | "till" | "float") => ({
    address: walletsAfter[role]!.address,
    made: walletsBefore[role] === null,
  });
  const facts = {
    ...{ dir: folder.dir, known: roleFacts("known"), gas: roleFacts("gas") },
    ...(sells ? { till: roleFacts("till"), float: roleFacts("float") } : {}),
    blind: newBlindWallets.map(({ address }) => address),
    /** Blind wallets that existed before and were never used. */
    unused: unused.map(({ address }) => address),
  };
  const existedText = (single: { made: boolean }): string => (single.made ? "" : " (existed)");
  const blindText = `${unused.length} unused blind wallets existed, ${newBlindWallets.length === 0 ? "none" : newBlindWallets.length} made`;
  print(options, facts, [
    `The wallets are in ${folder.dir}. Anybody with a copy of that folder can spend their money.`,
    `known  ${facts.known.address}${existedText(facts.known)}  send the asset here: it pays most calls`,
    `gas    ${facts.gas.address}${existedText(facts.gas)}  send a little of the chain's own coin here: it pays the gas of \`wallets sweep\`${sells ? " and of sales" : ""}`,
    ...(facts.till
      ? [`till   ${facts.till.address}${existedText(facts.till)}  send nothing here: it receives buyers' payments`]
      : []),
    ...(facts.float
      ? [`float  ${facts.float.address}${existedText(facts.float)}  send the asset here: it pays sellers for buyers`]
      : []),
    ...unused.map(({ address }) => `blind  ${address} (existed)`),
    ...facts.blind.map((address) => `blind  ${address}`),
    ...(unused.length > 0 ? [`${blindText}.`] : []),
    "A blind wallet needs only the asset, no coin for gas. Fund each separately, with uneven amounts and at different times,",
    "from addresses that are not known to be yours, never from the known wallet. The reasons: docs/networks-and-wallets.md",
  ]);
}

/** Opens the folder of the wallets. @throws NoWallet if there are no wallets in it */
function openWalletFolder(config: Config): WalletFolder {
  const folder = new WalletFolder(walletsFolderOf(config));
  if (!folder.read().known) throw new NoWallet(`there are no wallets in ${folder.dir}: touchstone wallets new`);
  return folder;
}

const stateOf = ({ role, day, caps }: WalletBalances, today: string): string => {
  if (role !== "blind") return "";
  if (day === null) return "never used";
  const endpointsText = caps.length === 1 ? "one endpoint" : `${caps.length} endpoints`;
  return day >= today
    ? `in use today, ${endpointsText}`
    : `used on ${day}, ${endpointsText}: what is left can be swept`;
};

/**
 * `touchstone wallets list`: prints the wallets with their balances on every network, the day on which each blind
 * wallet paid, and low balances.
 */
export async function listWallets(config: Config, options: OptionsOf<"wallets list">): Promise<void> {
  const networks = paidNetworks(config);
  const folder = openWalletFolder(config);
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

/** What a sweep did, or would do, with one asset of one wallet. */
interface SweptWallet {
  network: string;
  symbol: string;
  /** Address of the swept wallet. */
  from: string;
  /** Units of the asset that are moved, would be, or are left; null: the balance could not be read. */
  amount: string | null;
  /** Hash of the transaction; null: none was sent, or its hash is not known. */
  tx: string | null;
  /** What happened, for people. */
  says: string;
  /** Name of the exit code of what failed; null: nothing failed. */
  error: FailureCode | null;
}

const lineOf = ({ network, symbol, from, amount, tx, says, error }: SweptWallet): string =>
  [`${amount ?? "?"} ${symbol}`, from, network, tx ?? "", error === null ? says : `FAILED: ${says}`]
    .filter(Boolean)
    .join("  ");

/** Longest time for which a sweep looks for its transfer on the chain, ms. */
const CHAIN_WAIT_MS = 20_000;
/** Pause between two searches for a transfer on the chain, ms. */
const CHAIN_READ_PAUSE_MS = 500;
const AUTHORIZATION_VALID_S = 600;
/** Time after which a payment that a wallet signed can no longer settle, ms. */
const PAYMENT_OPEN_MS = 3_600_000;

/**
 * `touchstone wallets sweep`: moves the rest of each blind wallet that paid on a past day to one address. The wallet
 * signs an EIP-3009 authorization, which the gas wallet submits, so a blind wallet never needs gas. On Tempo the wallet
 * signs the transaction itself and pays its fee in the same token. Wallets that paid today and unused ones are left
 * out. With `--till` the command moves the whole balance of the till (which receives buyers' payments) instead,
 * including the money for refunds. It reads the results from the chain. A line is printed as soon as its transfer has
 * ended; a transfer that fails does not stop the others.
 * @throws Failure with the cause of the first transfer that failed, after all were tried
 */
export async function sweepWallets(config: Config, options: SweepOptions): Promise<void> {
  if (!/^0x[0-9a-fA-F]{40}$/.test(options.to)) throw new ConfigError([`--to: ${options.to} is not an address`]);
  const networks = paidNetworks(config).filter(({ id }) => options.network === undefined || id === options.network);
  if (networks.length === 0) throw new ConfigError([`--network: ${options.network} is not in the settings`]);
  const heldWallets = openWalletFolder(config).read();
  await requireNetworks(networks);
  // A payment that was signed shortly before midnight may still settle, so the new day begins an hour late here.
  const today = dayOf(new Date(systemClock.now().getTime() - PAYMENT_OPEN_MS));
  const isSweepable = ({ address }: Wallet): boolean => {
    const days = heldWallets.uses.filter((use) => use.address === address).map(({ day }) => day);
    return days.length > 0 && days.every((day) => day < today);
  };
  if (options.till && !heldWallets.till)
    throw new NoWallet("there is no till: set sell.network, then touchstone wallets new");
  const sweepableWallets = options.till ? [heldWallets.till!] : heldWallets.blind.filter(isSweepable);
  const parts = { rail: railOn(networks), gas: heldWallets.gas, options };
  const sweepers = networks.flatMap((network) => network.assets.map((token) => createSweeper(network, token, parts)));
  const swept: SweptWallet[] = [];
  for (const sweep of sweepers) {
    for (const wallet of sweepableWallets) {
      const one = await sweep(wallet);
      if (!one) continue;
      swept.push(one);
      if (!options.json) printLines(lineOf(one));
    }
  }
  if (options.json) printJson({ to: options.to.toLowerCase(), swept });
  else if (swept.length === 0) printLines("There is nothing to sweep.");
  const failed = swept.filter(({ error }) => error !== null);
  const [first] = failed;
  if (!first) return;
  const firstFailure = `${first.from} on ${first.network}: ${first.says}`;
  throw new Failure(first.error!, `${failed.length} of ${swept.length} transfers failed, first ${firstFailure}`);
}

/**
 * Returns a function that prepares the transfer of a balance by an EIP-3009 authorization of the wallet, whose gas the
 * gas wallet pays.
 * @throws NoWallet when there is no gas wallet
 */
function createAuthorizedTransfers(network: Network, token: Token, gas: Wallet | null, to: Address) {
  if (!gas) throw new NoWallet("there is no gas wallet: touchstone wallets new");
  const reader = createReader(network.rpcUrls);
  const chainId = Number(network.id.slice("eip155:".length));
  const sender = createSender(reader, chainId, accountOf(gas), network.gasCeiling);
  const authorizations = createAuthorizations(tokenOn(network, token), sender);
  return async (wallet: Wallet, amountAtomic: bigint): Promise<BalanceTransfer> => ({
    amountAtomic,
    async send() {
      const gasBalance = await chainRead("gas", () => reader.getBalance({ address: gas.address as Address }));
      if (gasBalance === 0n) throw new NoWallet(`the gas wallet ${gas.address} has nothing on ${network.id}`);
      const order = { to, amountAtomic, validForSeconds: AUTHORIZATION_VALID_S };
      const signed = await authorizations.signTransfer(wallet, order);
      return { nonce: signed.authorization.nonce, outcome: await authorizations.submitTransfer(signed) };
    },
  });
}

/**
 * Returns a function that sweeps one asset of a wallet; null when the wallet holds nothing of it. It never throws. It
 * must be called for one wallet at a time, since the nonces of the gas wallet are in sequence.
 */
function createSweeper(
  network: Network,
  token: Token,
  parts: { rail: Rail; gas: Wallet | null; options: SweepOptions },
) {
  const { rail, gas, options } = parts;
  const to = options.to as Address;
  const place = { network: network.id, asset: token.address };
  const prepare = isTempo(network.id)
    ? (wallet: Wallet, balance: bigint) => prepareBalanceTransfer(tokenOn(network, token), wallet, to, balance)
    : createAuthorizedTransfers(network, token, gas, to);

  /** Looks for a transfer on the chain; null: it is not there, or the chain could not be read. */
  async function findOnChain(query: SettlementQuery): Promise<Settlement | null> {
    const deadline = systemClock.monotonic() + CHAIN_WAIT_MS;
    do {
      const settlement = await rail.settlementOf(query).then(
        ({ value }) => value,
        () => null,
      );
      if (settlement) return settlement;
      await systemClock.sleep(CHAIN_READ_PAUSE_MS);
    } while (systemClock.monotonic() < deadline);
    return null;
  }

  async function sweep(wallet: Wallet, row: SweptWallet): Promise<SweptWallet | null> {
    const { value: amountAtomic, head } = await rail.balance(wallet.address, place);
    if (amountAtomic === 0n) return null;
    row.amount = formatUnits(amountAtomic, token.decimals);
    const transfer = await prepare(wallet, amountAtomic);
    if (!transfer) return { ...row, says: "left: too little for the fee" };
    row.amount = formatUnits(transfer.amountAtomic, token.decimals);
    if (options.dryRun) return { ...row, says: "would be swept" };
    const { nonce, outcome } = await transfer.send();
    const tx = outcome.tx ?? null;
    if (outcome.outcome === "refused") return { ...row, tx, says: `refused: ${outcome.reason}`, error: "failed" };
    const settlement = await findOnChain({ from: wallet.address, nonce, sinceBlock: head.number, ...place });
    if (settlement) return { ...row, tx: settlement.tx, says: settlement.final ? "swept" : "swept, not final yet" };
    const isUnsure = outcome.outcome === "unknown" && tx === null;
    const why = isUnsure ? `perhaps not sent (${outcome.says})` : "sent, but not seen on the chain yet";
    return { ...row, tx, says: `${why}: check with wallets list`, error: "chain" };
  }

  return async (wallet: Wallet): Promise<SweptWallet | null> => {
    const names = { network: network.id, symbol: token.symbol, from: wallet.address };
    const row: SweptWallet = { ...names, amount: null, tx: null, says: "", error: null };
    try {
      return await sweep(wallet, row);
    } catch (error) {
      return { ...row, says: errorText(error), error: exitNameOf(error) };
    }
  };
}
