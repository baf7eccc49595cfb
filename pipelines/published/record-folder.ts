import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { CHECKPOINT } from "./objects.ts";

/** Where a record lies on this disk. */
export interface RecordFolder {
  /** The objects: what is published. */
  publicDir: string;
  /** What a mirror remembers beside them; not there for a publisher's own record. */
  stateDir: string;
}

/**
 * A record by the folder that holds it: a mirror's or a service's data folder, or its `public` part, which any web server
 * serves. Nothing is made.
 * @returns null when there is no folder of that name
 */
export async function recordFolder(name: string): Promise<RecordFolder | null> {
  if (!(await stat(name).catch(() => null))?.isDirectory()) return null;
  const inside = join(name, "public");
  const has = (dir: string) => stat(join(dir, CHECKPOINT)).catch(() => null);
  if (!(await has(name)) && (await stat(inside).catch(() => null))?.isDirectory()) {
    return { publicDir: inside, stateDir: join(name, "state") };
  }
  const above = basename(name) === "public" ? dirname(name) : name;
  return { publicDir: name, stateDir: join(above, "state") };
}
