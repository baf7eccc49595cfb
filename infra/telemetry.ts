import pino from "pino";
import prom from "prom-client";
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

/** A registry of its own per process role, so that tests never share counters. */
export function createMetrics(): Metrics {
  const registry = new prom.Registry();
  const counters = new Map<string, prom.Counter>();
  const gauges = new Map<string, prom.Gauge>();
  const once = <T>(map: Map<string, T>, name: string, make: () => T): T => {
    let metric = map.get(name);
    if (!metric) {
      metric = make();
      map.set(name, metric);
    }
    return metric;
  };
  return {
    count(name, labels = {}, by = 1) {
      const make = () => new prom.Counter({ name, help: name, labelNames: Object.keys(labels), registers: [registry] });
      once(counters, name, make).inc(labels, by);
    },
    gauge(name, value, labels = {}) {
      const make = () => new prom.Gauge({ name, help: name, labelNames: Object.keys(labels), registers: [registry] });
      once(gauges, name, make).set(labels, value);
    },
    forget(name, labels) {
      gauges.get(name)?.remove(labels);
    },
    gauges: async (name) => (await gauges.get(name)?.get())?.values ?? [],
    text: () => registry.metrics(),
  };
}

export type GaugeStand = prom.MetricValue<string>;

/** Counters and gauges in Prometheus text form. A name keeps the label names of its first use. */
export interface Metrics {
  count(name: string, labels?: Record<string, string>, by?: number): void;
  gauge(name: string, value: number, labels?: Record<string, string>): void;
  /** A gauge of something that is no more of this process: it would stand at its last value for ever. */
  forget(name: string, labels: Record<string, string>): void;
  /** What a gauge stands at, by its labels; none where nobody in this process set it. */
  gauges(name: string): Promise<readonly GaugeStand[]>;
  text(): Promise<string>;
}
