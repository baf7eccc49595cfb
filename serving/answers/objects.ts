import { FastResponse } from "srvx";
import { sha256hex } from "../../infra/canonical.ts";
import { BadKey, type ObjectInfo, type Store, StoreDown, type StoredObject } from "../../infra/store/store.ts";
import { SourceDown } from "../../pipelines/published/errors.ts";
import { kindOfKey, OBJECTS, type ObjectHeaders, type ObjectKind } from "../../pipelines/published/objects.ts";
import { OPEN_HEADERS } from "../http/open.ts";
import { Problem } from "../http/problem.ts";
import { isUnmodifiedSince, matchesEtag } from "../http/reply.ts";
import { parseRange } from "../http/request.ts";
import type { Streams } from "../http/streams.ts";

/**
 * First path segments under which objects are served. The publisher's table (OBJECTS) decides which keys below them
 * are served, and with which headers.
 */
export const OBJECT_ROOTS = [
  "tile",
  "segment",
  "archive",
  "evidence",
  "call",
  "live",
  "index",
  "keys",
  "hint",
] as const;

/** Objects up to this size are read whole. Larger ones are streamed in steps, and the number of streams is limited. */
const MAX_WHOLE_BYTES = 64 * 1024;
const STEP_BYTES = 1024 * 1024;

/** Kinds of objects that are replaced under their key; all are small. Keys of other kinds are never reused. */
const REPLACED_KINDS: ReadonlySet<ObjectKind> = new Set(["checkpoint", "view", "hint"]);

/** Converts a store's etag to a strong HTTP etag. */
const etagOf = (info: ObjectInfo): string => `"${info.etag.replace(/^W\//, "").replaceAll('"', "")}"`;

/**
 * Returns the etag of an immutable object. It covers the size: a mirror may have compressed the object again, and a
 * client must not join byte ranges of its copy and ours.
 */
const etagOfKey = ({ key, size }: ObjectInfo): string => `"${sha256hex(`${key} ${size}`).slice(0, 32)}"`;

export interface ObjectRequest {
  headers: Headers;
  method: string;
  /** Key of the client, to which the bytes that it reads are charged. */
  client: string;
}

/** Serves the objects of the public store under their keys, as paths of the service. */
export class PublicObjects {
  /** The bytes last read of each small object that is replaced under its key: at most the four keys of these kinds. */
  readonly #replaced = new Map<string, StoredObject>();

  constructor(
    private readonly store: Pick<Store, "head" | "get" | "getRange">,
    private readonly streams: Streams,
  ) {}

  /**
   * Answers a GET or HEAD of the object with this key.
   * @param sha256 SHA-256 of the object's bytes in hex, if the log holds it; sent as Repr-Digest (RFC 9530)
   * @throws Problem not_found for a key that is not served or does not exist; range_not_satisfiable;
   * too_many_requests; unavailable
   */
  async answer(key: string, request: ObjectRequest, sha256?: string | undefined): Promise<Response> {
    try {
      return await this.#answer(key, request, sha256);
    } catch (error) {
      // A key that no store could hold, such as one with 300 digits, is reported as not found.
      if (error instanceof BadKey) throw new Problem("not_found", "there is no such object");
      if (!(error instanceof StoreDown || error instanceof SourceDown)) throw error;
      throw new Problem("unavailable", "the store of this object does not answer", {
        headers: { "retry-after": "5" },
      });
    }
  }

  async #answer(key: string, request: ObjectRequest, sha256: string | undefined): Promise<Response> {
    const kind = kindOfKey(key);
    const info = kind ? await this.store.head(key) : null;
    if (!kind || !info) throw new Problem("not_found", "there is no such object");
    const { contentType, cacheControl, contentEncoding }: ObjectHeaders = OBJECTS[kind].headers;
    const isImmutable = cacheControl.endsWith("immutable");
    // The etag of an immutable object is made from key and size, so that all replicas and mirrors give it the same
    // etag.
    const etag = isImmutable ? etagOfKey(info) : etagOf(info);
    const headers: Record<string, string> = {
      ...{ "content-type": contentType, "cache-control": cacheControl, etag },
      ...OPEN_HEADERS,
      ...(contentEncoding ? { "content-encoding": contentEncoding } : {}),
      ...(isImmutable ? { "accept-ranges": "bytes" } : {}),
      ...(sha256 ? { "repr-digest": `sha-256=:${Buffer.from(sha256, "hex").toString("base64")}:` } : {}),
      // Bytes that a stranger chose are sent as a download, and never shown as a page of ours.
      ...(kind === "call" ? { "content-disposition": "attachment" } : {}),
    };
    if (isImmutable) headers["last-modified"] = info.modifiedAt.toUTCString();
    if (matchesEtag(request, etag) || (isImmutable && isUnmodifiedSince(request, info.modifiedAt)))
      return new FastResponse(null, { status: 304, headers });
    if (REPLACED_KINDS.has(kind)) return this.#answerReplaceable(info, request, headers);
    // Range is defined for GET alone (RFC 9110 section 14.2).
    const isRangeAllowed = isImmutable && request.method !== "HEAD";
    const range = isRangeAllowed ? parseRange(request.headers, info.size, etag) : null;
    if (range === "unsatisfiable") {
      throw new Problem("range_not_satisfiable", `the object has ${info.size} bytes`, {
        headers: { "content-range": `bytes */${info.size}` },
      });
    }
    const { start, end } = range ?? { start: 0, end: info.size };
    if (range) headers["content-range"] = `bytes ${start}-${end - 1}/${info.size}`;
    headers["content-length"] = String(end - start);
    const body = request.method === "HEAD" ? null : await this.#readBytes(key, request.client, start, end);
    return new FastResponse(body, { status: range ? 206 : 200, headers });
  }

  /**
   * Answers with an object that may be replaced. It is read in one piece, so that the etag belongs to the bytes, and
   * only if the store's etag is not that of the bytes in memory. The caller reads the store's etag for each request:
   * a replica that answered with an older checkpoint than another replica would look like a log that was rolled back.
   */
  async #answerReplaceable(
    { key, etag }: ObjectInfo,
    { client, method }: ObjectRequest,
    headers: Record<string, string>,
  ): Promise<Response> {
    this.streams.admit(client);
    const cached = this.#replaced.get(key);
    const object = cached?.etag === etag ? cached : await this.store.get(key, { maxBytes: 64 * STEP_BYTES });
    if (!object) throw new Problem("not_found", "there is no such object");
    if (object.size <= MAX_WHOLE_BYTES) this.#replaced.set(key, object);
    else this.#replaced.delete(key);
    if (method !== "HEAD") this.streams.charge(client, object.size);
    return new FastResponse(object.bytes, { status: 200, headers: { ...headers, etag: etagOf(object) } });
  }

  async #readBytes(key: string, client: string, start: number, end: number): Promise<Uint8Array | ReadableStream> {
    if (end - start > MAX_WHOLE_BYTES) return this.streams.stream(client, this.#readSteps(key, start, end));
    this.streams.admit(client);
    const bytes = await this.store.getRange(key, start, end);
    if (bytes?.length !== end - start) throw new Problem("not_found", "the object is no longer there");
    this.streams.charge(client, bytes.length);
    return bytes;
  }

  /**
   * Streams the object, reading at most one step ahead of the client. A step that returns too few bytes ends the answer
   * with an error.
   */
  async *#readSteps(key: string, start: number, end: number): AsyncGenerator<Uint8Array> {
    for (let at = start; at < end; at += STEP_BYTES) {
      const stepEnd = Math.min(at + STEP_BYTES, end);
      const bytes = await this.store.getRange(key, at, stepEnd);
      if (bytes?.length !== stepEnd - at)
        throw new Error(`${key}: ${bytes?.length ?? 0} bytes instead of ${stepEnd - at}`);
      yield bytes;
    }
  }
}
