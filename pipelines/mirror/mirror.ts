import { Failure } from "../../infra/errors.ts";
import type { Checkpoint } from "../../infra/tree/checkpoint.ts";
import { BadNote } from "../../infra/tree/note.ts";
import { Unwitnessed } from "../../infra/tree/policy.ts";
import { MissingObject, Tampered, TileReader } from "../../infra/tree/tiles.ts";
import { Oversized, SourceDown, Unproven } from "../published/errors.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { CHECKPOINT } from "../published/objects.ts";
import { createSourceFetch, type Source } from "../published/source.ts";
import { openTreeHead, type Pins, trustOfPins } from "../published/trust.ts";
import { areSamePins, findLaterKeys, followKeys } from "./rotation.ts";
import { exposeTreeHead, type MirrorOptions, MirrorRun, type MirrorSummary } from "./run.ts";
import {
  checkAge,
  checkExtends,
  checkNotOlder,
  type MirrorCommit,
  MirrorState,
  pinsFor,
  type SavedTreeHead,
  toSavedTreeHead,
} from "./state.ts";

/**
 * Brings a mirror up to the source's checkpoint (publication.md, Mirror). The public folder is a proven snapshot
 * before, during and after the run, even if the run fails: new objects are written first, then one write of the
 * mirror's own state commits the run, then the served checkpoint is replaced. After an interrupted run, the next run
 * proves the objects that the interrupted one wrote and keeps those that match. If an object that a leaf names is
 * missing or does not match, it is added to a list (missing.ts) and the run continues. A fault of the tree ends the
 * run.
 * @throws Rollback, Forked, Stale, Tampered, Unproven, Unwitnessed, Oversized, MissingObject, SourceDown, MirrorBusy,
 * Failure `usage`
 */
export async function mirrorOnce(options: MirrorOptions): Promise<MirrorSummary> {
  const state = new MirrorState(options.stateStore);
  const earlierCommit = await state.readCommit();
  const summary = await bringUpToDate(options, state);
  // Called even if this run read no keys document: the run that did may have died before this line.
  const { keys } = (await state.readCommit())!;
  await followKeys(state, options.publicStore, keys, summary.origin, options.clock);
  // A first copy is not verified again, since this run has proven all of it.
  return options.verify && earlierCommit ? verifyCopy(options, state, summary) : summary;
}

/**
 * Proves every copied object again, from the first leaf on, and fetches objects that are damaged or missing. The pinned
 * keys and the saved tree head are kept, so a source with an older tree is still refused.
 */
async function verifyCopy(options: MirrorOptions, state: MirrorState, summary: MirrorSummary): Promise<MirrorSummary> {
  const { source, keys = {}, say = () => undefined } = options;
  const trusted = (await state.readCommit())!;
  const note = Buffer.from(trusted.head.note);
  const pins = await pinsFor(source, note, await state.readPins(), keys, say);
  const head = openTreeHead(note, { ...trustOfPins(pins), policy: keys.policy }, null);
  const missingList = await state.readMissing();
  const tiles = await TileReader.open(head.size, head.root, createSourceFetch(source));
  const run = new MirrorRun(options, state, trusted, missingList.index ?? trusted.index, missingList, true);
  const verified = await run.copyNew(head, tiles);
  const fetched = summary.fetched + verified.fetched;
  const mended = [...(summary.mended ?? []), ...(verified.mended ?? [])];
  return { ...verified, changed: summary.changed || mended.length > 0, from: summary.from, fetched, mended };
}

/** Copies and proves what is new in the source, or fetches only missing objects if its tree has not grown. */
async function bringUpToDate(options: MirrorOptions, state: MirrorState): Promise<MirrorSummary> {
  const { source, publicStore, clock, keys = {}, say = () => undefined } = options;
  const [lastCommit, pending, missingList] = [
    await state.readCommit(),
    await state.readPending(),
    await state.readMissing(),
  ];
  // If the public folder has no checkpoint, it may have lost other objects too. If the last run copied another part of
  // the record, objects of this part are not there. In both cases the run proves everything from the first leaf on.
  const isComplete = lastCommit?.only === options.only && (await publicStore.head(CHECKPOINT)) !== null;
  const trusted = lastCommit && isComplete ? lastCommit : null;
  if (trusted) await exposeTreeHead(publicStore, trusted);
  const bytes = await source.get(CHECKPOINT, MAX_BYTES.note);
  if (!bytes) throw new MissingObject(CHECKPOINT);
  const pinned = await state.readPins();
  const pins = await pinsFor(source, bytes, pinned, keys, say);
  const earlierHeads = [lastCommit?.head, pending].filter((one): one is SavedTreeHead => !!one);
  const head = await treeHeadOrRotated(options, bytes, pins, lastCommit).catch(async (error: unknown) => {
    const isRefused = error instanceof Unwitnessed || error instanceof Unproven;
    if (isRefused) await throwIfForked(source, bytes, pins, earlierHeads, state);
    throw error;
  });
  // Only keys that verified the checkpoint, themselves or by their successors, are saved.
  if (!pinned || !areSamePins(pinned, pins)) await state.savePins(pins);
  for (const earlierHead of earlierHeads) await checkNotOlder(head, earlierHead, state);
  const run = new MirrorRun(options, state, trusted, missingList.index ?? trusted?.index ?? null, missingList);
  if (trusted && trusted.head.size === head.size) {
    checkAge(head, clock, options.maxAgeSeconds);
    return run.refresh(head, trusted);
  }
  const tiles = await TileReader.open(head.size, head.root, createSourceFetch(source));
  for (const earlierHead of earlierHeads) await checkExtends(head, earlierHead, tiles, state);
  // The age is checked after the comparisons, since an old checkpoint too can prove a fork, whose notes are then saved.
  checkAge(head, clock, options.maxAgeSeconds);
  await state.savePending(toSavedTreeHead(head));
  return run.copyNew(head, tiles);
}

/**
 * Verifies the source's checkpoint with the trusted keys. If that fails, verifies it with the keys of keys documents
 * that continue the proven chain, since the trusted keys may have retired.
 */
async function treeHeadOrRotated(
  { source, publicStore, clock, keys = {}, say = () => undefined }: MirrorOptions,
  bytes: Uint8Array,
  pins: Pins,
  lastCommit: MirrorCommit | null,
): Promise<Checkpoint> {
  const { policy } = keys;
  const trust = { ...trustOfPins(pins), policy };
  try {
    return openTreeHead(bytes, trust, clock);
  } catch (error) {
    if (!(error instanceof Unproven) || !lastCommit?.keys) throw error;
    const laterPins = await findLaterKeys(source, publicStore, pins, lastCommit.keys, trust.log.name, clock);
    if (!laterPins) throw error;
    const head = openTreeHead(bytes, { ...trustOfPins(laterPins), policy }, clock);
    say("the keys of the checkpoint were rotated: their documents continue the chain that was proven here");
    return head;
  }
}

/** Errors that what a source shows, or does not show, is the cause of. */
const SOURCE_FAULTS = [BadNote, Unproven, Unwitnessed, MissingObject, Tampered, Oversized, SourceDown];

/**
 * Compares a refused checkpoint with the heads that were proven before, if the log's key signed it: it proves a fork
 * also if its witnesses did not cosign it, and the source may never show it again.
 * @throws Forked after both notes were saved, faults of our own
 */
async function throwIfForked(
  source: Source,
  bytes: Uint8Array,
  pins: Pins,
  earlierHeads: readonly SavedTreeHead[],
  state: MirrorState,
): Promise<void> {
  const { log, logs } = trustOfPins(pins);
  try {
    const head = openTreeHead(bytes, { log, logs }, null);
    const smallerHeads = earlierHeads.filter(({ size }) => size <= head.size);
    for (const earlierHead of smallerHeads) await checkNotOlder(head, earlierHead, state);
    if (smallerHeads.every(({ size }) => size === head.size)) return;
    const tiles = await TileReader.open(head.size, head.root, createSourceFetch(source));
    for (const earlierHead of smallerHeads) await checkExtends(head, earlierHead, tiles, state);
  } catch (error) {
    // Without tiles that lead to its root, the checkpoint proves nothing. A full disk of ours must not hide a fork.
    if (!SOURCE_FAULTS.some((kind) => error instanceof kind)) throw error;
  }
}

export interface FollowOptions extends MirrorOptions {
  /** Pause between two runs, seconds. */
  everySeconds: number;
  /** Ends {@link followMirror} when it aborts: a running run is finished first; a pause ends at once. */
  signal: AbortSignal;
  /**
   * Called after each run that changed the exposed objects, when these are durable and proven. If it throws,
   * {@link followMirror} ends.
   */
  onSnapshot?: (summary: MirrorSummary) => void | Promise<void>;
  /** Called after each run that succeeded, even if nothing was new. */
  onRun?: (summary: MirrorSummary) => void;
  /** Called after each run that failed. The snapshot of the last successful run stays exposed. */
  onFault?: (error: Error, pauseSeconds: number) => void;
}

/** Longest pause after failures, seconds. */
const MAX_PAUSE_S = 300;
/** Factor by which the pause grows with each failure in a row. */
const PAUSE_FACTOR = 2;

/**
 * Keeps a mirror up to date until the signal aborts. If the source does not answer, sends false data or shows an
 * older tree, the exposed objects stay as they are, and the mirror tries again after a pause that grows to at most
 * five minutes.
 * @throws Forked, MirrorBusy, Failure `usage`, faults of our own
 */
export async function followMirror(options: FollowOptions): Promise<void> {
  const { everySeconds, signal, onRun, onSnapshot, onFault } = options;
  if (!(everySeconds >= 1 && everySeconds <= MAX_PAUSE_S)) {
    throw new Failure("usage", `a mirror follows every 1 to ${MAX_PAUSE_S} seconds`);
  }
  let pauseSeconds = everySeconds;
  while (!signal.aborted) {
    const summary = await mirrorOnce(options).catch((error: unknown) => {
      if (!isSourceError(error)) throw error;
      pauseSeconds = Math.min(MAX_PAUSE_S, pauseSeconds * PAUSE_FACTOR);
      onFault?.(error as Error, pauseSeconds);
      return null;
    });
    if (summary) {
      pauseSeconds = everySeconds;
      onRun?.(summary);
    }
    if (summary?.changed) await onSnapshot?.(summary);
    // `sleep` throws when the signal aborts, which only ends the pause. Any other error is thrown.
    await options.clock.sleep(pauseSeconds * 1_000, signal).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  }
}

/**
 * Names of errors that the source causes, and that may not occur in a later run. A fork, a second mirror in the folder
 * and faults of our own disk are not among them.
 */
const SOURCE_ERRORS: ReadonlySet<string> = new Set(
  "Rollback Stale Tampered Unproven Unwitnessed Oversized MissingObject SourceDown".split(" "),
);
const isSourceError = (error: unknown): boolean => SOURCE_ERRORS.has((error as Error | null)?.name ?? "");
