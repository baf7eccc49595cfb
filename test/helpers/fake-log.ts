import type { AppendedRecord, Log, LogRecord, NewRecord } from "../../infra/log/log.ts";

/** What an append does instead: its answer is lost; nothing, or a first record, is stored; all of it later, or twice. */
export type AppendFault = "lost ack" | "refused" | "prefix" | "late" | "twice";

/** A log in memory, of which several replicas read and write: partitions, offsets, and the faults that `Log` allows. */
export class FakeLog implements Pick<Log, "append" | "read" | "bounds" | "partitions"> {
  readonly partitions = 2;
  /** The log's own clock, ms: what it stamps records with. It goes by nobody else's. */
  now = 0;
  readonly #kept: LogRecord[][] = [[], []];
  #late: NewRecord[][] = [];

  #store(records: readonly NewRecord[]): AppendedRecord[] {
    return records.map((record) => {
      const kept = this.#kept[record.partition]!;
      kept.push({ ...record, offset: kept.length, appendedAt: new Date(this.now) });
      const { topic, partition, eventId } = record;
      return { topic, partition, eventId, offset: kept.length - 1 };
    });
  }

  append = async (records: readonly NewRecord[], fault: AppendFault | null = null): Promise<AppendedRecord[]> => {
    // The worst moment: after its writer has read on, and before what it writes next.
    this.arrive();
    if (fault === null) return this.#store(records);
    if (fault === "twice") {
      this.#store(records);
      return this.#store(records);
    }
    if (fault === "lost ack") this.#store(records);
    if (fault === "prefix") this.#store(records.slice(0, 1));
    if (fault === "late") this.#late.push([...records]);
    throw new Error(`append: ${fault}`);
  };

  /** What was on its way arrives. */
  arrive(): void {
    for (const records of this.#late) this.#store(records);
    this.#late = [];
  }

  read = async (_topic: string, partition: number, from: number): Promise<LogRecord[]> =>
    this.#kept[partition]!.slice(from);
  bounds = async (_topic: string, partition: number) => ({ start: 0, end: this.#kept[partition]!.length });

  all = (): LogRecord[] => this.#kept.flat();
}
