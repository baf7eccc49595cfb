import { join } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { createEgress } from "../infra/egress/create.ts";
import { Failure } from "../infra/errors.ts";
import { ensurePrivateFolder } from "../infra/keys/files.ts";
import { openDirectoryStore } from "../infra/store/directory.ts";
import { openProcessLock } from "../infra/store/lock.ts";
import { createLogger, createMetrics, type Metrics } from "../infra/telemetry.ts";
import { parseUrl } from "../infra/url.ts";
import { Monitor, type RoundResult } from "../pipelines/monitor/monitor.ts";
import { type FoundName, parseNames } from "../pipelines/monitor/names.ts";
import { Peer } from "../pipelines/monitor/peers.ts";
import { MonitorState, VERDICTS } from "../pipelines/monitor/state.ts";
import { Webhook } from "../pipelines/monitor/webhook.ts";
import { openSource } from "../pipelines/published/open-source.ts";
import { serve } from "../serving/main.ts";
import { createMonitorApp } from "../serving/monitor-app.ts";
import type { Status } from "../serving/status/listener.ts";
import { commandStatusLines, openCommandStatus } from "./command-status.ts";
import { EXIT, endInTime, onStopSignal } from "./exit.ts";
import { print, say } from "./printer.ts";
import { keysOf } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

/** Longest pause between two rounds, seconds. */
const MAX_PAUSE_S = 86_400;
/** Largest number of sources, and of peers (other monitors), since each gets requests in every round. */
const MAX_ADDRESSES = 16;
/** Limits of the requests to an http source. A source that fails gets new requests in the next round. */
const SOURCE_LIMITS = { tries: 2, answerMs: 30_000 } as const;

type MonitorOptions = OptionsOf<"monitor"> & { settings: () => Config };

/** Resources that are closed when the command ends, the last opened first. */
class OpenResources {
  readonly #resources: { close(): unknown }[] = [];

  closeAtEnd<T extends { close(): unknown }>(one: T): T {
    this.#resources.push(one);
    return one;
  }

  async close(): Promise<void> {
    for (const one of this.#resources.splice(0).reverse()) await one.close();
  }
}

/**
 * Opens the webhook to which notices are posted. Like the notices of the service, they are never sent to private
 * networks.
 * @throws Failure
 */
function openWebhook(url: string, settings: Config, resources: OpenResources): Webhook {
  const { allow_loopback: allowLoopback, ports, monitor } = settings;
  // The operator chose this address, so its port is allowed.
  const port = Number(parseUrl(url)?.port || 443);
  const egress = resources.closeAtEnd(
    createEgress({ allowLoopback, extraPorts: [...ports, port], userAgent: "touchstone-monitor/1" }),
  );
  return new Webhook(url, { egress, clock: systemClock, secret: monitor.webhook_secret });
}

/**
 * Creates the monitor's folder if absent, and locks it for this process.
 * @throws Failure `busy` at once, if another process holds the lock
 */
function lockFolder(dir: string, resources: OpenResources): void {
  ensurePrivateFolder(dir);
  const lock = openProcessLock(join(dir, "keeper.sqlite"));
  resources.closeAtEnd(lock);
  if (!lock.tryAcquire()) throw new Failure("busy", `another process keeps ${dir}: stop it first`, { retriable: true });
}

/** Opens a monitor with the sources and the options of the command line. @throws Failure */
async function openMonitor(
  dir: string,
  sourceNames: readonly string[],
  options: MonitorOptions,
  resources: OpenResources,
): Promise<{ monitor: Monitor; state: MonitorState }> {
  const { once, listen, every, settings } = options;
  if (once && listen !== undefined) throw new Failure("usage", "--once is one round: without --listen");
  if (every < 1 || every > MAX_PAUSE_S) throw new Failure("usage", `--every is 1 to ${MAX_PAUSE_S} seconds`);
  if (Math.max(sourceNames.length, options.peer.length) > MAX_ADDRESSES) {
    throw new Failure("usage", `at most ${MAX_ADDRESSES} sources, and as many peers`);
  }
  const names = parseNames(options);
  const peers = options.peer.map((url) => new Peer(url));
  const keys = await keysOf(options);
  const webhook = options.webhook === undefined ? null : openWebhook(options.webhook, settings(), resources);
  const sources = [];
  for (const name of sourceNames)
    sources.push(resources.closeAtEnd(await openSource(name, systemClock, settings, SOURCE_LIMITS)));
  lockFolder(dir, resources);
  const state = resources.closeAtEnd(MonitorState.open(dir));
  const files = resources.closeAtEnd(await openDirectoryStore(join(dir, "equivocations")));
  const tell = async (notice: Record<string, unknown>) => print(options, notice, [noticeLine(notice, dir)]);
  const monitor = new Monitor({
    ...{ state, files, sources, peers, names, webhook, keys, maxAgeSeconds: options.maxAge },
    ...{ clock: systemClock, say, tell },
  });
  return { monitor, state };
}

/** Formats a notice for people, in one line. */
export function noticeLine(notice: Record<string, unknown>, dir: string): string {
  const { type, at, says, capability_id, url, names, leaf, file, log } = notice as Record<string, string>;
  if (type === "monitor.equivocation") {
    return `FORK of ${log}: ${says}; proven by ${join(dir, "equivocations", String(file))} (touchstone verify)`;
  }
  return `${at}  ${capability_id}  ${url ?? "not listed"}  ${says}  (leaf ${leaf}; ${[names].flat().join(", ")})`;
}

/** Formats, in one line, an endpoint to which newly watched names (an id, a payee address or a domain) refer. */
export const foundNameLine = ({ capability_id, url, listed, card, took_the_money, names }: FoundName): string =>
  [
    `watching ${capability_id}  ${url ?? "no listing yet"}${listed ? "" : " (not listed)"}`,
    card ? `${card.band} (${card.tier})${card.flags.length > 0 ? ` ${card.flags.join(", ")}` : ""}` : "no letter",
    ...(took_the_money ? ["took money and answered nothing"] : []),
    names.join(", "),
  ].join("  ");

const faultFacts = ({ code, message }: Failure) => ({ code, says: message });

/**
 * Prints the results of rounds: a fault only in the first of consecutive rounds that have it, and the tree head only
 * when it changes.
 */
class RoundPrinter {
  #reportedFaults = new Set<string>();
  #lastSize = -1;

  constructor(
    private readonly options: MonitorOptions,
    private readonly nameCount: number,
  ) {}

  printRound({ head, newCheckpoints, foundNames, forks, faults, warnings }: RoundResult): void {
    const { options } = this;
    for (const one of foundNames) print(options, { type: "monitor.found", ...one }, [foundNameLine(one)]);
    const problems = [...faults, ...warnings];
    // Faults are compared by the beginning of their message, since times and ages at its end change from round to
    // round.
    const keyOf = ({ code, message }: Failure) => `${code} ${message.slice(0, 60)}`;
    const newProblems = problems.filter((fault) => !this.#reportedFaults.has(keyOf(fault)));
    this.#reportedFaults = new Set(problems.map(keyOf));
    for (const { message } of newProblems) say(message);
    const hasMoved = head && head.size !== this.#lastSize;
    this.#lastSize = head?.size ?? -1;
    if (!options.once && !hasMoved && newProblems.length === 0) return;
    const facts = {
      head,
      kept: newCheckpoints,
      forks: forks.length,
      faults: faults.map(faultFacts),
      warnings: warnings.map(faultFacts),
    };
    print(options, { type: "monitor.round", ...facts }, [
      head
        ? `proven: ${head.size} leaves, root ${head.root} (${newCheckpoints} new checkpoints)`
        : "nothing is proven yet",
      ...(options.once && this.nameCount === 0 ? ["next: watch names with --cap, --pay-to or --domain"] : []),
    ]);
  }
}

/**
 * `touchstone monitor`: follows one log at several addresses, exchanges checkpoints with other monitors, and reports
 * what changed for the watched names; docs/monitor.md.
 * @throws Failure before the first round: `usage`, `unreadable`, `busy`, `record`, `port`. With --once: the most
 * serious fault of the round (`fork`, `unproven`, `tampered`, `unwitnessed`, `stale`, `rollback`, `failed`, `untold`),
 * else `changed` if the round reported a change. Without --once, after the stop: `fork` if the log signed two histories
 */
export async function monitorCommand(dir: string, sources: string[], options: MonitorOptions): Promise<void> {
  const resources = new OpenResources();
  try {
    const { monitor, state } = await openMonitor(dir, sources, options, resources);
    const report = new RoundPrinter(options, options.cap.length + options.payTo.length + options.domain.length);
    if (options.once) {
      const round = await monitor.runRound();
      report.printRound(round);
      const [fault] = round.faults;
      if (fault) throw fault;
      if (round.noticesPrinted > 0) throw new Failure("changed", `${round.noticesPrinted} changes`);
      return;
    }
    await follow(dir, monitor, state, report, options, resources);
    if (isForked(state)) throw new Failure("fork", "the log signed two histories");
  } finally {
    await resources.close();
  }
}

/** Sets /health and the metrics after a round. */
function recordRound({ pulse }: Status, metrics: Metrics, state: MonitorState, { head, faults }: RoundResult): void {
  if (faults[0]) pulse.failed("round", faults[0]);
  else pulse.done("round");
  pulse.setFacts({ head, faults: faults.map(({ code }) => code) });
  for (const { code } of faults) metrics.count("touchstone_monitor_faults_total", { code });
  metrics.gauge("touchstone_monitor_tree_size", head?.size ?? 0);
  for (const verdict of VERDICTS) metrics.gauge("touchstone_monitor_checkpoints", state.count(verdict), { verdict });
}

const isForked = (state: Pick<MonitorState, "count">): boolean => state.count("forked") > 0;

/**
 * Runs rounds until stopped. A stop waits for the current round, unless its sources take longer than endInTime()
 * allows.
 */
async function follow(
  dir: string,
  monitor: Monitor,
  state: MonitorState,
  report: RoundPrinter,
  options: MonitorOptions,
  resources: OpenResources,
) {
  const { host, listen: port, every, settings } = options;
  const stop = new AbortController();
  const metrics = createMetrics("monitor");
  const logger = createLogger("warn");
  const removeHandlers = onStopSignal(() => {
    stop.abort();
    endInTime(logger, () => (isForked(state) ? EXIT.fork : EXIT.ok));
  });
  try {
    const work = { role: "monitor", work: "round", pauseSeconds: every, dir } as const;
    const status = resources.closeAtEnd(await openCommandStatus(settings(), work, metrics));
    if (status.url !== null) print(options, { type: "monitor.status", status: status.url }, commandStatusLines(status));
    if (port !== undefined) {
      const app = createMonitorApp(state, () => monitor.origin, logger);
      const { url } = resources.closeAtEnd(await serve({ app, host, port }));
      print(options, { type: "monitor.serving", serving: url }, [`Monitor at ${url}`]);
    }
    while (!stop.signal.aborted) {
      const round = await monitor.runRound();
      report.printRound(round);
      recordRound(status, metrics, state, round);
      // A stop ends the pause early, by an error that is ignored.
      await systemClock.sleep(every * 1_000, stop.signal).catch((error: unknown) => {
        if (!stop.signal.aborted) throw error;
      });
    }
  } finally {
    removeHandlers();
  }
}
