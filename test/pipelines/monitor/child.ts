import { writeSync } from "node:fs";
import { systemClock } from "../../../infra/clock.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { Monitor } from "../../../pipelines/monitor/monitor.ts";
import { parseNames } from "../../../pipelines/monitor/names.ts";
import { MonitorState, type StateStep } from "../../../pipelines/monitor/state.ts";
import { Webhook } from "../../../pipelines/monitor/webhook.ts";
import { DirectorySource } from "../../../pipelines/published/source.ts";

/**
 * One round of a monitor: `child.ts DIR HOOK PAYEE LOGKEY STEP N SOURCE..` kills its own process group when it comes to
 * that step for the Nth time. Each notice that is told is a line of JSON.
 */
const [dir, hook, payee, log, step, n, ...sources] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  StateStep,
  string,
];
let seen = 0;
const state = MonitorState.open(dir, (at) => {
  if (at !== step || ++seen < Number(n)) return;
  process.kill(0, "SIGKILL");
  // The signal is on its way: nothing more happens here.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});
const egress = createEgress({ allowLoopback: true, extraPorts: [Number(new URL(hook).port)], userAgent: "test" });
const monitor = new Monitor({
  ...{ state, clock: systemClock, peers: [], keys: { log }, say: () => undefined },
  files: await openDirectoryStore(`${dir}/equivocations`),
  sources: (sources as string[]).map((name) => new DirectorySource(name)),
  names: parseNames({ cap: [], payTo: [payee], domain: [] }),
  webhook: new Webhook(hook, { egress, clock: systemClock, secret: null }),
  tell: async (notice) => void writeSync(1, `${JSON.stringify(notice)}\n`),
});
const round = await monitor.runRound();
writeSync(1, `${JSON.stringify({ head: round.head?.size, faults: round.faults.map(({ code }) => code) })}\n`);
process.exit(0);
