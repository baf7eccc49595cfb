import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import type { Metrics } from "../infra/telemetry.ts";
import { openStatus, type Status } from "../serving/status/listener.ts";
import type { Role } from "../serving/status/pulse.ts";

/** What /health reports about a command that runs until stopped and is no role of the service. */
export interface CommandWork {
  role: Extract<Role, "witness" | "monitor" | "mirror">;
  /** Name of the work that the command repeats. */
  work: string;
  /** Longest pause between two runs of the work, seconds. */
  pauseSeconds: number;
  /** Folder of the command; `/health` reports when its disk is full. */
  dir: string;
}

/**
 * Opens the listener of /health and /metrics at `status.port`, if the settings name a port. The work has to succeed
 * within `status.patience_s`, or within the time of three pauses if that is longer.
 * @throws Failure `port` when the port is taken
 */
export function openCommandStatus(
  settings: Config,
  { role, work, pauseSeconds, dir }: CommandWork,
  metrics: Metrics,
): Promise<Status> {
  const status = { ...settings.status, patience_s: Math.max(settings.status.patience_s, 3 * pauseSeconds) };
  const config = { ...settings, data_dir: dir, status };
  return openStatus(config, { role, clock: systemClock, metrics, listen: true }, work);
}

/** Formats the address of the listener, for people; no line when there is none. */
export const commandStatusLines = ({ url }: Pick<Status, "url">): string[] =>
  url === null ? [] : [`/health and /metrics at ${url}`];
