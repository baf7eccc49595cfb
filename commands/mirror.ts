import { rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { openDirectoryStore } from "../infra/store/directory.ts";
import { openProcessLock } from "../infra/store/lock.ts";
import type { Store } from "../infra/store/store.ts";
import { createLogger, createMetrics } from "../infra/telemetry.ts";
import { followMirror, mirrorOnce } from "../pipelines/mirror/mirror.ts";
import type { MirrorOptions, MirrorSummary } from "../pipelines/mirror/run.ts";
import { MirrorState } from "../pipelines/mirror/state.ts";
import { MirrorBusy } from "../pipelines/published/errors.ts";
import { CHECKPOINT } from "../pipelines/published/objects.ts";
import { openSource } from "../pipelines/published/open-source.ts";
import { endInTime, onStopSignal } from "./exit.ts";
import { withOpen } from "./files.ts";
import { ProgressLine, print, say } from "./printer.ts";
import { stopwatch } from "./report.ts";
import { keysOf, type RecordOptions } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

/** Largest number of objects that are fetched at once (--width), to limit the load on the source. */
const MAX_WIDTH = 64;
/** Largest number of missing or repaired objects that are printed; `--json` prints all. */
const MAX_PRINTED_OBJECTS = 10;

/**
 * `touchstone mirror`: copies a public record once, or repeatedly until stopped. The copy is in `<dir>/public`, the
 * last verified tree head in `<dir>/state`, and partly fetched objects are in `<dir>/parts`.
 * @throws Failure `missing` if the log is complete, but other objects are missing; the errors of a run
 */
export async function mirror(
  sourceName: string,
  dir: string,
  options: OptionsOf<"mirror"> & Omit<RecordOptions, "settings"> & { settings: () => Config },
): Promise<void> {
  const { width, maxAge, only, cardSignatures = true, verify = false, follow: everySeconds } = options;
  if (verify && everySeconds !== undefined) throw new Failure("usage", "--verify cannot be combined with --follow");
  if (width < 1 || width > MAX_WIDTH) throw new Failure("usage", `--width must be 1 to ${MAX_WIDTH}`);
  const keys = await keysOf(options);
  await withOpen(openSource(sourceName, systemClock, options.settings), (source) =>
    withOpen(openMirrorFolder(dir), async ({ dir: folder, publicStore, stateStore, partsDir }) => {
      const line = new ProgressLine();
      const printRun = (summary: MirrorSummary, tookS?: number) => {
        line.end(true);
        const facts = { source: sourceName, ...summary, ...(tookS === undefined ? {} : { took_s: tookS }) };
        print(options, facts, linesOf(summary, folder, tookS));
      };
      const run: MirrorOptions = {
        ...{ source, publicStore, stateStore, partsDir, clock: systemClock, say },
        ...{ keys, maxAgeSeconds: maxAge, width, cardSignatures, only, verify },
        onProgress: ({ done, of, what }) =>
          line.show(`mirror: ${done} of ${of} ${what}`, line.isOnTerminal && done === of),
      };
      try {
        if (everySeconds === undefined) await runOnce(run, printRun);
        else await follow(run, everySeconds, { dir: folder, settings: options.settings() }, printRun);
      } finally {
        line.end(true);
      }
    }),
  );
}

async function runOnce(run: MirrorOptions, printRun: (summary: MirrorSummary, tookS: number) => void): Promise<void> {
  const elapsedSeconds = stopwatch();
  const summary = await mirrorOnce(run);
  printRun(summary, elapsedSeconds());
  const [first, ...rest] = summary.missing;
  if (first) {
    throw new Failure("missing", `${rest.length + 1} objects are missing, ${first.key} first: ${first.got}`);
  }
}

/**
 * Runs the mirror until stopped. A stop waits for the current run, unless it takes longer than endInTime() allows; the
 * next start continues an unfinished run. /health and /metrics are at `status.port`, if the settings name one.
 */
async function follow(
  run: MirrorOptions,
  everySeconds: number,
  { dir, settings }: { dir: string; settings: Config },
  printRun: (done: MirrorSummary) => void,
): Promise<void> {
  // Only a mirror that follows needs the HTTP server of this file. A single run starts faster without it.
  const { commandStatusLines, openCommandStatus } = await import("./command-status.ts");
  const stop = new AbortController();
  const metrics = createMetrics("mirror");
  const work = { role: "mirror", work: "mirror", pauseSeconds: everySeconds, dir } as const;
  await withOpen(openCommandStatus(settings, work, metrics), async (status) => {
    const { pulse } = status;
    for (const line of commandStatusLines(status)) say(line);
    const removeHandlers = onStopSignal(() => {
      stop.abort();
      endInTime(createLogger("warn"));
    });
    try {
      await followMirror({
        ...{ ...run, everySeconds, signal: stop.signal, onSnapshot: (done) => printRun(done) },
        onRun: ({ tree_size, missing }) => {
          pulse.done("mirror");
          metrics.gauge("touchstone_mirror_tree_size", tree_size);
          metrics.gauge("touchstone_mirror_missing_objects", missing.length);
        },
        onFault: (error, pause) => {
          pulse.failed("mirror", error);
          metrics.count("touchstone_mirror_faults_total", { code: error instanceof Failure ? error.code : "failed" });
          say(`${error.message}; the copy stays as it was; next try in ${pause} s`);
        },
      });
    } finally {
      removeHandlers();
    }
  });
}

/** Formats what a run with --verify repaired; no line if the run did not verify. */
function repairLines({ mended }: MirrorSummary): string[] {
  if (!mended) return [];
  if (mended.length === 0) return ["everything in the copy is intact"];
  const lines = mended.slice(0, MAX_PRINTED_OBJECTS).map(({ key, was }) => `repaired: ${key} (it was ${was})`);
  return [...lines, ...moreLine("repaired", mended.length)];
}

const moreLine = (what: string, all: number): string[] =>
  all > MAX_PRINTED_OBJECTS ? [`${what}: ${all - MAX_PRINTED_OBJECTS} more, see --json`] : [];

export function linesOf(summary: MirrorSummary, folder: string, tookS?: number): string[] {
  const { result, origin, tree_size, from, root, fetched, adopted, missing } = summary;
  return [
    `${result}: ${origin}, ${tree_size} leaves (${tree_size - from} new), root ${root}`,
    ...missing
      .slice(0, MAX_PRINTED_OBJECTS)
      .map(({ key, got, tries }) => `missing: ${key} (${got}; asked for ${tries} times)`),
    ...moreLine("missing", missing.length),
    `${fetched} objects fetched, ${adopted} already in the copy${tookS === undefined ? "" : `, ${tookS} s`}`,
    ...repairLines(summary),
    `next: touchstone audit ${folder}`,
  ];
}

/** An opened folder of a mirror, locked for this process. */
interface MirrorFolder {
  dir: string;
  /** The copy of the record, in `<dir>/public`. */
  publicStore: Store;
  /** The last verified tree head, in `<dir>/state`. */
  stateStore: Store;
  /** Folder for the fetched parts of large objects that are not complete yet. */
  partsDir: string;
  /** Releases the lock. If this run verified nothing, deletes the files and folders that it created. */
  close(): Promise<void>;
}

const exists = (path: string): Promise<boolean> => stat(path).then(Boolean, () => false);

/** Returns the path of a mirror's folder, given that path or the path of its `public` folder. */
async function mirrorDir(name: string): Promise<string> {
  const path = resolve(name);
  const isPublic = basename(path) === "public" && (await exists(join(dirname(path), "state")));
  return isPublic ? dirname(path) : path;
}

/**
 * Opens a mirror's folder for writing, and creates it if absent. Only one process at a time may write to a folder. A
 * replica that serves from the folder holds the same lock.
 * @throws MirrorBusy at once, if another process holds the lock
 */
export async function openMirrorFolder(name: string): Promise<MirrorFolder> {
  const dir = await mirrorDir(name);
  const createdPaths: string[] = [];
  for (const path of [dir, ...["public", "state", "parts", "keeper.sqlite"].map((part) => join(dir, part))]) {
    if (!(await exists(path))) createdPaths.push(path);
  }
  const lock = openProcessLock(join(dir, "keeper.sqlite"));
  if (!lock.tryAcquire()) {
    lock.close();
    throw new MirrorBusy();
  }
  const publicStore = await openDirectoryStore(join(dir, "public"));
  const stateStore = await openDirectoryStore(join(dir, "state"));
  const close = async () => {
    const state = new MirrorState(stateStore);
    // If the state cannot be read, the folder is not new and must stay. The run has reported the damage.
    const isKept = await Promise.all([state.readCommit(), state.readPending(), publicStore.head(CHECKPOINT)]).then(
      (storedStates) => storedStates.some((one) => one !== null),
      () => true,
    );
    await publicStore.close();
    await stateStore.close();
    if (!isKept) for (const path of createdPaths) await rm(path, { recursive: true, force: true });
    lock.close();
  };
  return { dir, publicStore, stateStore, partsDir: join(dir, "parts"), close };
}
