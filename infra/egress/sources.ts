import { createHash } from "node:crypto";
import { createServer, isIP } from "node:net";

/** Addresses of this machine that connections leave from; empty: the system's choice. */
export interface Sources {
  /** Of requests that say they are ours. */
  declared: readonly string[];
  /** Of those that look like a stock client's. */
  stock: readonly string[];
}

/**
 * The source address for a connection to `address`: of its family, the one that the key picks. Undefined where none of
 * that family is named: the system chooses, as it would without any.
 */
export function pickSource(sources: readonly string[], address: string, key: string): string | undefined {
  const fitting = sources.filter((source) => isIP(source) === isIP(address));
  if (fitting.length === 0) return undefined;
  return fitting[createHash("sha256").update(key).digest().readUInt32BE() % fitting.length];
}

/** Can connections leave from this address? Null, or why not: the system's code. */
export function whyNotOurs(address: string): Promise<string | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ host: address, port: 0, exclusive: true }, () => server.close(() => resolve(null)));
  });
}
