import type { ConnectFault } from "./connect.ts";
import type { EgressResult } from "./egress.ts";
import type { Ending } from "./exchange.ts";
import type { Limits } from "./limits.ts";

type Failure = Extract<EgressResult, { sent: boolean }>;

/** One fetch on its way over its hops. */
export interface Course {
  readonly limits: Limits;
  readonly signal: AbortSignal;
  /** First byte out of the first hop: where all times of the result count from. */
  startedAt?: number;
}

/** ms since the first byte out; 0 when none left. */
export const sinceStart = ({ startedAt }: Course, now: number): number =>
  startedAt === undefined ? 0 : now - startedAt;

/** We did not connect. Without a reason the cause is ours (or the caller's) and says nothing about the stranger. */
export const unsent = ({ says, reason }: Pick<Failure, "says" | "reason">): Failure => ({
  outcome: "refused",
  ...(reason && { reason }),
  says,
  totalMs: 0,
  sent: false,
});

export function unconnected(fault: ConnectFault, course: Course): Failure {
  const sent = course.startedAt !== undefined;
  const totalMs = sinceStart(course, performance.now());
  if (fault.fault === "refused") return { ...unsent(fault), totalMs, sent };
  return { outcome: fault.fault === "ours" ? "refused" : "transport", says: fault.says, totalMs, sent };
}

/** The total ran out between two hops. */
export const late = (course: Course): Failure => ({
  outcome: "timeout",
  says: `not done within ${course.limits.totalMs} ms`,
  totalMs: sinceStart(course, performance.now()),
  sent: course.startedAt !== undefined,
});

/** Called off is ours: before the first byte it is `refused`, after it what a watcher of the wire would have seen. */
function outcomeOf({ end, sentAt, answer }: Ending): EgressResult["outcome"] {
  if (end !== "off") return end;
  if (sentAt === undefined) return "refused";
  return answer ? "cut" : "transport";
}

/** The result of an exchange that took place; `from` says where the last hop led. */
export function ended(ending: Ending, course: Course, from: { remoteAddress: string; url: string }): EgressResult {
  const outcome = outcomeOf(ending);
  const totalMs = sinceStart(course, ending.endedAt);
  const { answer, says } = ending;
  const seen = answer && {
    status: answer.status,
    headers: answer.headers,
    body: answer.body,
    headersMs: sinceStart(course, answer.headersAt),
  };
  if (outcome === "answered") return { outcome, ...seen!, totalMs, ...from };
  return { outcome, says, ...seen, totalMs, sent: course.startedAt !== undefined };
}
