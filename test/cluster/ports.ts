import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/**
 * Ports below those that Linux gives to outgoing connections and to whoever asks for any port: until the server that this
 * one is for has started, or while it is killed and comes again, nobody else is given it by chance.
 */
const FIRST = 10_000;
const END = 32_000;
const TRIES = 100;

const isFree = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const server = createServer().once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });

/** A port of 127.0.0.1 that nobody listens on now. */
export async function freePort(): Promise<number> {
  for (let n = 0; n < TRIES; n++) {
    const port = randomInt(FIRST, END);
    if (await isFree(port)) return port;
  }
  throw new Error(`no free port after ${TRIES} looks`);
}
