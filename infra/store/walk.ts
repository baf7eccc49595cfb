import { isErrno } from "./errors.ts";
import type { FsSeam } from "./fs.ts";

const SEGMENT = /^(?!\.{1,2}$)[A-Za-z0-9._=-]+$/;
const PREFIX = /^(?!\/)[A-Za-z0-9._=/-]*$/;

/**
 * Keys below `prefix` in bytewise order, after `startAfter`, one folder read at a time: a folder that holds nothing
 * wanted is never opened. Names that no key can have (our own `.~store`, an editor's backup) do not exist here.
 * @param root absolute path of the store.
 */
export async function* walkKeys(fs: FsSeam, root: string, prefix: string, startAfter: string): AsyncGenerator<string> {
  // Nothing can lie below a prefix that no key starts with; `..` would leave the root.
  if (
    !PREFIX.test(prefix) ||
    prefix
      .split("/")
      .slice(0, -1)
      .some((s) => !SEGMENT.test(s))
  )
    return;
  const folder = prefix.slice(0, prefix.lastIndexOf("/") + 1);
  yield* walkFolder(fs, root, folder, prefix, startAfter);
}

/** @param folder key of the folder with its trailing slash, or "" for the root. */
async function* walkFolder(
  fs: FsSeam,
  root: string,
  folder: string,
  prefix: string,
  startAfter: string,
): AsyncGenerator<string> {
  for (const { key, isFolder } of await sortedEntries(fs, root, folder)) {
    if (isFolder) {
      if (!key.startsWith(prefix) && !prefix.startsWith(key)) continue;
      // Every key in it begins with its name: all are past when the name is, unless startAfter lies inside.
      if (key < startAfter && !startAfter.startsWith(key)) continue;
      yield* walkFolder(fs, root, key, prefix, startAfter);
    } else if (key.startsWith(prefix) && key > startAfter) {
      yield key;
    }
  }
}

/** Key characters are ASCII, so the order of UTF-16 units is the order of bytes; a folder sorts with its slash. */
async function sortedEntries(fs: FsSeam, root: string, folder: string): Promise<{ key: string; isFolder: boolean }[]> {
  try {
    return (await fs.readdir(folder === "" ? root : `${root}/${folder.slice(0, -1)}`))
      .filter((entry) => entry.kind !== "other" && SEGMENT.test(entry.name))
      .map(({ name, kind }) => ({ key: folder + name + (kind === "folder" ? "/" : ""), isFolder: kind === "folder" }))
      .sort((a, b) => (a.key < b.key ? -1 : 1));
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}
