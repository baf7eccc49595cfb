import type { ListedCap, Memory } from "../record/memory.ts";
import type { DayPlan, PlanLine } from "../record/plan.ts";
import { blockOf, dayStart } from "../record/time.ts";

export interface SpanReport {
  knocks: number;
  /** Signed payments that left. */
  paid: number;
  /** Paid calls that met nothing to pay, or that we could not pay. */
  unpaid: number;
  /** Calls whose block was over before their turn came: not made, never made up for. */
  missed: number;
  /** Calls that broke off by a fault of our own code; each is in the error log. */
  broken: number;
  /** True when `stop` ended it early. */
  stopped: boolean;
}

/** Lines of a plan by the host they call. */
export function byHost(lines: readonly PlanLine[]): Map<string, PlanLine[]> {
  const hosts = new Map<string, PlanLine[]>();
  for (const line of lines) {
    const group = hosts.get(line.host);
    if (group) group.push(line);
    else hosts.set(line.host, [line]);
  }
  return hosts;
}

/** One span under way. */
export class Span {
  readonly report: SpanReport = { knocks: 0, paid: 0, unpaid: 0, missed: 0, broken: 0, stopped: false };

  private constructor(
    readonly from: Date,
    readonly to: Date,
    readonly firstBlock: number,
    readonly listed: ReadonlyMap<string, ListedCap>,
    /** Event ids of calls that were made: the record's and this process's own. */
    readonly done: Set<string>,
  ) {}

  static async open(memory: Memory, plan: DayPlan, from: Date, to: Date, begun: Set<string>): Promise<Span> {
    const listed = new Map((await memory.listed()).map((one) => [one.cap, one]));
    for (const id of await memory.doneOn(plan.day)) begun.add(id);
    return new Span(from, to, blockOf(dayStart(plan.day)), listed, begun);
  }
}
