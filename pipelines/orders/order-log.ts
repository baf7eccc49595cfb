import { join } from "node:path";
import { type Clock, systemClock } from "../../infra/clock.ts";
import { FoldFile, type FoldFolder } from "../../infra/log/fold-file.ts";
import type { Log, LogRecord } from "../../infra/log/log.ts";
import { LogTail } from "../../infra/log/tail.ts";
import type { Named } from "../1-observe/json.ts";
import { envelopeOf, readRecord, sealEnvelope } from "../record/envelope.ts";
import { partitionOf } from "../record/ids.ts";
import type { OrderStep, StepOf, StepState } from "../record/order-step.ts";
import { rfc3339 } from "../record/time.ts";
import type { At, Order } from "./order.ts";
import { OrderTable } from "./order-table.ts";

/** Longest wait for a record of our own, real ms. */
const BARRIER_MS = 5_000;
const PRODUCER = "orders";

/** How long an order may go without a step until another replica takes it over, ms of the log's own time. */
export const STALE_MS = 180_000;

/** The log did not take a step, or it was not read back: whether it stands is not known, and nothing may be done on it. */
export class StepNotSeen extends Error {
  override readonly name = "StepNotSeen";
}

/** Another replica acts on this order, or it went on from where we thought it was: we let go of it. */
export class OrderLost extends Error {
  override readonly name = "OrderLost";
  constructor(readonly order: Order) {
    super(`order ${order.id} is not ours to act on any more: ${order.state}, epoch ${order.epoch} by ${order.by}`);
  }
}

type Shared = "order" | "key" | "epoch" | "by" | "at" | "state";

/** A step without the members that every step has. */
export type StepBody<S extends StepState> = Omit<Named<StepOf<S>>, Shared>;
export type NewStep<S extends StepState = StepState> = { [T in S]: { state: T } & StepBody<T> }[S];

export interface OrderLogOptions {
  /** After which an order counts as left, ms of the log's time (default {@link STALE_MS}). */
  staleMs?: number | undefined;
  /** This machine's clock. */
  real?: Pick<Clock, "now">;
}

/**
 * Steps into the topic `orders` and back out of it. A step counts once this process has read its own record (the barrier):
 * by then it is durable, and whatever stands before it in the partition has been read too, so all replicas agree on who
 * was first. Only then is anything done on it.
 */
export class OrderLog {
  readonly table = new OrderTable();
  readonly staleMs: number;
  readonly #tail: LogTail;
  readonly #real: Pick<Clock, "now">;
  /** Each holds where the records stand that changed an order since somebody began to append. */
  readonly #changes = new Set<Set<string>>();
  /** Records of our own that are being appended, by their id, and when the log has them, its own time in ms. */
  readonly #mine = new Map<string, number | null>();
  /** How far the log's clock is ahead of this machine's, ms, by the newest record of our own. */
  #aheadMs = 0;

  constructor(
    private readonly log: Pick<Log, "append" | "read" | "bounds" | "partitions">,
    private readonly clock: Pick<Clock, "now">,
    /** Name of this replica: drawn at its start, so a restart is another one. */
    readonly replica: string,
    /** Where the fold is kept, so that a start reads only what came since. */
    folder: FoldFolder | null = null,
    { staleMs = STALE_MS, real = systemClock }: OrderLogOptions = {},
  ) {
    this.#real = real;
    this.staleMs = staleMs;
    const file = folder && new FoldFile(join(folder.dir, "orders"), this.table, folder);
    this.#tail = new LogTail(log, "orders", (record) => this.#apply(record), file);
  }

  /**
   * Does an order look as if its replica had left it for so long? A guess by this machine's clock, held against the log's
   * stamp of what we wrote last; before it is taken over, the log is asked for its own time ({@link adopt}).
   */
  looksLeft(order: Order, forMs = this.staleMs): boolean {
    return this.#real.now().getTime() + this.#aheadMs - order.movedAt >= forMs;
  }

  #apply(record: LogRecord): void {
    if (this.#mine.has(record.eventId)) {
      const stamp = record.appendedAt.getTime();
      this.#mine.set(record.eventId, stamp);
      this.#aheadMs = stamp - this.#real.now().getTime();
    }
    if (!this.table.apply(record)) return;
    for (const changes of this.#changes) changes.add(placeOf(record));
  }

  /** Fold what is new: of one key's partition, or of all. @throws what the log throws */
  catchUp(key?: string): Promise<void> {
    return this.#tail.catchUp(key === undefined ? undefined : partitionOf(key, this.log.partitions));
  }

  close(): void {
    this.#tail.close();
  }

  /**
   * Claim a payment for a new order.
   * @returns the order that has it: ours, or whichever stood before it in the log
   * @throws StepNotSeen
   */
  async claim(order: string, key: string, body: StepBody<"claimed">): Promise<Order> {
    const step = { ...body, ...this.#shared(order, key, 0), state: "claimed" } as unknown as OrderStep;
    await this.#append([step], 0);
    const winner = this.table.ofKey(key);
    if (!winner) throw new StepNotSeen(`no order has ${key} after its claim was read back`);
    return winner;
  }

  /**
   * The order's next step, or several in one append. When this resolves they stand in the log and in the table.
   * @throws StepNotSeen; OrderLost when they change nothing: another replica was before us
   */
  async step(order: Order, ...steps: readonly NewStep[]): Promise<void> {
    const { epoch } = order;
    const made = steps.map((one) => ({ ...one, ...this.#shared(order.id, order.key, epoch) }) as unknown as OrderStep);
    // Did these very records change it? One of ours whose append failed may still arrive before them and say other things.
    const { stand } = await this.#append(made, order.steps);
    if (!stand || order.epoch !== epoch || order.by !== this.replica) throw new OrderLost(order);
  }

  /**
   * Take over an order that its replica has left, by the log's own time: a record of ours is stamped first, so a clock of
   * this machine that is minutes ahead takes over nothing. If its replica goes on meanwhile, nothing is taken over either.
   * @returns whether we are the ones who act on it now
   */
  async adopt(order: Order): Promise<boolean> {
    const { steps } = order;
    const of = () => this.#shared(order.id, order.key, order.epoch + 1);
    const { stamp } = await this.#append([{ ...of(), state: "stamped" }], steps);
    if (stamp - order.movedAt < this.staleMs || order.steps !== steps) return false;
    const step: OrderStep = { ...of(), state: "adopted", steps };
    await this.#append([step], steps);
    return order.by === this.replica && order.epoch === step.epoch;
  }

  /** A record of an order as it stands in the log: what the table does not keep. @throws StepNotSeen */
  async read<S extends StepState>(state: S, { partition, offset }: At): Promise<StepOf<S>> {
    const [record] = await this.log.read("orders", partition, offset, { maxRecords: 1 }).catch((cause: unknown) => {
      throw new StepNotSeen(`the orders at ${partition}/${offset} cannot be read now`, { cause });
    });
    const step = record && record.offset === offset ? stepOf(record) : null;
    if (step?.state !== state) throw new StepNotSeen(`no ${state} stands at ${partition}/${offset} of the orders`);
    return step as StepOf<S>;
  }

  #shared(order: string, key: string, epoch: number) {
    return { order, key, epoch, by: this.replica, at: rfc3339(this.clock.now()) };
  }

  /** @returns whether each of them changed its order, and the log's time of the last one, ms */
  async #append(steps: readonly OrderStep[], before: number): Promise<{ stand: boolean; stamp: number }> {
    const at = this.clock.now();
    const records = steps.map((body, i) => {
      const slot = `${body.order}/${body.state}/${body.epoch}/${body.by}`;
      const made = { type: "order.step" as const, key: body.key, slot, attempt: before + i, at };
      return sealEnvelope(envelopeOf({ ...made, producer: PRODUCER, body }), this.log.partitions);
    });
    const changes = new Set<string>();
    this.#changes.add(changes);
    for (const { eventId } of records) this.#mine.set(eventId, null);
    try {
      const appended = await this.log.append(records);
      const last = appended.at(-1)!;
      const seen = await this.#tail.reach(last.partition, last.offset, BARRIER_MS);
      if (seen === "there") {
        const stamp = this.#mine.get(last.eventId) ?? 0;
        return { stand: appended.every((one) => changes.has(placeOf(one))), stamp };
      }
    } catch (error) {
      throw new StepNotSeen(`an order's step could not be written: ${(error as Error).message}`, { cause: error });
    } finally {
      this.#changes.delete(changes);
      for (const { eventId } of records) this.#mine.delete(eventId);
    }
    throw new StepNotSeen("an order's step was written and could not be read back in time");
  }
}

const placeOf = ({ partition, offset }: At): string => `${partition}/${offset}`;

function stepOf(record: LogRecord): OrderStep | null {
  const read = readRecord(record);
  return read.ok && read.envelope.type === "order.step" ? (read.envelope.body as OrderStep) : null;
}
