import { systemClock } from "../../../infra/clock.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import { loadKeys } from "../../../infra/keys/keys.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { witnessName } from "../../../infra/tree/checkpoint.ts";
import { Notifier } from "../../../pipelines/6-notify/notifier.ts";
import { PublishedTree } from "../../../pipelines/published/reader.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";

/** A process that delivers until it is killed: `watcher-child.ts RECORD_DIR LOG_DIR ORIGIN`. */
const [recordDir, logDir, origin] = process.argv.slice(2) as [string, string, string];
const keys = loadKeys(`${recordDir}/keys`);
const tree = new PublishedTree(await openDirectoryStore(`${recordDir}/public`), {
  log: { name: origin, publicKey: keys.log.publicKey },
  witness: { name: witnessName(origin), publicKey: keys.witness.publicKey },
});
const notifier = new Notifier({
  log: await openEmbeddedLog(logDir, { topics: TOPICS, partitions: 4 }),
  tree,
  egress: createEgress({ allowLoopback: true, userAgent: "touchstone (test)" }),
  signers: { cards: keys.cards, answers: keys.answers },
  clock: systemClock,
  logger: createLogger("warn"),
  metrics: createMetrics(),
  perDomainMinute: 10_000,
});
for (;;) {
  await notifier.runOnce();
  await new Promise((resolve) => setTimeout(resolve, 10));
}
