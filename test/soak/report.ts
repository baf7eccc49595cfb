import type { Bought } from "../abuse/buyers.ts";
import { type Latencies, medianOf, quantileOf } from "./measures.ts";
import type { SoakProof } from "./proof.ts";

/** One look at the processes. */
export interface Sample {
  rssMb: number;
  heapMb: number;
  openFiles: number;
  /** Seconds since the process was started. */
  ageS: number;
  sockets: number;
  threads: number;
  /** Records of the log that are not ingested yet. */
  lagRecords: number;
  /** Seconds since the work that was done longest ago. */
  oldestWorkS: number;
  missed: number;
  replicaRssMb: number;
  replicaHeapMb: number;
  replicaFiles: number;
  replicaAgeS: number;
}

export interface Window {
  samples: Sample[];
  latencies: ReadonlyMap<string, Latencies>;
  /** MiB of log, lake, private and public store at its end. */
  sizes: readonly [number, number, number, number];
}

export interface Happened {
  fault: string;
  window: number;
  seconds: number;
}

/** MiB at the beginning and at the end of the run, and the days of the record between. */
export interface Growth {
  from: readonly number[];
  to: readonly number[];
  days: number;
}

export interface SoakReport {
  of: { hours: number; endpoints: number; pace: number; limit: number; rate: number };
  windows: readonly Window[];
  happened: readonly Happened[];
  growth: Growth;
  /** Agents' answers outside of faults, by status. */
  calm: Readonly<Record<string, number>>;
  bought: Bought;
  notices: number;
  proof: SoakProof;
}

/** Agents note so what they do not send because too many of their requests have no answer yet (agents.ts). */
const NOT_SENT = "not sent";
/** Live heap of a window: what the collector left at its lowest. */
const least = (values: readonly number[]): number => Math.min(...values.filter((one) => !Number.isNaN(one)));
const GROWTH_ALLOWED = 1.1;
/** Younger processes are not compared, real seconds: the faults start them anew, and their caches fill. */
const WARM_S = 300;
/** Shorter runs are still warming up: caches, threads and heaps come to their size in the first half hour. */
const LONG_H = 1;

/** Says what of the run is not as it has to be. */
export function verdictOf({ of, windows, calm, bought, notices }: SoakReport): string[] {
  const problems: string[] = [];
  const must = (ok: boolean, says: string): void => void (ok || problems.push(says));
  // What agents did not send says how fast the machine was when their rate was measured, and how fast it was then.
  const { [NOT_SENT]: unsent = 0, ...answers } = calm;
  const bad = Object.keys(answers).filter((status) => !/^(2\d\d|304|404|429|503)$/.test(status));
  must(
    bad.length === 0,
    `outside of faults agents got ${bad.map((status) => `${calm[status]} x ${status}`).join(", ")}`,
  );
  must((calm["200"] ?? 0) > 0, "no agent got an answer outside of faults");
  const answered = Object.values(answers).reduce((sum, n) => sum + n, 0);
  must(
    unsent <= answered,
    `${unsent} requests were not sent, since others had no answer yet; ${answered} were answered`,
  );
  must(bought.lost === null || bought.ms.length > 0, "no call was bought");
  must((bought.lost ?? 0n) <= 0n, `a buyer was charged ${bought.lost} micro-units without an answer`);
  must(
    windows.every(({ samples }) => samples.length > 0),
    "there are windows without a sample",
  );
  if (of.hours < LONG_H) return problems;
  must(notices > 0, "the watcher's receiver got no notice");
  const half = Math.floor(windows.length / 2);
  const quarter = Math.floor(half / 2);
  const [service, replica] = [(one: Sample) => one.ageS, (one: Sample) => one.replicaAgeS];
  const figures: [string, (one: Sample) => number, (one: Sample) => number, (values: number[]) => number][] = [
    ["RSS", service, (one) => one.rssMb, medianOf],
    ["live heap", service, (one) => one.heapMb, least],
    ["open files", service, (one) => one.openFiles, medianOf],
    ["the replica's RSS", replica, (one) => one.replicaRssMb, medianOf],
    ["the replica's open files", replica, (one) => one.replicaFiles, medianOf],
  ];
  for (const [name, ageOf, read, sum] of figures) {
    const warm = (part: readonly Window[]): number[] =>
      part.flatMap(({ samples }) => samples.filter((one) => ageOf(one) >= WARM_S).map(read));
    const [third, last] = [warm(windows.slice(half, half + quarter)), warm(windows.slice(-quarter))];
    must(third.length > 0 && last.length > 0, `${name}: no process lived five minutes in a quarter of the run`);
    const [before, after] = [sum(third), sum(last)];
    must(after <= GROWTH_ALLOWED * before, `${name} grew from ${before.toFixed(0)} to ${after.toFixed(0)}`);
  }
  return problems;
}

const table = (head: readonly string[], rows: readonly (readonly (string | number)[])[]): string =>
  [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
const countsOf = (statuses: Readonly<Record<string, number>>): string =>
  Object.entries(statuses)
    .map(([status, n]) => `${n} x ${status}`)
    .join(", ");
const whole = (n: number): string => (Number.isNaN(n) ? "-" : n.toFixed(0));

/** The tables of a run, as they stand in docs/operate.md. */
export function textOf({ of, windows, happened, growth, calm, bought, notices, proof }: SoakReport): string {
  const processes = windows.map(({ samples, sizes }, i) => {
    const median = (read: (one: Sample) => number): string => whole(medianOf(samples.map(read)));
    return [
      ...[
        String(i + 1),
        median((s) => s.rssMb),
        whole(least(samples.map((s) => s.heapMb))),
        median((s) => s.openFiles),
      ],
      ...[median((s) => s.sockets), median((s) => s.lagRecords), median((s) => s.oldestWorkS)],
      ...[
        median((s) => s.replicaRssMb),
        whole(least(samples.map((s) => s.replicaHeapMb))),
        median((s) => s.replicaFiles),
      ],
      ...[
        sizes.map(whole).join(" / "),
        happened
          .filter((one) => one.window === i + 1)
          .map((one) => one.fault)
          .join(", "),
      ],
    ];
  });
  const names = [...new Set(windows.flatMap(({ latencies }) => [...latencies.keys()]))];
  const ms = (window: Window, name: string): string => {
    const latencies = window.latencies.get(name);
    return latencies ? `${quantileOf(latencies, 0.5) ?? "-"} / ${quantileOf(latencies, 0.99) ?? "-"}` : "-";
  };
  const grown = growth.to.map((size, i) => (size - growth.from[i]!) / growth.days);
  const facts = [
    `${of.endpoints} endpoints, ${of.hours} h, ${growth.days.toFixed(2)} days of the record (pace ${of.pace}); the service answers ${of.limit} requests a second, agents send ${of.rate}.`,
    `Disk a day of the record, MiB: log ${grown[0]!.toFixed(1)}, lake ${grown[1]!.toFixed(1)}, private ${grown[2]!.toFixed(1)}, public ${grown[3]!.toFixed(1)}.`,
    `The record: ${proof.probes} probes, ${proof.paid} paid calls, ${proof.cards} cards; ${proof.acknowledged} acknowledged appends, ${proof.lost} lost; ${proof.blamed} failures counted against honest sellers; audits ended with ${proof.audits.join(" and ")}.`,
    `Bought ${bought.ms.length} calls (${countsOf(bought.statuses)}), ${bought.sentAgain} answered when the payment was sent again; charged without an answer: ${bought.lost ?? "not sold"} micro-units. ${notices} notices.`,
    `Agents outside of faults: ${countsOf(calm)}.`,
    `Faults: ${happened.map(({ fault, seconds }) => `${fault} (${seconds.toFixed(0)} s)`).join("; ")}.`,
  ];
  return [
    ...facts.map((fact) => `- ${fact}`),
    "",
    table(
      [
        "window",
        "RSS MB",
        "heap MB",
        "files",
        "sockets",
        "lag",
        "oldest work s",
        "replica RSS",
        "heap",
        "files",
        "log/lake/private/public MB",
        "faults",
      ],
      processes,
    ),
    "",
    "p50 / p99, ms:",
    "",
    table(
      ["operation", ...windows.map((_, i) => String(i + 1))],
      names.map((name) => [name, ...windows.map((window) => ms(window, name))]),
    ),
  ].join("\n");
}
