import type { DayPlan } from "../record/plan.ts";
import type { HostShare } from "./hosts.ts";
import type { SpanReport } from "./span.ts";
import type { Spans } from "./spans.ts";

/**
 * A day's plan by the partitions that we hold while `over` is pending: each partition's part of it is a span of its own,
 * begun anew from the record whenever the partition comes to us. A payment under way, the showings of a proof included,
 * ends before its partition is another's.
 */
export async function runShare(
  hosts: HostShare,
  spans: Pick<Spans, "reserve">,
  plan: DayPlan,
  over: Promise<void>,
  run: (part: DayPlan, tenure: AbortSignal) => Promise<SpanReport>,
): Promise<SpanReport> {
  const total: SpanReport = { knocks: 0, paid: 0, unpaid: 0, missed: 0, broken: 0, stopped: false };
  await spans.reserve(plan);
  await hosts.during(async (partition, tenure) => {
    const lines = plan.lines.filter(({ host }) => hosts.lies(host, partition));
    if (lines.length === 0) return;
    const { stopped, ...counts } = await run({ ...plan, lines }, tenure);
    for (const [name, n] of Object.entries(counts)) total[name as keyof typeof counts] += n;
    // A partition that was taken away ended its own part only.
    total.stopped ||= stopped && !tenure.aborted;
  }, over);
  return total;
}
