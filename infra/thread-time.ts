import { readFileSync } from "node:fs";

/**
 * Time that a thread of this process has had of a processor, ms; where the system does not tell, that of the whole process.
 * @param thread its number to the system, or whoever asks; null: it is not known
 */
export function processorMs(thread: number | "own" | null): number {
  try {
    if (thread === null) throw new Error("not told");
    const of = thread === "own" ? "thread-self" : `self/task/${thread}`;
    return Number.parseInt(readFileSync(`/proc/${of}/schedstat`, "utf8"), 10) / 1e6;
  } catch {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e3;
  }
}
