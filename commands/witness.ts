import { systemClock } from "../infra/clock.ts";
import { Failure } from "../infra/errors.ts";
import { createLogger } from "../infra/telemetry.ts";
import { ED25519, type NoteKey } from "../infra/tree/note.ts";
import { readPolicy } from "../infra/tree/policy.ts";
import { parseVerifierKey } from "../pipelines/published/trust.ts";
import { WitnessState } from "../pipelines/witness/state.ts";
import { Witness } from "../pipelines/witness/witness.ts";
import { serve } from "../serving/main.ts";
import { createWitnessApp } from "../serving/witness-app.ts";
import { untilStopped } from "./exit.ts";
import { readNamed } from "./files.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** Names of keys are printable and have no space and no plus (c2sp.org/signed-note). */
const NAME = /^[^\s+\p{C}]{1,200}$/u;

/** The logs that the options name, by their verifier keys. @throws Failure `usage`, `unreadable` */
async function logsOf({ log, logs }: Pick<OptionsOf<"witness">, "log" | "logs">): Promise<NoteKey[]> {
  const listed = logs === undefined ? [] : readPolicy(await readNamed(logs)).logs;
  const all = [...listed, ...log.map((vkey) => parseVerifierKey(vkey, ED25519))];
  if (all.length === 0) throw new Failure("usage", "name the logs: --log, or --logs with a file of log lines");
  return all;
}

/** `touchstone witness`: cosigns the checkpoints of other logs until stopped; docs/witness.md. */
export async function witnessCommand(dir: string, options: OptionsOf<"witness">): Promise<void> {
  const { name, host, port } = options;
  if (!NAME.test(name)) throw new Failure("usage", `not the name of a witness: ${name}`);
  const logs = await logsOf(options);
  const state = WitnessState.open(dir, name);
  try {
    const witness = new Witness(state, logs, systemClock);
    const serving = await serve({ app: createWitnessApp(witness, createLogger("warn")), host, port });
    const origins = [...new Set(logs.map((one) => one.name))];
    print(options, { serving: serving.url, vkey: witness.vkey, logs: origins }, [
      `Witness ${witness.vkey} at ${serving.url}`,
      ...origins.map((origin) => `log: ${origin}`),
    ]);
    await untilStopped();
    await serving.close();
  } finally {
    state.close();
  }
}
