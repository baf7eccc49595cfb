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
import { printableJson } from "./printable.ts";
import { redact } from "./secrets.ts";

/** Structured logs: one JSON line on stderr, so that stdout stays for what a command prints. */
export type Logger = pino.Logger;

const SECRET_PATHS = ["privateKey", "*.privateKey", "secret", "*.secret", "token", "*.token", "headerValue"];

/** Lines on stderr, each without the secrets of this process wherever they stand: in a message, a stack, a cause. */
function stderrWithoutSecrets(): pino.DestinationStream {
  const stderr = pino.destination({ fd: 2, sync: true });
  return { write: (line) => stderr.write(printableJson(redact(line))) };
}

/** @param level pino level name; `silent` for tests. */
export const createLogger = (level: string, name = "touchstone"): Logger =>
  pino({ name, level, redact: { paths: SECRET_PATHS, censor: "[hidden]" } }, stderrWithoutSecrets());

export type GaugeValue = prom.MetricValue<string>;

/** Counters, gauges and histograms of the tables in `metrics.ts`, in Prometheus text form. */
export interface Metrics {
  count<N extends CounterName>(name: N, labels?: LabelsOf<(typeof COUNTERS)[N]>, by?: number): void;
  gauge<N extends GaugeName>(name: N, value: number, labels?: LabelsOf<(typeof GAUGES)[N]>): void;
  /** @param seconds how long one of what the histogram is of took */
  time<N extends HistogramName>(name: N, seconds: number, labels?: LabelsOf<(typeof HISTOGRAMS)[N]>): void;
  /** A gauge of something that is no more of this process: it would stand at its last value for ever. */
  forget(name: GaugeName, labels: Record<string, string>): void;
  /** What a gauge stands at, by its labels; none where nobody in this process set it. */
  gauges(name: GaugeName): Promise<readonly GaugeValue[]>;
  /** All of them, and what Node tells of the process. */
  text(): Promise<string>;
}

/** Every combination of the values of labels; none where a label's values are not known beforehand. */
function combinations(labels: Readonly<Record<string, readonly string[] | null>>): Record<string, string>[] {
  return Object.entries(labels).reduce<Record<string, string>[]>(
    (sets, [name, values]) => sets.flatMap((set) => (values ?? []).map((value) => ({ ...set, [name]: value }))),
    [{}],
  );
}

/** Of prom-client's own: gauges whose names end as only a counter's may (promtool check metrics). */
const MISNAMED = ["nodejs_active_resources_total", "nodejs_active_handles_total", "nodejs_active_requests_total"];

let ofProcess: prom.Registry | null = null;

/** CPU, memory, event loop, garbage collection and open files of this process: one registry, since there is one process. */
function processMetrics(): prom.Registry {
  if (ofProcess) return ofProcess;
  ofProcess = new prom.Registry();
  prom.collectDefaultMetrics({ register: ofProcess });
  for (const name of MISNAMED) ofProcess.removeSingleMetric(name);
  return ofProcess;
}

/**
 * A registry of its own for each set of roles, so that tests never share counters.
 * @param areas what the process does: counters of these stand at 0 from now on, others from their first use
 */
export function createMetrics(...areas: readonly Area[]): Metrics {
  const registry = new prom.Registry();
  const registers = [registry];
  const made = new Map<string, prom.Counter | prom.Gauge | prom.Histogram>();
  const once = <M extends prom.Counter | prom.Gauge | prom.Histogram>(name: string, make: () => M): M => {
    const known = made.get(name) as M | undefined;
    if (known) return known;
    const metric = make();
    made.set(name, metric);
    return metric;
  };
  const described = (name: string) => {
    const { help, labels = {} } = METRICS[name]!;
    return { name, help, labelNames: Object.keys(labels), registers };
  };
  const counter = (name: string): prom.Counter =>
    once(name, () => {
      const metric = new prom.Counter(described(name));
      for (const labels of combinations(METRICS[name]!.labels ?? {})) metric.inc(labels, 0);
      return metric;
    });
  const gauge = (name: string): prom.Gauge => once(name, () => new prom.Gauge(described(name)));
  const histogram = (name: HistogramName): prom.Histogram =>
    once(name, () => new prom.Histogram({ ...described(name), buckets: [...HISTOGRAMS[name].buckets] }));
  const isOurs = ({ of }: { of: Area }) => of === "role" || areas.includes(of);
  if (areas.length > 0) {
    for (const [name, row] of Object.entries(COUNTERS)) if (isOurs(row)) counter(name);
    for (const [name, row] of Object.entries(HISTOGRAMS)) if (isOurs(row)) histogram(name as HistogramName);
  }
  return {
    count: (name, labels, by = 1) => counter(name).inc((labels ?? {}) as Record<string, string>, by),
    gauge: (name, value, labels) => gauge(name).set((labels ?? {}) as Record<string, string>, value),
    time: (name, seconds, labels) => histogram(name).observe((labels ?? {}) as Record<string, string>, seconds),
    forget: (name, labels) => (made.get(name) as prom.Gauge | undefined)?.remove(labels),
    gauges: async (name) => (await (made.get(name) as prom.Gauge | undefined)?.get())?.values ?? [],
    text: async () => `${await registry.metrics()}\n${await processMetrics().metrics()}`,
  };
}
