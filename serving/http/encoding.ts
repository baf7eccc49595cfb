import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate as turn } from "node:timers/promises";
import { createGzip } from "node:zlib";
import { CompressStream } from "zstd-napi";

export type Coding = "zstd" | "gzip" | "identity";

/** Compression level of zstd; at 3 each synchronous step takes a few milliseconds at most. */
const ZSTD_LEVEL = 3;

const QVALUE = /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/;

/** Parses the weight of each coding in an Accept-Encoding header; a malformed weight counts as 0. */
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
 * Returns the coding that a client prefers (RFC 9110 section 12.5.3); among equal ones zstd, then gzip, then identity.
 * A client that accepts none of them gets identity, as the section allows, instead of an error.
 */
export function negotiateCoding(acceptEncoding: string | null): Coding {
  if (!acceptEncoding) return "identity";
  const weights = weightsOf(acceptEncoding);
  const weight = (name: Coding): number => weights.get(name) ?? weights.get("*") ?? 0;
  const best: Coding = weight("gzip") > weight("zstd") ? "gzip" : "zstd";
  // Identity is always acceptable; it wins only when the client gives it a higher weight than the best coding.
  const identityWeight = weights.get("identity") ?? 0;
  return weight(best) > 0 && weight(best) >= identityWeight ? best : "identity";
}

/**
 * Compresses a stream of chunks. Backpressure reaches the source. When the source fails, so does the result, so that a
 * cut stream does not look complete. When the reader stops, the source is ended.
 */
export async function* compressChunks(chunks: AsyncIterable<Uint8Array>, coding: Coding): AsyncGenerator<Uint8Array> {
  if (coding === "identity") {
    yield* chunks;
    return;
  }
  const compressor =
    coding === "gzip" ? createGzip({ level: 6 }) : new CompressStream({ compressionLevel: ZSTD_LEVEL });
  const source = Readable.from(chunks, { objectMode: true, highWaterMark: 2 });
  const finished = pipeline(source, compressor);
  // The loop below throws the same failure; without this handler it would count as unhandled and end the process.
  finished.catch(() => {});
  try {
    for await (const chunk of compressor) yield chunk as Uint8Array;
    await finished;
  } finally {
    compressor.destroy();
    source.destroy();
  }
}

/** Returns the headers of a negotiated representation. */
export const codingHeaders = (coding: Coding): Record<string, string> =>
  coding === "identity" ? { vary: "Accept-Encoding" } : { vary: "Accept-Encoding", "content-encoding": coding };

/** Size of the chunks into which lines are collected, characters. */
const CHUNK_CHARS = 64 * 1024;

/** Collects lines into chunks, each line with a line feed, yielding to the event loop after each chunk. */
export async function* linesToChunks(lines: AsyncIterable<string> | Iterable<string>): AsyncGenerator<Uint8Array> {
  let buffered = "";
  for await (const line of lines) {
    buffered += `${line}\n`;
    if (buffered.length < CHUNK_CHARS) continue;
    yield Buffer.from(buffered);
    buffered = "";
    // With lines in memory and a fast client this loop would otherwise never yield.
    await turn();
  }
  if (buffered) yield Buffer.from(buffered);
}
