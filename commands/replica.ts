import { join } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import type { Keyring } from "../infra/keys/keys.ts";
import { openLog } from "../infra/log/open.ts";
import { originOf, trustOf } from "../infra/tree/checkpoint.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../infra/tree/note.ts";
import { openSource } from "../pipelines/published/open-source.ts";
import type { GivenKeys } from "../pipelines/published/trust.ts";
import { LOG_TOPIC_OPTIONS } from "../pipelines/record/topics.ts";
import { openReplicaParts } from "../pipelines/roles/parts.ts";
import { BackgroundLog } from "../serving/replica/background-log.ts";
import { createReplicaStore, LiveObjects } from "../serving/replica/live-objects.ts";
import { ProvenTree } from "../serving/replica/proven-tree.ts";
import { endInTime, untilStopped } from "./exit.ts";
import { withOpen } from "./files.ts";
import { logStart } from "./machine-status.ts";
import { print } from "./printer.ts";
import { printStatus } from "./report.ts";
import { openServing } from "./serving-tier.ts";
import { keysOf } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

/**
 * `from`: address, folder or bucket of the public record. `mirror`: folder of the copy, which all processes of a
 * machine may share.
 */
type ReplicaOptions = Pick<OptionsOf<"serve">, "mirror" | "witnessPolicy" | "maxAge" | "json"> & { from: string };

/** Returns the verifier keys of log and witness that are valid now according to this machine's keyring. */
function verifierKeysOf(ring: Keyring, origin: string, now: Date): GivenKeys {
  const { log, witness } = trustOf(origin, ring, now);
  return { log: formatVkey(log, ED25519), ...(witness ? { witness: formatVkey(witness, COSIGNATURE) } : {}) };
}

/**
 * `touchstone serve --from`: serves from a mirror. The replica has the public keys and the private key for answers; it
 * copies the public record, verifies it, and answers from its own copy. It appends asks (requests to probe a url) and
 * disputes to the log that the settings name; without a log it refuses them.
 * @throws Failure `keys`, `usage`, `port`; Rollback, Forked, Unproven if the source's first tree head is not proven
 */
export async function serveReplica(
  config: Config,
  { from, mirror, witnessPolicy, maxAge, json }: ReplicaOptions,
): Promise<void> {
  return withOpen(openReplicaParts(config), async (parts) => {
    const { keep, ring, logger, metrics } = parts;
    logStart(logger, config, "serve", ["follow"]);
    const origin = originOf(config.base_url);
    const source = keep(await openSource(from, systemClock, () => config));
    const { policy } = await keysOf({ witnessPolicy });
    const keys = { ...verifierKeysOf(ring, origin, systemClock.now()), policy };
    const dir = mirror ?? join(config.data_dir, "replica");
    const tree = keep(
      await ProvenTree.open({ source, dir, origin, keys, maxAge, clock: systemClock, logger, metrics }),
    );
    const openAskLog = () => openLog(config, LOG_TOPIC_OPTIONS, "", logger);
    const log = config.log === null ? null : keep(new BackgroundLog(openAskLog, systemClock, logger));
    const publicStore = createReplicaStore(tree.store, new LiveObjects(source, systemClock));
    const proven = { tree, jwks: () => tree.jwks };
    const serving = await openServing({ ...parts, log, publicStore, proven, shared: true }, systemClock);
    const { url } = serving;
    print({ json }, { serving: url, process: process.pid }, [`Serving at ${url} (process ${process.pid})`]);
    printStatus(serving.status, { json });
    await untilStopped();
    endInTime(logger);
    await serving.close();
  });
}
