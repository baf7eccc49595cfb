import { rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { openDirectoryStore } from "../infra/store/directory.ts";
import { openKeeper } from "../infra/store/lock.ts";
import type { Store } from "../infra/store/store.ts";
import { followMirror, mirrorOnce } from "../pipelines/mirror/mirror.ts";
import type { MirrorOptions, MirrorSummary } from "../pipelines/mirror/run.ts";
import { MirrorState, type Part } from "../pipelines/mirror/state.ts";
import { MirrorBusy } from "../pipelines/published/errors.ts";
import { CHECKPOINT } from "../pipelines/published/objects.ts";
import { openSource } from "../pipelines/published/open-source.ts";
import { onStopSignal } from "./exit.ts";
import { ProgressLine, print, say } from "./printer.ts";

export interface MirrorCommandOptions {
  logKey?: string;
  witnessKey?: string;
  /** Seconds; 0 asks nothing. Default: a day. */
  maxAge?: number;
  width: number;
  /** Seconds between two runs; without it there is one run. */
  follow?: number;
  /** False: cards stand under the log's signature alone. */
  cardSignatures?: boolean;
  /** Copy the tree, its keys and this part alone. */
  only?: Part;
  /** Prove everything that is held once more, and fetch what is damaged or gone. */
  verify?: boolean;
  json?: boolean;
  /** Settings with the credentials of a bucket. */
  settings?: () => Pick<Config, "stores">;
}

/** Most objects that a mirror fetches at once, so that it is no burden to its source. */
const MAX_WIDTH = 64;
/** Pause between two progress lines where there is no terminal, ms. */
const LINE_MS = 5_000;
/** Missing objects that are named to a person. */
const NAMED = 10;

/**
 * `touchstone mirror`: one run, or one after the other until stopped; what is exposed lies in `<dir>/public`, what is
 * remembered in `<dir>/state`, what is on its way in `<dir>/parts`.
 * @throws Failure `missing` when the log is whole and objects beside it are missing; what a run throws
 */
export async function mirror(sourceName: string, dir: string, options: MirrorCommandOptions): Promise<void> {
  if (options.verify && options.follow !== undefined) {
    throw new Failure("usage", "--verify is one run: without --follow");
  }
  if (options.width < 1 || options.width > MAX_WIDTH) throw new Failure("usage", `--width is 1 to ${MAX_WIDTH}`);
  const source = await openSource(sourceName, systemClock, options.settings);
  const folder = await openMirrorFolder(dir).catch(async (error: unknown) => {
    await source.close();
    throw error;
  });
  const line = progressLine();
  const told = (done: MirrorSummary, tookS?: number) => {
    line.end();
    const facts = { source: sourceName, ...done, ...(tookS === undefined ? {} : { took_s: tookS }) };
    print(options, facts, linesOf(done, folder.dir, tookS));
  };
  const how: MirrorOptions = {
    ...{ source, publicStore: folder.publicStore, stateStore: folder.stateStore },
    ...{ clock: systemClock, partsDir: folder.partsDir, verify: options.verify === true },
    keys: { log: options.logKey, witness: options.witnessKey },
    maxAgeSeconds: options.maxAge,
    width: options.width,
    cardSignatures: options.cardSignatures ?? true,
    only: options.only,
    say,
    onProgress: line.show,
  };
  try {
    if (options.follow !== undefined) await follow(how, options.follow, told);
    else await once(how, told);
  } finally {
    line.end();
    await source.close();
    await folder.close();
  }
}

async function once(how: MirrorOptions, told: (done: MirrorSummary, tookS: number) => void): Promise<void> {
  const began = systemClock.monotonic();
  const done = await mirrorOnce(how);
  told(done, Math.round((systemClock.monotonic() - began) / 10) / 100);
  const [first, ...rest] = done.missing;
  if (first) {
    throw new Failure("missing", `${rest.length + 1} objects are missing, ${first.key} first: ${first.got}`);
  }
}

async function follow(how: MirrorOptions, everySeconds: number, told: (done: MirrorSummary) => void): Promise<void> {
  const stop = new AbortController();
  const restore = onStopSignal(() => stop.abort());
  try {
    await followMirror({
      ...{ ...how, everySeconds, signal: stop.signal, onSnapshot: told },
      onFault: (error, pause) => how.say?.(`${error.message}; what is served stays; again in ${pause} s`),
    });
  } finally {
    restore();
  }
}

/** What a verifying run put right: lines for a person. */
function mendedOf({ mended }: MirrorSummary): string[] {
  if (!mended) return [];
  if (mended.length === 0) return ["everything in the copy is intact"];
  const lines = mended.slice(0, NAMED).map(({ key, was }) => `mended: ${key} (it was ${was})`);
  return [...lines, ...moreOf("mended", mended.length)];
}

const moreOf = (what: string, all: number): string[] =>
  all > NAMED ? [`${what}: ${all - NAMED} more, see --json`] : [];

export function linesOf(done: MirrorSummary, folder: string, tookS?: number): string[] {
  const { result, origin, tree_size, from, root, fetched, adopted, missing } = done;
  return [
    `${result}: ${origin}, ${tree_size} leaves (${tree_size - from} new), root ${root}`,
    ...missing.slice(0, NAMED).map(({ key, got, tries }) => `missing: ${key} (${got}; asked for ${tries} times)`),
    ...moreOf("missing", missing.length),
    `${fetched} objects fetched, ${adopted} found here${tookS === undefined ? "" : `, ${tookS} s`}`,
    ...mendedOf(done),
    `next: touchstone audit ${folder}`,
  ];
}

/** One line on stderr: rewritten on a terminal, else printed now and then. */
function progressLine(): { show: NonNullable<MirrorOptions["onProgress"]>; end: () => void } {
  const line = new ProgressLine();
  let last = systemClock.monotonic();
  return {
    show: ({ done, of, what }) => {
      const now = systemClock.monotonic();
      const text = `mirror: ${done} of ${of} ${what}`;
      if (line.isShown ? now - last <= 50 && done !== of : now - last <= LINE_MS) return;
      if (line.isShown) line.show(text);
      else say(text);
      last = now;
    },
    end: () => line.end(true),
  };
}

/** A mirror's folder while this process keeps it. */
interface MirrorFolder {
  dir: string;
  /** What is exposed, and what is remembered: `public` and `state`. */
  publicStore: Store;
  stateStore: Store;
  /** Where large objects wait for their rest. */
  partsDir: string;
  /** Release the folder. It is deleted if it was made here for a first copy that proved nothing. */
  close(): Promise<void>;
}

const isThere = (path: string): Promise<boolean> => stat(path).then(Boolean, () => false);

/** The folder of a mirror by its own name, or by that of its public part. */
async function mirrorDir(name: string): Promise<string> {
  const path = resolve(name);
  const isPublic = basename(path) === "public" && (await isThere(join(dirname(path), "state")));
  return isPublic ? dirname(path) : path;
}

/**
 * Open a mirror's folder to keep it, made where it is not there. One process keeps a folder; a replica that serves from
 * it is one too.
 * @throws MirrorBusy at once, when another one does
 */
export async function openMirrorFolder(name: string): Promise<MirrorFolder> {
  const dir = await mirrorDir(name);
  const made: string[] = [];
  for (const path of [dir, ...["public", "state", "parts", "keeper.sqlite"].map((part) => join(dir, part))]) {
    if (!(await isThere(path))) made.push(path);
  }
  const keeper = openKeeper(join(dir, "keeper.sqlite"));
  if (!keeper.tries()) {
    keeper.close();
    throw new MirrorBusy();
  }
  const publicStore = await openDirectoryStore(join(dir, "public"));
  const stateStore = await openDirectoryStore(join(dir, "state"));
  const close = async () => {
    const state = new MirrorState(stateStore);
    // A damaged state was said aloud by the run, and proves that the folder is no new one.
    const isKept = await Promise.all([state.trusted(), state.pending(), publicStore.head(CHECKPOINT)]).then(
      (held) => held.some((one) => one !== null),
      () => true,
    );
    await publicStore.close();
    await stateStore.close();
    if (!isKept) for (const path of made) await rm(path, { recursive: true, force: true });
    keeper.close();
  };
  return { dir, publicStore, stateStore, partsDir: join(dir, "parts"), close };
}
