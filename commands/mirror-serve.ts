import { Failure } from "../infra/errors.ts";
import { readDirectoryStore } from "../infra/store/directory.ts";
import { createLogger } from "../infra/telemetry.ts";
import { findRecordFolder } from "../pipelines/published/open-source.ts";
import { serve } from "../serving/main.ts";
import { createMirrorApp, MIRROR_PROXIES } from "../serving/mirror-app.ts";
import { untilStopped } from "./exit.ts";
import { withOpen } from "./files.ts";
import { printLines } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/**
 * `touchstone mirror serve`: serves the public folder of a mirror over HTTP until stopped. `touchstone mirror` may
 * write to the folder meanwhile.
 */
export async function mirrorServe(dir: string, { host, port }: OptionsOf<"mirror serve">): Promise<void> {
  const folder = (await findRecordFolder(dir))?.publicDir;
  if (!folder) throw new Failure("unreadable", `${dir} is not the folder of a mirror`);
  await withOpen(readDirectoryStore(folder), (publicStore) => {
    const app = createMirrorApp(publicStore, createLogger("warn"));
    return withOpen(serve({ app, proxies: MIRROR_PROXIES, host, port }), async ({ url }) => {
      printLines(`Serving the mirror in ${folder} at ${url}`);
      await untilStopped();
    });
  });
}
