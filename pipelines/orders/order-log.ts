import { join } from "node:path";
import { type Clock, systemClock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { FoldFile, type FoldFolder } from "../../infra/log/fold-file.ts";
import type { Log, LogRecord } from "../../infra/log/log.ts";
import { LogTail } from "../../infra/log/tail.ts";
import type { WithoutIndex } from "../1-observe/json.ts";
import { envelopeOf, readRecord, sealEnvelope } from "../record/envelope.ts";
import { partitionOf } from "../record/ids.ts";
import type { OrderStep, StepOf, StepState } from "../record/order-step.ts";
import { rfc3339 } from "../record/time.ts";
import type { Order, RecordPlace } from "./order.ts";
import { OrderTable } from "./order-table.ts";

/** Longest wait for a record of our own, real ms. */
const MAX_BARRIER_MS = 5_000;
const PRODUCER = "orders";

/** How long an order may go without a step until another replica takes it over, ms of the log's own time. */
export const STALE_MS = 180_000;

/**
 * An append of a step failed, or its record was not read back in time. The log may hold the step or not, so the act
 * that the step announces must not be done.
 */
export class StepNotSeen extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("failed", message, { ...options, retriable: true });
  }
}

/** Another replica acts on this order, or has written steps that we had not read: this process stops acting on it. */
export class OrderLost extends Failure {
  constructor(readonly order: Order) {
    super(
      "failed",
      `order ${order.id} is not ours to act on any more: ${order.state}, epoch ${order.epoch} by ${order.by}`,
    );
  }
}

type SharedMember = "order" | "key" | "epoch" | "by" | "at" | "state";

/** The members of a step of state `S` that not every step has. */
export type StepBody<S extends StepState> = Omit<WithoutIndex<StepOf<S>>, SharedMember>;
export type NewStep<S extends StepState = StepState> = { [T in S]: { state: T } & StepBody<T> }[S];

export interface OrderLogOptions {
  /**
   * Time without a step after which an order counts as abandoned by its replica, ms of the log's time (default {@link
   * STALE_MS}).
   */
  staleMs?: number | undefined;
  /** This machine's clock. */
  real?: Pick<Clock, "now">;
}

/**
 * Appends steps of orders to the topic `orders`, and folds the topic into the table of orders. After an append this process
 * reads the partition until it meets its own record (the barrier). By then the record is durable, and this process has read
 * every record before it, so all replicas agree on which of two claims was first. Only then does it act on the step.
 */
export class OrderLog {
  readonly table = new OrderTable();
  readonly staleMs: number;
  readonly #tail: LogTail;
  readonly #realClock: Pick<Clock, "now">;
  /** For each append in progress: places (partition/offset) of the records that changed an order since the append began. */
  readonly #changes = new Set<Set<string>>();
  /** Records that this process is appending, by event id: the log's timestamp of each, ms; null until it was read back. */
  readonly #appending = new Map<string, number | null>();
  /** How far the log's clock is ahead of this machine's, ms, measured at the newest record that this process appended. */
  #aheadMs = 0;

  constructor(
    private readonly log: Pick<Log, "append" | "read" | "bounds" | "partitions">,
    private readonly clock: Pick<Clock, "now">,
    /** Name of this replica, drawn when it starts: after a restart it has another name. */
    readonly replica: string,
    /** Where the fold is saved, so that the next start reads only the records after it; null: nowhere. */
    folder: FoldFolder | null = null,
    { staleMs = STALE_MS, real: realClock = systemClock }: OrderLogOptions = {},
  ) {
    this.#realClock = realClock;
    this.staleMs = staleMs;
    const file = folder && new FoldFile(join(folder.dir, "orders"), this.table, folder);
    this.#tail = new LogTail(log, "orders", (record) => this.#apply(record), file);
  }

  /**
   * Has an order had no step for `forMs`? This is a guess by this machine's clock, corrected by the log's timestamp of the
   * record that this process appended last. {@link adopt} asks the log for its own time before it takes the order over.
   */
  looksAbandoned(order: Order, forMs = this.staleMs): boolean {
    return this.#realClock.now().getTime() + this.#aheadMs - order.movedAt >= forMs;
  }

  #apply(record: LogRecord): void {
    if (this.#appending.has(record.eventId)) {
      const appendedMs = record.appendedAt.getTime();
      this.#appending.set(record.eventId, appendedMs);
      this.#aheadMs = appendedMs - this.#realClock.now().getTime();
    }
    if (!this.table.apply(record)) return;
    for (const changes of this.#changes) changes.add(placeOf(record));
  }

  /** Reads and folds new records, of the partition of one key or of all partitions. @throws what the log throws */
  catchUp(key?: string): Promise<void> {
    return this.#tail.catchUp(key === undefined ? undefined : partitionOf(key, this.log.partitions));
  }

  close(): void {
    this.#tail.close();
  }

  /**
   * Claims a payment for a new order.
   * @returns the order that has the payment: the new one, or an earlier one if its claim is before ours in the log
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
   * Appends the order's next step, or several at once. When this resolves, the log and the table have them.
   * @throws StepNotSeen; OrderLost when they changed nothing, because another replica wrote a step before them
   */
  async step(order: Order, ...steps: readonly NewStep[]): Promise<void> {
    const { epoch } = order;
    const stepBodies = steps.map(
      (one) => ({ ...one, ...this.#shared(order.id, order.key, epoch) }) as unknown as OrderStep,
    );
    // Each of these records must have changed the order. An earlier append of ours that seemed to fail may have put another
    // step before them.
    const { allApplied } = await this.#append(stepBodies, order.steps);
    if (!allApplied || order.epoch !== epoch || order.by !== this.replica) throw new OrderLost(order);
  }

  /**
   * Takes over an order that its replica has abandoned. First a `stamped` record is appended: its timestamp is the
   * log's own time, so a machine whose clock is minutes ahead takes over nothing. An order whose replica wrote a step
   * in the meantime is not taken over either.
   * @returns true when this process acts on the order from now on
   */
  async adopt(order: Order): Promise<boolean> {
    const { steps } = order;
    const createSharedMembers = () => this.#shared(order.id, order.key, order.epoch + 1);
    const { appendedMs } = await this.#append([{ ...createSharedMembers(), state: "stamped" }], steps);
    if (appendedMs - order.movedAt < this.staleMs || order.steps !== steps) return false;
    const step: OrderStep = { ...createSharedMembers(), state: "adopted", steps };
    await this.#append([step], steps);
    return order.by === this.replica && order.epoch === step.epoch;
  }

  /**
   * Begins our own work of an order again ({@link mayReopen}). @returns true when this process acts on the order from
   * now on
   * @throws StepNotSeen
   */
  async reopen(order: Order): Promise<boolean> {
    const { steps } = order;
    const step: OrderStep = { ...this.#shared(order.id, order.key, order.epoch + 1), state: "reopened", steps };
    return (await this.#append([step], steps)).allApplied;
  }

  /** Reads one record of an order from the log, for the members that the table does not keep. @throws StepNotSeen */
  async read<S extends StepState>(state: S, { partition, offset }: RecordPlace): Promise<StepOf<S>> {
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

  /**
   * Appends steps and waits until this process has read them back.
   * @param stepsBefore number of steps of the order so far; it makes the event ids differ
   * @returns `allApplied`: every step changed its order; `appendedMs`: the log's timestamp of the last record, unix ms
   */
  async #append(
    steps: readonly OrderStep[],
    stepsBefore: number,
  ): Promise<{ allApplied: boolean; appendedMs: number }> {
    const at = this.clock.now();
    const records = steps.map((body, i) => {
      const slot = `${body.order}/${body.state}/${body.epoch}/${body.by}`;
      const envelopeInput = { type: "order.step" as const, key: body.key, slot, attempt: stepsBefore + i, at };
      return sealEnvelope(envelopeOf({ ...envelopeInput, producer: PRODUCER, body }), this.log.partitions);
    });
    const changes = new Set<string>();
    this.#changes.add(changes);
    for (const { eventId } of records) this.#appending.set(eventId, null);
    try {
      const appended = await this.log.append(records);
      const lastRecord = appended.at(-1)!;
      const reached = await this.#tail.reach(lastRecord.partition, lastRecord.offset, MAX_BARRIER_MS);
      if (reached === "there") {
        const appendedMs = this.#appending.get(lastRecord.eventId) ?? 0;
        return { allApplied: appended.every((one) => changes.has(placeOf(one))), appendedMs };
      }
    } catch (error) {
      throw new StepNotSeen(`an order's step could not be written: ${(error as Error).message}`, { cause: error });
    } finally {
      this.#changes.delete(changes);
      for (const { eventId } of records) this.#appending.delete(eventId);
    }
    throw new StepNotSeen("an order's step was written and could not be read back in time");
  }
}

const placeOf = ({ partition, offset }: RecordPlace): string => `${partition}/${offset}`;

function stepOf(record: LogRecord): OrderStep | null {
  const read = readRecord(record);
  return read.ok && read.envelope.type === "order.step" ? (read.envelope.body as OrderStep) : null;
}
