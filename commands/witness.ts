import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { readRing } from "../infra/keys/keys.ts";
import { createLogger, createMetrics, type Logger, type Metrics } from "../infra/telemetry.ts";
import { originOf, trustOf } from "../infra/tree/checkpoint.ts";
import { COSIGNATURE, ED25519, formatVkey, type NoteKey } from "../infra/tree/note.ts";
import { readPolicy } from "../infra/tree/policy.ts";
import { parseVerifierKey } from "../pipelines/published/trust.ts";
import { foldersOf } from "../pipelines/roles/data-folder.ts";
import { WitnessState } from "../pipelines/witness/state.ts";
import { Witness } from "../pipelines/witness/witness.ts";
import { type Serving, serve } from "../serving/main.ts";
import type { Pulse } from "../serving/status/pulse.ts";
import { createWitnessApp } from "../serving/witness-app.ts";
import { commandStatusLines, openCommandStatus } from "./command-status.ts";
import { untilStopped } from "./exit.ts";
import { readNamedFile, withOpen } from "./files.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** Pattern for names of keys: printable, without space and plus (c2sp.org/signed-note). */
const KEY_NAME = /^[^\s+\p{C}]{1,200}$/u;

/** Pause between two checks that the state can be read, ms. */
const CHECK_MS = 10_000;

type WitnessOptions = OptionsOf<"witness"> & { settings: () => Config };

/** Returns the verifier keys of the logs that --log and --logs name. @throws Failure `usage`, `unreadable` */
async function logsOf({ log, logs }: Pick<OptionsOf<"witness">, "log" | "logs">): Promise<NoteKey[]> {
  const policyLogs = logs === undefined ? [] : readPolicy(await readNamedFile(logs)).logs;
  const logKeys = [...policyLogs, ...log.map((vkey) => parseVerifierKey(vkey, ED25519))];
  if (logKeys.length === 0) throw new Failure("usage", "name the logs: --log, or --logs with a file of log lines");
  return logKeys;
}

/** Prints the verifier key of a witness; creates the witness's key first if there is none. */
function printKey(dir: string, options: OptionsOf<"witness">): void {
  const state = WitnessState.open(dir, options.name);
  const vkey = formatVkey(state.signer, COSIGNATURE);
  state.close();
  print(options, { vkey }, [vkey]);
}

/** A witness with its listening server. */
interface OpenWitness {
  witness: Witness;
  serving: Serving;
  close(): Promise<void>;
}

/** Opens the witness of a folder and listens. @throws Failure `port`, `record`, `usage` */
async function openWitness(
  dir: string,
  name: string,
  logs: readonly NoteKey[],
  listenAddress: { host: string; port: number },
  logger: Logger,
  metrics?: Metrics,
): Promise<OpenWitness> {
  const state = WitnessState.open(dir, name);
  try {
    const witness = new Witness(state, logs, systemClock);
    const serving = await serve({ app: createWitnessApp(witness, logger, metrics), ...listenAddress });
    const close = () => serving.close().finally(() => state.close());
    return { witness, serving, close };
  } catch (error) {
    state.close();
    throw error;
  }
}

/**
 * Reads from the witness's state when each log was last cosigned, and sets the gauges. /health then reports whether the
 * state could be read.
 */
async function checkState(witness: Witness, pulse: Pulse, logger: Logger, metrics: Metrics): Promise<void> {
  const check = async () => {
    for (const [log, seconds] of witness.lastCosignedSeconds())
      metrics.gauge("touchstone_log_cosigned_seconds", seconds, { log });
  };
  await pulse.during("state", check).catch((error: unknown) => logger.error({ err: error }, "no state can be read"));
}

/**
 * `touchstone witness`: cosigns the checkpoints of other logs until stopped; docs/witness.md. /health and /metrics are
 * at `status.port`, if the settings name one.
 */
export async function witnessCommand(dir: string, options: WitnessOptions): Promise<void> {
  const { name, host, port, settings } = options;
  if (!KEY_NAME.test(name)) throw new Failure("usage", `not the name of a witness: ${name}`);
  if (options.key) return printKey(dir, options);
  const logs = await logsOf(options);
  const config = settings();
  const [logger, metrics] = [createLogger("warn"), createMetrics("witness")];
  const { witness, serving, close } = await openWitness(dir, name, logs, { host, port }, logger, metrics);
  try {
    const work = { role: "witness", work: "state", pauseSeconds: CHECK_MS / 1_000, dir } as const;
    await withOpen(openCommandStatus(config, work, metrics), async (status) => {
      const { pulse, url } = status;
      await checkState(witness, pulse, logger, metrics);
      const checks = setInterval(() => void checkState(witness, pulse, logger, metrics), CHECK_MS);
      const origins = [...new Set(logs.map((one) => one.name))];
      print(options, { serving: serving.url, vkey: witness.vkey, logs: origins, status: url }, [
        `Witness ${witness.vkey} at ${serving.url}`,
        ...commandStatusLines(status),
        ...origins.map((origin) => `log: ${origin}`),
      ]);
      await untilStopped();
      clearInterval(checks);
    });
  } finally {
    await close();
  }
}

/**
 * The demo's two witnesses: their names, keys and urls for the publisher, and the file of a policy that requires both.
 */
export interface DemoWitnesses {
  witnesses: Config["witnesses"];
  policyFile: string;
  close(): Promise<void>;
}

const DEMO_WITNESSES = ["north", "south"] as const;

/**
 * Opens two witnesses of the demo's log in this process, each with its own folder, key and port, and writes the policy
 * that names them. They use the real clock, as other parties' witnesses would, also while the record's time is
 * simulated.
 * @param now time at which the log keys in the policy are valid
 * @throws Failure `port`, `record`
 */
export async function openDemoWitnesses(
  { data_dir, base_url, market }: Pick<Config, "data_dir" | "base_url" | "market">,
  now: Date,
): Promise<DemoWitnesses> {
  const { keys, witnesses: dir } = foldersOf(data_dir);
  const { log, logs = [] } = trustOf(originOf(base_url), readRing(keys), now);
  const openWitnesses: OpenWitness[] = [];
  const close = async () => {
    for (const one of openWitnesses.splice(0)) await one.close();
  };
  try {
    for (const [i, name] of DEMO_WITNESSES.entries()) {
      const listenAddress = { host: "127.0.0.1", port: market.witness_ports[i]! };
      const logger = createLogger("warn");
      openWitnesses.push(
        await openWitness(join(dir, name), `demo.example/${name}`, [log, ...logs], listenAddress, logger),
      );
    }
  } catch (error) {
    await close();
    if (!(error instanceof Failure && error.code === "port")) throw error;
    throw new Failure("port", `${error.message} (a witness of the demo: TOUCHSTONE_MARKET_WITNESS_PORTS)`);
  }
  const names = DEMO_WITNESSES.map((name) => `demo-${name}`);
  const vkeys = openWitnesses.map(({ witness }) => witness.vkey);
  const policyFile = join(dir, "policy");
  const lines = [
    ...[log, ...logs].map((one) => `log ${formatVkey(one, ED25519)}`),
    ...names.map((name, i) => `witness ${name} ${vkeys[i]}`),
    `group both all ${names.join(" ")}`,
    "quorum both",
  ];
  writeFileSync(policyFile, `${lines.join("\n")}\n`);
  return {
    witnesses: names.map((name, i) => ({ name, key: vkeys[i]!, url: openWitnesses[i]!.serving.url })),
    policyFile,
    close,
  };
}
