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
import { type Money, OrderTable } from "./order-table.ts";

/** Longest wait until a record that this process appended is read back, real ms. */
const MAX_BARRIER_MS = 5_000;
const PRODUCER = "orders";

/**
 * Time without a step after which another replica (selling process) may take over an order, ms of the log's own
 * clock.
 */
export const STALE_MS = 180_000;

/**
 * The error for a step of an order whose append failed, or whose record was not read back in time. The log may have
 * the step or not, so the action that the step announces must not be done.
 */
export class StepNotSeen extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("failed", message, { ...options, retriable: true });
  }
}

/**
 * The error for an order on which another replica acts, or of which the log has steps that we had not read. This
 * process stops acting on it.
 */
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
   * Time without a step after which an order counts as abandoned by the replica that acts on it, ms of the log's
   * clock (default {@link STALE_MS}).
   */
  staleMs?: number | undefined;
  /**
   * The money that calls are sold for; orders in other money, made under other settings, are left alone (default:
   * orders in any money are acted on).
   */
  sold?: Money | undefined;
  /** The clock of this machine, which runs in real time (default: the system's). */
  real?: Pick<Clock, "now">;
}

/**
 * Appends steps of orders to the log topic `orders`, and applies the topic's records to the table of orders. After an
 * append this process reads the partition until it reaches the record that it appended. By then the record is
 * durable, and this process has read every record before it, so all replicas agree which of two claims (first steps)
 * for one payment came first. Only then does the process do what the step announces.
 */
export class OrderLog {
  readonly table: OrderTable;
  readonly staleMs: number;
  readonly #tail: LogTail;
  readonly #realClock: Pick<Clock, "now">;
  /**
   * One set for each append in progress: the places (partition/offset) of the records that changed an order since the
   * append began.
   */
  readonly #changes = new Set<Set<string>>();
  /**
   * The records that this process is appending, by event id, with the log's timestamp, ms; null until the record was
   * read back.
   */
  readonly #appending = new Map<string, number | null>();
  /**
   * How far the log's clock is ahead of this machine's, ms, by the timestamp of the newest record that this process
   * appended.
   */
  #aheadMs = 0;

  constructor(
    private readonly log: Pick<Log, "append" | "read" | "bounds" | "partitions">,
    private readonly clock: Pick<Clock, "now">,
    /** Name of this replica, drawn at random at its start, so that it has another name after a restart. */
    readonly replica: string,
    /**
     * Folder in which the table of orders is saved, so that the next start reads only later records; null: it is not
     * saved.
     */
    folder: FoldFolder | null = null,
    { staleMs = STALE_MS, sold, real: realClock = systemClock }: OrderLogOptions = {},
  ) {
    this.#realClock = realClock;
    this.staleMs = staleMs;
    this.table = new OrderTable(undefined, sold);
    const file = folder && new FoldFile(join(folder.dir, "orders"), this.table, folder);
    this.#tail = new LogTail(log, "orders", (record) => this.#apply(record), file);
  }

  /**
   * Has an order had no step for `forMs`? This is an estimate by this machine's clock, corrected by the log's
   * timestamp of the record that this process appended last. {@link adopt} obtains the log's own time before it takes
   * the order over.
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

  /**
   * Reads new records, of the partition of one key or of all partitions, and applies them to the table.
   * @throws what the log throws
   */
  catchUp(key?: string): Promise<void> {
    return this.#tail.catchUp(key === undefined ? undefined : partitionOf(key, this.log.partitions));
  }

  close(): void {
    this.#tail.close();
  }

  /**
   * Claims a buyer's payment for a new order, by appending the order's first step.
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
   * Appends the order's next step, or several at once. When this resolves, the log and the table have the steps.
   * @throws StepNotSeen; OrderLost when one of the steps did not change the order, because another step was appended
   * before it
   */
  async step(order: Order, ...steps: readonly NewStep[]): Promise<void> {
    const { epoch } = order;
    const stepBodies = steps.map(
      (one) => ({ ...one, ...this.#shared(order.id, order.key, epoch) }) as unknown as OrderStep,
    );
    // Each of these records must have changed the order. Otherwise another step is before them in the log, written by
    // another replica or by an earlier append of ours that seemed to fail.
    const { allApplied } = await this.#append(stepBodies, order.steps);
    if (!allApplied || order.epoch !== epoch || order.by !== this.replica) throw new OrderLost(order);
  }

  /**
   * Takes over an order that its replica has abandoned. First a step `stamped` is appended. Its timestamp shows the
   * log's own time, so that a machine whose clock is minutes ahead takes nothing over too early. An order to which a
   * step was added in the meantime is not taken over either.
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
   * Begins the attempt to do our own operation for an order again ({@link mayReopen}).
   * @returns true when this process acts on the order from now on
   * @throws StepNotSeen
   */
  async reopen(order: Order): Promise<boolean> {
    const { steps } = order;
    const step: OrderStep = { ...this.#shared(order.id, order.key, order.epoch + 1), state: "reopened", steps };
    return (await this.#append([step], steps)).allApplied;
  }

  /** Reads one step of an order from the log, for members that the table does not hold. @throws StepNotSeen */
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
   * @param stepsBefore number of steps of the order so far, from which the event ids are made
   * @returns `allApplied`: every step changed its order; `appendedMs`: the log's timestamp of the last record, unix
   * ms
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
