import { stat } from "node:fs/promises";
import { join } from "node:path";
import { openDirectoryStore } from "../infra/store/directory.ts";
import { createLogger } from "../infra/telemetry.ts";
import { MirrorUsage } from "../pipelines/published/errors.ts";
import { serve } from "../serving/main.ts";
import { createMirrorApp, MIRROR_PROXIES } from "../serving/mirror-app.ts";
import { untilStopped } from "./signals.ts";

export interface MirrorServeOptions {
  host: string;
  port: number;
}

/** `touchstone mirror serve`: the public folder of a mirror over HTTP until stopped. `touchstone mirror` may run beside. */
export async function mirrorServe(dir: string, options: MirrorServeOptions): Promise<void> {
  const folder = join(dir, "public");
  if (!(await stat(folder).catch(() => null))?.isDirectory()) {
    throw new MirrorUsage(`${folder} is no folder: run touchstone mirror first`);
  }
  const publicStore = await openDirectoryStore(folder);
  try {
    const app = createMirrorApp(publicStore, createLogger("warn"));
    const serving = await serve({ app, proxies: MIRROR_PROXIES, ...options });
    process.stdout.write(`Serving the mirror in ${folder} at ${serving.url}\n`);
    await untilStopped();
    await serving.close();
  } finally {
    await publicStore.close();
  }
}
