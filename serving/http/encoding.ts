import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate as turn } from "node:timers/promises";
import { createGzip } from "node:zlib";
import { CompressStream } from "zstd-napi";

export type Coding = "zstd" | "gzip" | "identity";

/** Level 3 keeps each synchronous step of the packer in the low milliseconds. */
const ZSTD_LEVEL = 3;

const QVALUE = /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/;

/** Weight of each coding that the header names; a weight that is none refuses its coding. */
function weightsOf(acceptEncoding: string): Map<string, number> {
  const weights = new Map<string, number>();
  for (const part of acceptEncoding.slice(0, 500).toLowerCase().split(",")) {
    const [name, ...parameters] = part.split(";").map((text) => text.trim());
    const q = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
    if (name) weights.set(name === "x-gzip" ? "gzip" : name, q === undefined ? 1 : QVALUE.test(q) ? Number(q) : 0);
  }
  return weights;
}

/**
 * The coding that a client likes best (RFC 9110 section 12.5.3); of those that it likes equally zstd, then gzip, then
 * none. Who takes nothing that we have gets none, as the section allows, instead of an error.
 */
export function negotiate(acceptEncoding: string | null): Coding {
  if (!acceptEncoding) return "identity";
  const weights = weightsOf(acceptEncoding);
  const weight = (name: Coding): number => weights.get(name) ?? weights.get("*") ?? 0;
  const best: Coding = weight("gzip") > weight("zstd") ? "gzip" : "zstd";
  // Unpacked is always welcome, but a packed answer more so, unless the client names it as the better one.
  const plain = weights.get("identity") ?? 0;
  return weight(best) > 0 && weight(best) >= plain ? best : "identity";
}

/**
 * Chunks packed on their way. Backpressure reaches the source; when the source fails so does this, so that a cut stream
 * never looks like a whole one; when the reader stops, the source is ended too.
 */
export async function* compressed(chunks: AsyncIterable<Uint8Array>, coding: Coding): AsyncGenerator<Uint8Array> {
  if (coding === "identity") {
    yield* chunks;
    return;
  }
  const packer = coding === "gzip" ? createGzip({ level: 6 }) : new CompressStream({ compressionLevel: ZSTD_LEVEL });
  const source = Readable.from(chunks, { objectMode: true, highWaterMark: 2 });
  const done = pipeline(source, packer);
  // Its failure is thrown by the loop below as well; without a handler it would end the process.
  done.catch(() => {});
  try {
    for await (const chunk of packer) yield chunk as Uint8Array;
    await done;
  } finally {
    packer.destroy();
    source.destroy();
  }
}

/** Headers of a negotiated representation. */
export const codingHeaders = (coding: Coding): Record<string, string> =>
  coding === "identity" ? { vary: "Accept-Encoding" } : { vary: "Accept-Encoding", "content-encoding": coding };

/** Lines gathered into chunks of about this size: few large writes instead of many small ones. */
const CHUNK_CHARS = 64 * 1024;

export async function* linesToChunks(lines: AsyncIterable<string> | Iterable<string>): AsyncGenerator<Uint8Array> {
  let held = "";
  for await (const line of lines) {
    held += `${line}\n`;
    if (held.length < CHUNK_CHARS) continue;
    yield Buffer.from(held);
    held = "";
    // Lines that are in memory and a client that takes as fast as we make would else hold the event loop to the end.
    await turn();
  }
  if (held) yield Buffer.from(held);
}
