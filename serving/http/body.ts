import { Problem } from "./problem.ts";

/** A request's body as JSON, of at most `maxBytes`. @throws Problem too_large, bad_request */
export async function jsonBody(body: ReadableStream<Uint8Array> | null, maxBytes: number): Promise<unknown> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  // Counted as it comes: a length that was announced is a promise, and chunks need not announce one.
  for await (const chunk of body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > maxBytes) throw new Problem("too_large", `at most ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks)));
  } catch {
    throw new Problem("bad_request", "the body is no JSON", { errors: [{ pointer: "", detail: "must be JSON" }] });
  }
}
