import pino from "pino";
import prom from "prom-client";
import {
  type Area,
  COUNTERS,
  type CounterName,
  type GAUGES,
  type GaugeName,
  HISTOGRAMS,
  type HistogramName,
  type LabelsOf,
  METRICS,
} from "./metrics.ts";
import { toPrintableJson } from "./printable.ts";
import { redact } from "./secrets.ts";

/** Logger of this process: one JSON line per message on stderr. stdout carries the output of commands. */
export type Logger = pino.Logger;

const SECRET_PATHS = ["privateKey", "*.privateKey", "secret", "*.secret", "token", "*.token", "headerValue"];

/** Opens a stream to stderr that removes the secrets of this process and unprintable characters from each line. */
function openRedactedStderr(): pino.DestinationStream {
  const stderr = pino.destination({ fd: 2, sync: true });
  return { write: (line) => stderr.write(toPrintableJson(redact(line))) };
}

/** Creates a logger. @param level name of a pino level; `silent` for tests */
export const createLogger = (level: string, name = "touchstone"): Logger =>
  pino({ name, level, redact: { paths: SECRET_PATHS, censor: "[hidden]" } }, openRedactedStderr());

/** One value of a gauge with its labels. */
export type GaugeValue = prom.MetricValue<string>;

/** Counters, gauges and histograms of the tables in `metrics.ts`, in Prometheus text form. */
export interface Metrics {
  /** Adds to a counter, 1 by default. */
  count<N extends CounterName>(name: N, labels?: LabelsOf<(typeof COUNTERS)[N]>, by?: number): void;
  /** Sets a gauge. */
  gauge<N extends GaugeName>(name: N, value: number, labels?: LabelsOf<(typeof GAUGES)[N]>): void;
  /** Adds a duration in seconds to a histogram. */
  time<N extends HistogramName>(name: N, seconds: number, labels?: LabelsOf<(typeof HISTOGRAMS)[N]>): void;
  /**
   * Removes a series of a gauge whose subject no longer exists in this process. Otherwise the series would keep its
   * last value.
   */
  forget(name: GaugeName, labels: Record<string, string>): void;
  /** Returns the values of a gauge, one for each set of labels; empty when this process never set it. */
  gauges(name: GaugeName): Promise<readonly GaugeValue[]>;
  /** Returns all metrics and Node's process metrics in Prometheus text form. */
  text(): Promise<string>;
}

/** Returns every combination of label values; empty when the values of a label are not known beforehand. */
function combinations(labels: Readonly<Record<string, readonly string[] | null>>): Record<string, string>[] {
  return Object.entries(labels).reduce<Record<string, string>[]>(
    (sets, [name, values]) => sets.flatMap((set) => (values ?? []).map((value) => ({ ...set, [name]: value }))),
    [{}],
  );
}

/**
 * Gauges of prom-client that are removed, since their names end in `_total`, which only names of counters may
 * (promtool check metrics).
 */
const MISNAMED_GAUGES = [
  "nodejs_active_resources_total",
  "nodejs_active_handles_total",
  "nodejs_active_requests_total",
];

let processRegistry: prom.Registry | null = null;

/**
 * Returns the registry of this process's own metrics, created at the first call: CPU, memory, event loop, garbage
 * collection, open files.
 */
function processMetrics(): prom.Registry {
  if (processRegistry) return processRegistry;
  processRegistry = new prom.Registry();
  prom.collectDefaultMetrics({ register: processRegistry });
  for (const name of MISNAMED_GAUGES) processRegistry.removeSingleMetric(name);
  return processRegistry;
}

/**
 * Creates metrics with a registry of their own, so that tests do not share counters.
 * @param areas parts of the work that this process does; counters of these areas start at 0 now, other counters appear
 * at their first use
 */
export function createMetrics(...areas: readonly Area[]): Metrics {
  const registry = new prom.Registry();
  const registers = [registry];
  const metrics = new Map<string, prom.Counter | prom.Gauge | prom.Histogram>();
  const getOrCreate = <M extends prom.Counter | prom.Gauge | prom.Histogram>(name: string, make: () => M): M => {
    const existing = metrics.get(name) as M | undefined;
    if (existing) return existing;
    const metric = make();
    metrics.set(name, metric);
    return metric;
  };
  const describe = (name: string) => {
    const { help, labels = {} } = METRICS[name]!;
    return { name, help, labelNames: Object.keys(labels), registers };
  };
  const counter = (name: string): prom.Counter =>
    getOrCreate(name, () => {
      const metric = new prom.Counter(describe(name));
      for (const labels of combinations(METRICS[name]!.labels ?? {})) metric.inc(labels, 0);
      return metric;
    });
  const gauge = (name: string): prom.Gauge => getOrCreate(name, () => new prom.Gauge(describe(name)));
  const histogram = (name: HistogramName): prom.Histogram =>
    getOrCreate(name, () => new prom.Histogram({ ...describe(name), buckets: [...HISTOGRAMS[name].buckets] }));
  const isOfOurAreas = ({ of }: { of: Area }) => of === "role" || areas.includes(of);
  if (areas.length > 0) {
    for (const [name, row] of Object.entries(COUNTERS)) if (isOfOurAreas(row)) counter(name);
    for (const [name, row] of Object.entries(HISTOGRAMS)) if (isOfOurAreas(row)) histogram(name as HistogramName);
  }
  return {
    count: (name, labels, by = 1) => counter(name).inc((labels ?? {}) as Record<string, string>, by),
    gauge: (name, value, labels) => gauge(name).set((labels ?? {}) as Record<string, string>, value),
    time: (name, seconds, labels) => histogram(name).observe((labels ?? {}) as Record<string, string>, seconds),
    forget: (name, labels) => (metrics.get(name) as prom.Gauge | undefined)?.remove(labels),
    gauges: async (name) => (await (metrics.get(name) as prom.Gauge | undefined)?.get())?.values ?? [],
    text: async () => `${await registry.metrics()}\n${await processMetrics().metrics()}`,
  };
}
