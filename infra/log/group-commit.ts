import { MAX_BATCH_BYTES } from "./check.ts";
import { LogBusy } from "./errors.ts";
import { type Appended, MAX_BATCH, type NewRecord } from "./log.ts";

/** What may wait for its commit; more is refused, so a burst cannot eat the memory. */
const MAX_QUEUED_RECORDS = 20 * MAX_BATCH;
const MAX_QUEUED_BYTES = 4 * MAX_BATCH_BYTES;

interface Waiting {
  records: readonly NewRecord[];
  bytes: number;
  resolve(appended: Appended[]): void;
  reject(error: unknown): void;
}

/**
 * Appends that arrive in the same turn of the event loop share one transaction, since the sync at its end is what costs.
 * While a commit blocks the loop the next ones gather, so the groups grow with the load.
 */
export class GroupCommit {
  #queue: Waiting[] = [];
  #records = 0;
  #bytes = 0;
  #scheduled = false;
  #idle: (() => void)[] = [];
  readonly #commit: (batches: (readonly NewRecord[])[]) => Appended[][];

  /** @param commit stores all batches durably or throws and stores none. */
  constructor(commit: (batches: (readonly NewRecord[])[]) => Appended[][]) {
    this.#commit = commit;
  }

  /** Resolves after the commit. The records must not be changed until then. @throws LogBusy when too much waits. */
  add(records: readonly NewRecord[], bytes: number): Promise<Appended[]> {
    const full = this.#records + records.length > MAX_QUEUED_RECORDS || this.#bytes + bytes > MAX_QUEUED_BYTES;
    if (full) return Promise.reject(new LogBusy(`${this.#records} records wait for their commit`));
    return new Promise((resolve, reject) => {
      this.#queue.push({ records, bytes, resolve, reject });
      this.#records += records.length;
      this.#bytes += bytes;
      this.#schedule();
    });
  }

  /** Resolves when nothing waits. */
  drained(): Promise<void> {
    if (this.#queue.length === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idle.push(resolve);
    });
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#flush();
      if (this.#queue.length > 0) this.#schedule();
      else for (const resolve of this.#idle.splice(0)) resolve();
    });
  }

  #flush(): void {
    const group = this.#takeGroup();
    try {
      const appended = this.#commit(group.map((waiting) => waiting.records));
      for (const [i, waiting] of group.entries()) waiting.resolve(appended[i]!);
    } catch (error) {
      for (const waiting of group) waiting.reject(error);
    }
  }

  /** At most one full batch's worth, so that no commit blocks the loop for long. */
  #takeGroup(): Waiting[] {
    let records = 0;
    let bytes = 0;
    let count = 0;
    for (const waiting of this.#queue) {
      records += waiting.records.length;
      bytes += waiting.bytes;
      if (count > 0 && (records > MAX_BATCH || bytes > MAX_BATCH_BYTES)) break;
      count++;
    }
    const group = this.#queue.splice(0, count);
    for (const waiting of group) {
      this.#records -= waiting.records.length;
      this.#bytes -= waiting.bytes;
    }
    return group;
  }
}
