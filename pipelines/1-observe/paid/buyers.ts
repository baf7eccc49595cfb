import type { Clock } from "../../../infra/clock.ts";
import { decimalsOf, type Payers } from "../../../infra/rails/rails.ts";
import type { BodyOf } from "../../record/bodies.ts";
import type { Memory, PaidPayee } from "../../record/memory.ts";
import { formatSum } from "../../record/money.ts";
import { DAY_MS, rfc3339 } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import { createBuyersRow } from "../rows.ts";
import type { Tools } from "../tools.ts";

const DAY_S = DAY_MS / 1000;
/** Number of days whose payments are counted. */
const WINDOW_DAYS = 7;
/**
 * Days between the counted days and today. Soon after a day ends, its evidence is published and names the wallets of
 * our calls. Before that, a count of our payments would help a seller to find our blind wallets (wallets that it does
 * not know) among its payers.
 */
const UNCOUNTED_DAYS = 1;
/** Least time between two readings of one payee, ms of the observer's clock. */
const READ_INTERVAL_MS = 7 * DAY_MS;
/** A payee is read only if our newest settled payment to it is not older than this, ms of the observer's clock. */
const MAX_PAYMENT_AGE_MS = 35 * DAY_MS;
/**
 * Payers are recognised as ours if they are our wallets that paid within this time, ms: the counted days, the days
 * after them that are not counted, and two more.
 */
const OWN_WALLETS_WINDOW_MS = (WINDOW_DAYS + UNCOUNTED_DAYS + 2) * DAY_MS;
/** Largest number of endpoints of one payee for which a reading is recorded. */
const MAX_CAPS_PER_PAYEE = 1_000;

/** One address on one chain, and the endpoints that are paid at that address. */
interface Payee extends Pick<PaidPayee, "network" | "asset" | "payTo"> {
  caps: string[];
  /** Time of the newest reading for any of the payee's endpoints, RFC 3339, or null. */
  lastReadAt: string | null;
}

/**
 * Reads from the chain who else pays the sellers that we pay, each payee once a week. The result does not change the
 * grade. A seller can pay itself from any number of addresses, so many payers prove nothing; but a seller with no payer
 * besides us, or only one, has few real buyers. Only payees of our own settled payments are read, since a 402 may name
 * anybody's address.
 */
export class PayeeBuyersReader {
  /** @param payeesPerRead most payees in one call of {@link readDue}, which bounds the requests to a node */
  constructor(
    private readonly tools: Pick<Tools, "rail" | "recorder" | "logger" | "hosts" | "signal">,
    private readonly memory: Pick<Memory, "payees" | "walletsPaying">,
    private readonly payeesPerRead: number,
  ) {}

  /**
   * Reads the payees that are due, one after the other. A chain that does not answer is skipped until the next call.
   * @returns number of payees that were read
   * @throws NotConfirmed
   */
  async readDue(clock: Pick<Clock, "now">): Promise<number> {
    const downNetworks = new Set<string>();
    let readCount = 0;
    for (const payee of this.payeesPerRead > 0 ? await this.#selectDue(clock.now().getTime()) : []) {
      if (readCount >= this.payeesPerRead || this.tools.signal?.aborted) break;
      if (downNetworks.has(payee.network)) continue;
      const reading = await this.#readChain(payee);
      if (!reading) downNetworks.add(payee.network);
      else {
        await this.#record(payee, reading, clock);
        readCount++;
      }
    }
    return readCount;
  }

  /** Selects the payees that are due: first those never read, then those read longest ago. */
  async #selectDue(now: number): Promise<Payee[]> {
    const payees = new Map<string, Payee>();
    for (const { cap, url, network, asset, payTo, lastReadAt } of await this.memory.payees(
      rfc3339Before(now, MAX_PAYMENT_AGE_MS),
    )) {
      if (!this.tools.hosts.owns(hostOf(url))) continue;
      const key = `${network} ${asset} ${payTo}`;
      const payee = payees.get(key) ?? { network, asset, payTo, caps: [], lastReadAt: null };
      payees.set(key, payee);
      if (payee.caps.length < MAX_CAPS_PER_PAYEE) payee.caps.push(cap);
      if (lastReadAt !== null && (payee.lastReadAt === null || lastReadAt > payee.lastReadAt))
        payee.lastReadAt = lastReadAt;
    }
    const dueBefore = rfc3339Before(now, READ_INTERVAL_MS);
    const duePayees = [...payees.values()].filter(({ lastReadAt }) => lastReadAt === null || lastReadAt <= dueBefore);
    return duePayees.sort((a, b) => (a.lastReadAt ?? "").localeCompare(b.lastReadAt ?? ""));
  }

  /**
   * Reads the payers of one payee; null if the chain does not answer, if it has no block in the counted days, or after
   * a stop.
   */
  async #readChain({ network, asset, payTo: payee }: Payee): Promise<ChainReading | null> {
    const { rail, signal, logger } = this.tools;
    try {
      const { time } = await rail.head({ network });
      const until = (Math.floor(time / DAY_S) - UNCOUNTED_DAYS) * DAY_S;
      const window = { since: until - WINDOW_DAYS * DAY_S, until };
      const payers = await rail.payersOf({ to: payee, network, asset, signal, ...window });
      return payers && { window, payers };
    } catch (error) {
      if (!signal?.aborted) logger.warn({ err: error, network }, "the other payers of a payee could not be read");
      return null;
    }
  }

  async #record({ network, asset, payTo, caps }: Payee, { window, payers }: ChainReading, clock: Pick<Clock, "now">) {
    const now = clock.now();
    const ownWallets = new Set(
      await this.memory.walletsPaying(payTo, rfc3339Before(now.getTime(), OWN_WALLETS_WINDOW_MS)),
    );
    const counts = countBuyers(payers, ownWallets, decimalsOf(this.tools.rail, { network, asset }));
    const body = { network, asset, pay_to: payTo, ...window, ...counts };
    await this.tools.recorder.append(caps.map((cap) => createBuyersRow(cap, body, now)));
  }
}

/** What was read from the chain about one payee. `window`: the counted time, unix seconds. */
interface ChainReading {
  window: { since: number; until: number };
  payers: Payers;
}

const rfc3339Before = (now: number, ms: number): string => rfc3339(new Date(now - ms));

type Concentration = Pick<BodyOf<"payee.buyers">, "largest_share" | "effective_payers">;
type BuyerCounts = Concentration &
  Pick<BodyOf<"payee.buyers">, "from_block" | "to_block" | "whole" | "payers" | "transfers" | "total" | "ours">;

/**
 * Counts the payments that were read. Payments from our own wallets are counted separately and are not part of the
 * concentration.
 */
function countBuyers(
  { payers, fromBlock, toBlock, whole }: Payers,
  ownWallets: ReadonlySet<string>,
  decimals: number,
): BuyerCounts {
  const [ownPayments, otherPayments] = [true, false].map((isOwn) => {
    const payments = [...payers].flatMap(([address, paid]) => (ownWallets.has(address) === isOwn ? [paid] : []));
    const atomic = payments.reduce((sum, { amountAtomic }) => sum + amountAtomic, 0n);
    return {
      payments,
      transfers: payments.reduce((sum, { transfers }) => sum + transfers, 0),
      total: formatSum((atomic * 1_000_000n) / 10n ** BigInt(decimals)),
    };
  });
  return {
    ...{ from_block: fromBlock, to_block: toBlock, whole, payers: otherPayments!.payments.length },
    ...{ transfers: otherPayments!.transfers, total: otherPayments!.total },
    ...measureConcentration(otherPayments!.payments.map(({ amountAtomic }) => amountAtomic)),
    ours: { transfers: ownPayments!.transfers, total: ownPayments!.total },
  };
}

/**
 * Measures the concentration of amounts: the share of the largest amount, and the effective number of payers, which is
 * 1 divided by the sum of the squared shares. That sum is the Herfindahl-Hirschman index (Hirschman 1945, Herfindahl
 * 1950); its inverse as an effective number is from Adelman (1969), and from Laakso and Taagepera (1979) for parties.
 * Both results are rounded down, to four and two decimals.
 * @param amounts what each payer paid in all; each is above zero
 */
export function measureConcentration(amounts: readonly bigint[]): Concentration {
  if (amounts.length === 0) return { largest_share: null, effective_payers: null };
  const total = amounts.reduce((sum, one) => sum + one, 0n);
  const squares = amounts.reduce((sum, one) => sum + one * one, 0n);
  const largest = [...amounts].sort((a, b) => (a > b ? -1 : 1))[0]!;
  return {
    largest_share: Number((largest * 10_000n) / total) / 10_000,
    effective_payers: Number((total * total * 100n) / squares) / 100,
  };
}
