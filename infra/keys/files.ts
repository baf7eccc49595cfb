import { randomBytes } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import { Failure } from "../errors.ts";

const octal = (mode: number): string => (mode & 0o7777).toString(8).padStart(4, "0");

const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException | null)?.code;

/** Creates `dir` and its parents with mode 0700 if they are missing. A folder that exists keeps its mode. */
export function ensurePrivateFolder(dir: string): void {
  mkdirSync(dir, { recursive: true, mode: 0o700 });
}

function syncFolder(dir: string): void {
  const fd = openSync(dir, constants.O_RDONLY);
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/**
 * Writes a draft beside the target; `publish` then links or renames it to the target. So no reader sees, and no crash
 * leaves, a partly written file.
 */
function writeAtomically(
  path: string,
  data: Uint8Array | string,
  publish: (draft: string) => void,
  mode = 0o600,
): void {
  const draft = `${path}.${randomBytes(6).toString("hex")}.draft`;
  const fd = openSync(draft, "wx", mode);
  try {
    try {
      writeFileSync(fd, data);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    publish(draft);
  } catch (error) {
    unlinkSync(draft);
    throw error;
  }
  syncFolder(dirname(path));
}

/**
 * Creates `path` with mode 0600; the file is durable when this returns.
 * @throws Failure `keys` when the file exists, since a key is never overwritten
 */
export function createPrivateFile(path: string, data: Uint8Array | string): void {
  writeAtomically(path, data, linkNew(path));
}

/**
 * Creates `path` as `createPrivateFile` does, with the mode that the umask gives. @throws Failure `keys` when it exists
 */
export function createFile(path: string, data: Uint8Array): void {
  writeAtomically(path, data, linkNew(path), 0o666);
}

/** Returns the function that gives a draft the name `path`, unless a file has that name. */
const linkNew =
  (path: string) =>
  (draft: string): void => {
    try {
      linkSync(draft, path);
    } catch (error) {
      if (codeOf(error) === "EEXIST") throw new Failure("keys", `${path} exists already and is not overwritten`);
      throw error;
    }
    unlinkSync(draft);
  };

/** Replaces `path` atomically by a file with `data`, mode 0600, durable when this returns. */
export function replacePrivateFile(path: string, data: string): void {
  writeAtomically(path, data, (draft) => renameSync(draft, path));
}

/**
 * Reads a file that only its owner may access. The mode is checked on the open file, not by name, so that it cannot be
 * swapped in between.
 * @throws Failure `keys` when it is missing, not a file, or accessible to group or others; the message has the mode and
 * the chmod to run
 */
export function readPrivateFile(path: string): Buffer {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY);
  } catch (error) {
    throw new Failure("keys", `${path} cannot be read (${codeOf(error) ?? "unknown fault"})`, { cause: error });
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw new Failure("keys", `${path} is not a file`);
    if (stat.mode & 0o077) {
      throw new Failure("keys", `${path} has mode ${octal(stat.mode)}: others can reach it; run: chmod 600 '${path}'`);
    }
    return readFileSync(fd);
  } finally {
    closeSync(fd);
  }
}

/**
 * Checks that only the owner may write in a folder of keys, since anybody else who may could replace the keys.
 * @throws Failure `keys` when group or others may write in it
 */
export function refuseSharedFolder(dir: string): void {
  let fd: number;
  try {
    fd = openSync(dir, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    throw new Failure("keys", `${dir} cannot be read (${codeOf(error) ?? "unknown fault"})`, { cause: error });
  }
  try {
    const { mode } = fstatSync(fd);
    if (mode & 0o022) {
      throw new Failure("keys", `${dir} has mode ${octal(mode)}: others can swap its files; run: chmod 700 '${dir}'`);
    }
  } finally {
    closeSync(fd);
  }
}
