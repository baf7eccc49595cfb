import { join } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { createEgress } from "../infra/egress/create.ts";
import { Failure } from "../infra/errors.ts";
import { createPrivateFolder } from "../infra/keys/files.ts";
import { openDirectoryStore } from "../infra/store/directory.ts";
import { openKeeper } from "../infra/store/lock.ts";
import { createLogger } from "../infra/telemetry.ts";
import { parseUrl } from "../infra/url.ts";
import { Monitor, type RoundResult } from "../pipelines/monitor/monitor.ts";
import { type FoundName, readNames } from "../pipelines/monitor/names.ts";
import { Peer } from "../pipelines/monitor/peers.ts";
import { MonitorState } from "../pipelines/monitor/state.ts";
import { Webhook } from "../pipelines/monitor/webhook.ts";
import { openSource } from "../pipelines/published/open-source.ts";
import { serve } from "../serving/main.ts";
import { createMonitorApp } from "../serving/monitor-app.ts";
import { onStopSignal } from "./exit.ts";
import { print, say } from "./printer.ts";
import { keysOf } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

/** Longest pause between two rounds, seconds. */
const MAX_EVERY_S = 86_400;
/** Most sources and most peers: all are asked in each round. */
const MAX_ADDRESSES = 16;
/** Patience with an http source: the next round asks again. */
const PATIENCE = { tries: 2, answerMs: 30_000 } as const;

type MonitorOptions = OptionsOf<"monitor"> & { settings: () => Config };

/** Opens what is closed when the command ends, the last opened first. */
class Opened {
  readonly #open: { close(): unknown }[] = [];

  keep<T extends { close(): unknown }>(one: T): T {
    this.#open.push(one);
    return one;
  }

  async close(): Promise<void> {
    for (const one of this.#open.splice(0).reverse()) await one.close();
  }
}

/** Opens the receiver of notices, with the guard that keeps notices of the service from private networks. @throws Failure */
function openWebhook(url: string, settings: Config, opened: Opened): Webhook {
  const { allow_loopback: allowLoopback, ports, monitor } = settings;
  // The operator named this address, so its port is meant.
  const port = Number(parseUrl(url)?.port || 443);
  const egress = opened.keep(
    createEgress({ allowLoopback, extraPorts: [...ports, port], userAgent: "touchstone-monitor/1" }),
  );
  return new Webhook(url, { egress, clock: systemClock, secret: monitor.webhook_secret });
}

/** Takes the folder for this process alone. @throws Failure `busy` at once, when another process has it */
function keepFolder(dir: string, opened: Opened): void {
  createPrivateFolder(dir);
  const keeper = openKeeper(join(dir, "keeper.sqlite"));
  opened.keep(keeper);
  if (!keeper.tryToKeep())
    throw new Failure("busy", `another process keeps ${dir}: stop it first`, { retriable: true });
}

/** Opens a monitor from the words of the command line. @throws Failure */
async function openMonitor(
  dir: string,
  sourceNames: readonly string[],
  options: MonitorOptions,
  opened: Opened,
): Promise<{ monitor: Monitor; state: MonitorState }> {
  const { once, listen, every, settings } = options;
  if (once && listen !== undefined) throw new Failure("usage", "--once is one round: without --listen");
  if (every < 1 || every > MAX_EVERY_S) throw new Failure("usage", `--every is 1 to ${MAX_EVERY_S} seconds`);
  if (Math.max(sourceNames.length, options.peer.length) > MAX_ADDRESSES) {
    throw new Failure("usage", `at most ${MAX_ADDRESSES} sources, and as many peers`);
  }
  const names = readNames(options);
  const peers = options.peer.map((url) => new Peer(url));
  const keys = await keysOf(options);
  const webhook = options.webhook === undefined ? null : openWebhook(options.webhook, settings(), opened);
  const sources = [];
  for (const name of sourceNames) sources.push(opened.keep(await openSource(name, systemClock, settings, PATIENCE)));
  keepFolder(dir, opened);
  const state = opened.keep(MonitorState.open(dir));
  const files = opened.keep(await openDirectoryStore(join(dir, "equivocations")));
  const tell = async (notice: Record<string, unknown>) => print(options, notice, [noticeLine(notice, dir)]);
  const monitor = new Monitor({
    ...{ state, files, sources, peers, names, webhook, keys, maxAgeSeconds: options.maxAge },
    ...{ clock: systemClock, say, tell },
  });
  return { monitor, state };
}

/** A notice for people, in one line. */
export function noticeLine(notice: Record<string, unknown>, dir: string): string {
  const { type, at, says, capability_id, url, names, leaf, file, log } = notice as Record<string, string>;
  if (type === "monitor.equivocation") {
    return `FORK of ${log}: ${says}; proven by ${join(dir, "equivocations", String(file))} (touchstone verify)`;
  }
  return `${at}  ${capability_id}  ${url ?? "not listed"}  ${says}  (leaf ${leaf}; ${[names].flat().join(", ")})`;
}

/** What a new name stands for, in one line. */
export const foundLine = ({ capability_id, url, listed, card, took_the_money, names }: FoundName): string =>
  [
    `watching ${capability_id}  ${url ?? "no listing yet"}${listed ? "" : " (not listed)"}`,
    card ? `${card.band} (${card.tier})${card.flags.length > 0 ? ` ${card.flags.join(", ")}` : ""}` : "no letter",
    ...(took_the_money ? ["took money and answered nothing"] : []),
    names.join(", "),
  ].join("  ");

const faultOf = ({ code, message }: Failure) => ({ code, says: message });

/** Prints rounds: each fault once as long as it stays, and the tree head when it moves. */
class Report {
  #said = new Set<string>();
  #size = -1;

  constructor(
    private readonly options: MonitorOptions,
    private readonly names: number,
  ) {}

  round({ head, newCheckpoints: kept, foundNames: found, forks, faults, warnings }: RoundResult): void {
    const { options } = this;
    for (const one of found) print(options, { type: "monitor.found", ...one }, [foundLine(one)]);
    const all = [...faults, ...warnings];
    // Times and ages at the end of a message change from round to round.
    const keyOf = ({ code, message }: Failure) => `${code} ${message.slice(0, 60)}`;
    const fresh = all.filter((fault) => !this.#said.has(keyOf(fault)));
    this.#said = new Set(all.map(keyOf));
    for (const { message } of fresh) say(message);
    const moved = head && head.size !== this.#size;
    this.#size = head?.size ?? -1;
    if (!options.once && !moved && fresh.length === 0) return;
    const facts = { head, kept, forks: forks.length, faults: faults.map(faultOf), warnings: warnings.map(faultOf) };
    print(options, { type: "monitor.round", ...facts }, [
      head ? `proven: ${head.size} leaves, root ${head.root} (${kept} new checkpoints)` : "nothing is proven yet",
      ...(options.once && this.names === 0 ? ["next: watch names with --cap, --pay-to or --domain"] : []),
    ]);
  }
}

/**
 * `touchstone monitor`: follows a log at several addresses, with other monitors, and tells what changed for names;
 * docs/monitor.md.
 * @throws Failure by which the round ended: `fork`, `unproven`, `tampered`, `unwitnessed`, `stale`, `rollback`, `failed`,
 * `untold`, `changed`; `usage`, `unreadable`, `busy`, `record`, `port`
 */
export async function monitorCommand(dir: string, sources: string[], options: MonitorOptions): Promise<void> {
  const opened = new Opened();
  try {
    const { monitor, state } = await openMonitor(dir, sources, options, opened);
    const report = new Report(options, options.cap.length + options.payTo.length + options.domain.length);
    if (options.once) {
      const round = await monitor.runRound();
      report.round(round);
      const [fault] = round.faults;
      if (fault) throw fault;
      if (round.noticesPrinted > 0) throw new Failure("changed", `${round.noticesPrinted} changes`);
      return;
    }
    await follow(monitor, state, report, options, opened);
    if (state.count("forked") > 0) throw new Failure("fork", "the log signed two histories");
  } finally {
    await opened.close();
  }
}

/** Runs rounds until stopped. A round under way is finished first. */
async function follow(monitor: Monitor, state: MonitorState, report: Report, options: MonitorOptions, opened: Opened) {
  const { host, listen: port, every } = options;
  const stop = new AbortController();
  const restore = onStopSignal(() => stop.abort());
  try {
    if (port !== undefined) {
      const app = createMonitorApp(state, () => monitor.origin, createLogger("warn"));
      const { url } = opened.keep(await serve({ app, host, port }));
      print(options, { type: "monitor.serving", serving: url }, [`Monitor at ${url}`]);
    }
    while (!stop.signal.aborted) {
      report.round(await monitor.runRound());
      // Only a stop may end a pause early.
      await systemClock.sleep(every * 1_000, stop.signal).catch((error: unknown) => {
        if (!stop.signal.aborted) throw error;
      });
    }
  } finally {
    restore();
  }
}
