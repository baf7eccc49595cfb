/**
 * Parses a WHATWG url; returns null when it is invalid. `URL.canParse` is not used, because in Node 20 and 22 its fast
 * path, which V8 takes once the caller is compiled, rejects hosts with Latin-1 letters (`bücher.example`).
 */
export function parseUrl(text: string, base?: string | URL): URL | null {
  try {
    return new URL(text, base);
  } catch {
    return null;
  }
}

/** Returns true for a host name (of a parsed url, without its port) that names this machine, else false. */
export const isLoopbackHost = (hostname: string): boolean =>
  /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
