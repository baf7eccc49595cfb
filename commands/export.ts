import { join } from "node:path";
import { openDirectoryStore } from "../infra/store/directory.ts";
import { exportIndex, openIndex } from "../pipelines/mirror/export-index.ts";

/** `touchstone export`: the newest index of a mirror's folder as one Parquet file. */
export async function exportCommand(dir: string, file: string, options: { json?: boolean }): Promise<void> {
  const publicStore = await openDirectoryStore(join(dir, "public"));
  const stateStore = await openDirectoryStore(join(dir, "state"));
  try {
    const index = await openIndex(publicStore, stateStore);
    const rows = await exportIndex(index, file, (done) => {
      if (process.stderr.isTTY) process.stderr.write(`\r\x1b[Kexport: ${done} of ${index.lines} endpoints`);
    });
    if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
    const { origin, treeSize, computedAt } = index;
    if (options.json) {
      process.stdout.write(`${JSON.stringify({ origin, tree_size: treeSize, computed_at: computedAt, rows, file })}\n`);
      return;
    }
    process.stdout.write(
      `${rows} endpoints of ${origin} at ${treeSize} leaves (${computedAt})\nnext: read ${file} with any Parquet reader\n`,
    );
  } finally {
    await publicStore.close();
    await stateStore.close();
  }
}
