import { join } from "node:path";
import { systemClock } from "../../infra/clock.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { MirrorUsage } from "../../pipelines/mirror/errors.ts";
import { type MirrorOptions, mirrorOnce } from "../../pipelines/mirror/mirror.ts";
import { openSource } from "../../pipelines/mirror/open-source.ts";

export interface MirrorCommandOptions {
  logKey?: string;
  witnessKey?: string;
  /** Seconds; 0 asks nothing. Default: a day. */
  maxAge?: number;
  width: number;
  json?: boolean;
}

/** Most objects that a polite mirror fetches at once. */
const MAX_WIDTH = 64;
/** Pause between two progress lines where there is no terminal, ms. */
const LINE_MS = 5_000;

/** `touchstone mirror`: one run; what is exposed lies in `<dir>/public`, what is remembered in `<dir>/state`. */
export async function mirror(sourceName: string, dir: string, options: MirrorCommandOptions): Promise<void> {
  if (options.width < 1 || options.width > MAX_WIDTH) throw new MirrorUsage(`--width is 1 to ${MAX_WIDTH}`);
  const began = performance.now();
  const source = await openSource(sourceName, systemClock);
  const publicStore = await openDirectoryStore(join(dir, "public"));
  const stateStore = await openDirectoryStore(join(dir, "state"));
  const line = progressLine();
  try {
    const done = await mirrorOnce({
      ...{ source, publicStore, stateStore, clock: systemClock },
      keys: { log: options.logKey, witness: options.witnessKey },
      maxAgeSeconds: options.maxAge,
      width: options.width,
      say: (text) => process.stderr.write(`${text}\n`),
      onProgress: line.show,
    });
    line.end();
    const tookS = Math.round((performance.now() - began) / 10) / 100;
    if (options.json) {
      process.stdout.write(`${JSON.stringify({ source: sourceName, ...done, took_s: tookS })}\n`);
      return;
    }
    process.stdout.write(
      `${done.result}: ${done.origin}, ${done.size} leaves (${done.size - done.from} new), root ${done.root}\n` +
        `${done.fetched} objects fetched, ${done.adopted} found here, ${tookS} s\nnext: serve ${join(dir, "public")}\n`,
    );
  } finally {
    line.end();
    await source.close();
    await publicStore.close();
    await stateStore.close();
  }
}

/** One line on stderr: rewritten on a terminal, else printed now and then. */
function progressLine(): { show: NonNullable<MirrorOptions["onProgress"]>; end: () => void } {
  let open = false;
  let last = performance.now();
  return {
    show: ({ done, of, what }) => {
      const now = performance.now();
      const text = `mirror: ${done} of ${of} ${what}`;
      if (process.stderr.isTTY && (now - last > 50 || done === of)) {
        process.stderr.write(`\r\x1b[K${text}`);
        open = true;
        last = now;
      } else if (!process.stderr.isTTY && now - last > LINE_MS) {
        process.stderr.write(`${text}\n`);
        last = now;
      }
    },
    end: () => {
      if (open) process.stderr.write("\n");
      open = false;
    },
  };
}
