import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";

/** What is measured of a process and of its data. */

const MIB = 1024 * 1024;
/** Buckets of latencies: upper bounds are LEAST_MS times powers of GROWTH, so a quantile is at most a tenth too high. */
export const GROWTH = 1.1;
export const LEAST_MS = 0.1;
export const bucketOf = (ms: number): number =>
  Math.max(0, Math.ceil(Math.log(Math.max(ms, LEAST_MS) / LEAST_MS) / Math.log(GROWTH)));

/** Counts by bucket, and by status of the answer. */
export interface Latencies {
  buckets: Record<number, number>;
  statuses: Record<string, number>;
}

export function addLatencies(to: Map<string, Latencies>, from: Record<string, Latencies>): void {
  for (const [name, { buckets, statuses }] of Object.entries(from)) {
    const sum = to.get(name) ?? { buckets: {}, statuses: {} };
    to.set(name, sum);
    for (const [bucket, n] of Object.entries(buckets)) sum.buckets[+bucket] = (sum.buckets[+bucket] ?? 0) + n;
    for (const [status, n] of Object.entries(statuses)) sum.statuses[status] = (sum.statuses[status] ?? 0) + n;
  }
}

/** Returns a quantile in ms, rounded up to the bound of its bucket; null without answers. */
export function quantileOf({ buckets }: Latencies, q: number): number | null {
  const counts = Object.entries(buckets).map(([bucket, n]) => [Number(bucket), n] as const);
  const total = counts.reduce((sum, [, n]) => sum + n, 0);
  if (total === 0) return null;
  let seen = 0;
  for (const [bucket, n] of counts.sort(([a], [b]) => a - b)) {
    seen += n;
    if (seen >= q * total) return Math.round(LEAST_MS * GROWTH ** bucket * 10) / 10;
  }
  return null;
}

export interface ProcessSample {
  rssMb: number;
  openFiles: number;
  /** Those of the open files that are sockets. */
  sockets: number;
  threads: number;
  /** Seconds since its start. */
  ageS: number;
}

/** Clock ticks of /proc in a second: proc_pid_stat(5), USER_HZ. */
const TICKS_PER_S = 100;

/** Reads /proc; null where the process is gone. */
export function sampleProcess(pid: number): ProcessSample | null {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1]);
    const files = readdirSync(`/proc/${pid}/fd`);
    const isSocket = (fd: string): boolean => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`).startsWith("socket:");
      } catch {
        return false;
      }
    };
    const sockets = files.filter(isSocket).length;
    // Field 22, the 20th after the name in brackets: start time in ticks since the machine started.
    const startTicks = Number(
      readFileSync(`/proc/${pid}/stat`, "utf8")
        .replace(/^.*\) /s, "")
        .split(" ")[19],
    );
    const uptimeS = Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);
    return {
      rssMb: field("VmRSS") / 1024,
      openFiles: files.length - sockets,
      sockets,
      threads: field("Threads"),
      ageS: uptimeS - startTicks / TICKS_PER_S,
    };
  } catch {
    return null;
  }
}

/** Bytes of all files of a folder, in MiB, as they lie on the disk. */
export function sizeMb(dir: string): number {
  let bytes = 0;
  const walk = (at: string): void => {
    for (const entry of readdirSync(at, { withFileTypes: true })) {
      const path = join(at, entry.name);
      try {
        if (entry.isDirectory()) walk(path);
        else if (entry.isFile()) bytes += 512 * statSync(path).blocks;
      } catch {
        // It was removed between the listing and the look.
      }
    }
  };
  if (existsSync(dir)) walk(dir);
  return bytes / MIB;
}

/** Samples of Prometheus' text form by name and labels: `name{a="b"}`. */
export function readMetrics(text: string): Map<string, number> {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ") + 1))]),
  );
}

/** Sum over all labels of a metric. */
export const totalOf = (metrics: ReadonlyMap<string, number>, name: string): number =>
  [...metrics].reduce((sum, [key, n]) => (key === name || key.startsWith(`${name}{`) ? sum + n : sum), 0);

export const medianOf = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
};
