import type { AppendedRecord, Log, NewRecord } from "../../infra/log/log.ts";

/** At which step a replica dies: with it in the log and nothing done on it, or having done what it would have told of. */
export interface KillPoint {
  state: string;
  when: "before" | "after";
  /** Of this leg of the order; absent: of any. */
  leg?: number;
}

const isOf = ({ state, leg }: KillPoint, { value }: NewRecord): boolean => {
  const { body } = JSON.parse(Buffer.from(value).toString());
  return body.state === state && (leg === undefined || body.leg === leg);
};

/**
 * A log whose process dies at one step, as far as anybody can tell: the append with that step never comes back, so what
 * waits for it never does anything again.
 */
export class KillableLog implements Log {
  #point: (KillPoint & { die: () => void }) | null = null;
  constructor(private readonly log: Log) {}

  /** Resolves once the process has died there. */
  dies(point: KillPoint): Promise<void> {
    return new Promise((die) => {
      this.#point = { ...point, die };
    });
  }

  get id() {
    return this.log.id;
  }
  get partitions() {
    return this.log.partitions;
  }

  async append(records: readonly NewRecord[]): Promise<AppendedRecord[]> {
    const point = this.#point;
    if (!point || !records.some((record) => isOf(point, record))) return this.log.append(records);
    this.#point = null;
    if (point.when === "after") await this.log.append(records);
    point.die();
    return new Promise(() => {});
  }

  read: Log["read"] = (...asked) => this.log.read(...asked);
  bounds: Log["bounds"] = (...asked) => this.log.bounds(...asked);
  truncate: Log["truncate"] = (...asked) => this.log.truncate(...asked);
  close: Log["close"] = () => this.log.close();
}
