import { rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { openKeeper } from "../../infra/store/lock.ts";
import type { Store } from "../../infra/store/store.ts";
import { MirrorBusy } from "../published/errors.ts";
import { CHECKPOINT } from "../published/objects.ts";
import { MirrorState } from "./state.ts";

/** A mirror's folder while this process keeps it. */
export interface MirrorFolder {
  dir: string;
  /** What is exposed, and what is remembered: `public` and `state`. */
  publicStore: Store;
  stateStore: Store;
  /** Where large objects wait for their rest. */
  partsDir: string;
  /** Let go. Of a first copy that proved nothing no folder stays that was made here. */
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
