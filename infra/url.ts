/**
 * Parses a WHATWG url; null when it is invalid. `URL.canParse` is not used: its fast path in Node 20 and 22, taken once V8
 * has compiled the caller, rejects hosts with Latin-1 letters (`bücher.example`).
 */
export function parseUrl(text: string, base?: string | URL): URL | null {
  try {
    return new URL(text, base);
  } catch {
    return null;
  }
}
