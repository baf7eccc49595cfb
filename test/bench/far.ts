import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** A relay to a server on this machine that makes it far away (far.mjs): a process of its own, with CPU of its own. */
export interface Far {
  url: string;
  stop: () => void;
}

/** @param rtt round trip, ms @param mbit of each direction, 0 for no limit */
export async function farFrom(url: string, rtt: number, mbit: number): Promise<Far> {
  const { port } = new URL(url);
  const argv = [fileURLToPath(new URL("./far.mjs", import.meta.url)), port, String(rtt), String(mbit)];
  const child = spawn(process.execPath, argv, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "exit").then(([code]): never => {
    throw new Error(`the relay ended with ${code}`);
  });
  ended.catch(() => undefined);
  const [said] = (await Promise.race([once(child.stdout, "data"), ended])) as [Buffer];
  return { url: `http://127.0.0.1:${said.toString().trim()}/`, stop: () => void child.kill() };
}
