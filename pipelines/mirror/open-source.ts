import { stat } from "node:fs/promises";
import type { Clock } from "../../infra/clock.ts";
import { MirrorUsage } from "./errors.ts";
import { HttpSource } from "./http-source.ts";
import { DirectorySource, type Source } from "./source.ts";

/** The source that an operator named: an http(s) address, else a folder. @throws MirrorUsage when it is neither */
export async function openSource(name: string, clock: Clock): Promise<Source> {
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(name)) return new HttpSource(name, { clock });
  const found = await stat(name).catch(() => null);
  if (!found?.isDirectory()) throw new MirrorUsage(`neither an address nor a folder: ${name}`);
  return new DirectorySource(name);
}
