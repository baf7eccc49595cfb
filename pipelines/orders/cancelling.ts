import { type Clock, systemClock } from "../../infra/clock.ts";
import type { Authorizations } from "../../infra/rails/authorization.ts";
import { ChainDown } from "../../infra/rails/rpc.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { atomicToMicro, formatMoney } from "../record/money.ts";
import type { GasOf } from "./gas.ts";
import { outcomeInWords } from "./holding.ts";
import { isEnded, type Leg, type Order } from "./order.ts";
import type { OrderLog } from "./order-log.ts";
import type { SellerTools } from "./seller.ts";

export interface CancellingDeps {
  orders: OrderLog;
  seller: SellerTools;
  /** Makes a payment to a seller that gave nothing unusable; without it an order never has a second leg. */
  authorizations?: Pick<Authorizations, "signCancel" | "submitCancel" | "stateOf">;
  /** What transactions of ours cost; without it nothing is said of it. */
  gas?: GasOf;
  /** Has this payer, or its network, had us send as many transactions for nothing today as it may? */
  wastes: (order: Pick<Order, "payer" | "client">) => boolean;
  clock: Clock;
  logger: Pick<Logger, "error" | "warn">;
}

/** Pauses (real ms) between looks at the chain for a cancellation that was sent. */
const CANCEL_POLL_MS = [0, 50, 200, 500, 1_000, 2_000, 4_000, 4_000] as const;
/** Chain seconds that a payment must still hold for a cancellation to be worth its gas. */
const CANCEL_LEAST_S = 10;
/** Orders remembered so that none is cancelled twice. */
const MAX_TRIED = 10_000;

/**
 * Makes payments unusable that a seller gave nothing for and may still take: it holds a signed authorization, and
 * until the token refuses that, its amount is neither spent nor ours (orders.md).
 */
export class Cancelling {
  /** Orders that ended and whose last payment this process cancels. */
  readonly #cancelling = new Set<string>();
  /** Orders of which it was decided here whether their last payment is cancelled. */
  readonly #tried = new Set<string>();

  /**
   * May one more payment of this wallet be cancelled that another replica left? A process that sells sets here the limit
   * of its own cancellations; elsewhere only the limit of a day holds ({@link CancellingDeps.wastes}).
   */
  mayCancel: (payer: string) => boolean = () => true;

  constructor(private readonly deps: CancellingDeps) {}

  isActing(order: Order): boolean {
    return this.#cancelling.has(order.id);
  }

  /**
   * Cancels the payment of the newest leg (EIP-3009, cancelAuthorization), and writes what the chain says of it. That
   * seller holds a signed authorization: only once the token refuses it may another one be paid. The
   * cancellation needs no intent of its own: it follows from the leg's, moves no money, and sent twice it is refused.
   * @returns whether the money is still ours, for good
   */
  async dies(order: Order): Promise<boolean> {
    const { orders, seller, logger } = this.deps;
    const authorizations = this.deps.authorizations!;
    const { leg, wallet: from, nonce, sinceBlock } = order.legs.at(-1)!;
    const wallet = await seller.float();
    if (wallet.address.toLowerCase() !== from.toLowerCase()) return false;
    const said = await authorizations.submitCancel(await authorizations.signCancel(wallet, nonce));
    if (order.by !== orders.replica) return false;
    for (const pause of CANCEL_POLL_MS) {
      if (pause > 0) await systemClock.sleep(pause);
      const read = await authorizations.stateOf({ from, nonce, sinceBlock }).catch((error: unknown) => {
        if (!(error instanceof ChainDown)) throw error;
        return null;
      });
      const seen = read?.value;
      if (seen?.state === "used") {
        if (!seen.settlement.final) return false;
        const amount = formatMoney(atomicToMicro(seen.settlement.amountAtomic, 6) ?? 0n);
        await orders.step(order, { state: "leg_paid", leg, tx: seen.settlement.tx, amount });
        return false;
      }
      if (seen?.state === "cancelled" && seen.final) {
        await orders.step(order, { state: "leg_unpaid", leg, ...(await this.deps.gas?.(order, "cancel", seen.tx)) });
        return true;
      }
    }
    logger.warn({ order: order.id, leg, said: outcomeInWords(said) }, "a payment could not be made unusable in time");
    return false;
  }

  /** Has it come to nothing, while its seller may still take the money? */
  #isLoose(order: Order): boolean {
    const leg = order.legs.at(-1);
    return isEnded(order) && leg?.checked?.pass === false && leg.fate === "unknown";
  }

  /**
   * The last payment of an order that came to nothing, cancelled like those before it: until its seller can take it no
   * more nobody buys from that address. The buyer does not wait for it; {@link cancelLeft} goes on where this process
   * stops.
   * @param may asked once, when it would be cancelled: does the operation that bought allow it? Default: as of any
   * order
   */
  release(order: Order, may = () => this.mayCancel(order.payer)): void {
    if (!this.#isLoose(order) || !this.#try(order)) return;
    if (may()) void this.#cancels(order);
  }

  async #cancels(order: Order): Promise<void> {
    this.#cancelling.add(order.id);
    try {
      await this.dies(order);
    } catch (error) {
      this.deps.logger.warn({ err: error, order: order.id }, "a payment could not be cancelled");
    } finally {
      this.#cancelling.delete(order.id);
    }
  }

  /**
   * The same of an order whose replica stopped, or was not let: tried once by each process. It takes nothing over,
   * since the payment would have expired by then: whoever the order is writes down what the chain says of it.
   * @param leftMs ms of the log's time without a step after which it is taken for left @throws ChainDown
   */
  async cancelLeft(order: Order, leftMs: number): Promise<void> {
    const isLeft = this.deps.orders.looksLeft(order, leftMs);
    if (!this.deps.authorizations || !this.#isLoose(order) || !isLeft || this.#tried.has(order.id)) return;
    const { time } = await this.deps.seller.rail.head();
    if (order.legs.at(-1)!.validBefore < time + CANCEL_LEAST_S) return;
    if (this.#isLoose(order) && this.#try(order) && this.mayCancel(order.payer)) await this.#cancels(order);
  }

  /** Has nobody of this process decided yet whether this order's payment is cancelled? */
  #try(order: Order): boolean {
    const { id } = order;
    if (!this.deps.authorizations || this.#tried.has(id) || this.deps.wastes(order)) return false;
    if (this.#tried.size >= MAX_TRIED) this.#tried.clear();
    this.#tried.add(id);
    return true;
  }

  /**
   * The transaction in which we cancelled this payment, once it can never be taken any more; else null. @throws ChainDown
   */
  async cancelledIn({ wallet: from, nonce, sinceBlock }: Leg): Promise<string | null> {
    const read = await this.deps.authorizations?.stateOf({ from, nonce, sinceBlock });
    const seen = read?.value;
    return seen?.state === "cancelled" && seen.final ? seen.tx : null;
  }
}
