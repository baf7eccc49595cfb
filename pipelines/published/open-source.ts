import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Agent, type Dispatcher, request } from "undici";
import type { Clock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { Failure } from "../../infra/errors.ts";
import { openStore } from "../../infra/store/open.ts";
import { type KeyState, RefusalReader, withMissingAsNull } from "../../infra/store/refusal-reader.ts";
import { checkKey, ObjectTooLarge, type Store, StoreDown } from "../../infra/store/store.ts";
import { parseUrl } from "../../infra/url.ts";
import { Oversized, SourceDown } from "./errors.ts";
import { CHECKPOINT } from "./objects.ts";
import { MemorySink, type Sink } from "./sink.ts";
import { DirectorySource, type Source } from "./source.ts";

/** Folders of a copy of the public record on this disk. */
interface RecordFolder {
  /** The public objects. */
  publicDir: string;
  /** A mirror's own state. The folder does not exist for a publisher's record. */
  stateDir: string;
}

/**
 * Finds the record in a folder: the data folder of a mirror or a service, or the `public` folder in it. Creates
 * nothing.
 * @returns null when there is no folder of that name
 */
export async function findRecordFolder(name: string): Promise<RecordFolder | null> {
  if (!(await stat(name).catch(() => null))?.isDirectory()) return null;
  const publicFolder = join(name, "public");
  const findCheckpoint = (dir: string) => stat(join(dir, CHECKPOINT)).catch(() => null);
  if (!(await findCheckpoint(name)) && (await stat(publicFolder).catch(() => null))?.isDirectory()) {
    return { publicDir: publicFolder, stateDir: join(name, "state") };
  }
  const dataFolder = basename(name) === "public" ? dirname(name) : name;
  return { publicDir: name, stateDir: join(dataFolder, "state") };
}

export interface HttpSourceOptions {
  clock: Clock;
  /** Largest number of attempts for one object without progress (default 5), with a pause between two attempts. */
  tries?: number;
  /**
   * First pause in ms (default 250). Each further pause is twice as long; each is shortened by up to half at random.
   */
  pauseMs?: number;
  /** Longest time for one answer, ms (default 5 min). */
  answerMs?: number;
}

/** Longest time within an answer in which no byte arrives, ms. */
const MAX_SILENCE_MS = 30_000;
/** Longest time for one object over all attempts, ms, so that a server that sends very slowly is given up. */
const MAX_OBJECT_MS = 1_800_000;
/** Longest pause that a server may request, ms. */
const MAX_PAUSE_MS = 60_000;
/** An answer that was cut after at least this many bytes counts as progress. Then attempts are counted from 1 again. */
const MIN_PROGRESS_BYTES = 64 * 1024;

/** A failure after which the request is tried again: a network error, or a busy server. */
class RetryableError extends Error {
  constructor(
    reason: string,
    /** Pause that the server requested, ms; 0 if it requested none. */
    readonly afterMs = 0,
  ) {
    super(reason);
  }
}

/**
 * A public store over HTTP: our own service, a bucket, any static file server. The bytes are taken as they are stored,
 * without undoing Content-Encoding. An answer that was cut is continued by Range and If-Range if the server sent a
 * strong etag. Redirects are not followed: the operator named this address and no other.
 */
export class HttpSource implements Source {
  readonly #agent: Agent;
  readonly #base: string;
  readonly #refusals = new RefusalReader({ ask: (key) => this.#readKeyState(key), known: CHECKPOINT });

  /** @throws Failure `usage` unless `name` is an http or https address without query */
  constructor(
    readonly name: string,
    private readonly options: HttpSourceOptions,
  ) {
    const url = parseUrl(name);
    if (!url || !/^https?:$/.test(url.protocol) || url.search || url.hash) {
      throw new Failure("usage", `not an address of a public store: ${name}`);
    }
    this.#base = url.href.replace(/\/*$/, "/");
    this.#agent = new Agent({
      headersTimeout: MAX_SILENCE_MS,
      bodyTimeout: MAX_SILENCE_MS,
      connect: { timeout: MAX_SILENCE_MS },
    });
  }

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    const sink = new MemorySink();
    return (await this.into(key, maxBytes, sink)) ? sink.bytes() : null;
  }

  async into(key: string, maxBytes: number, sink: Sink): Promise<boolean> {
    const { clock, tries = 5, pauseMs = 250 } = this.options;
    const startedAtMs = clock.monotonic();
    for (let attempt = 1; ; attempt++) {
      const bytesBefore = sink.receivedBytes;
      try {
        return await this.#fetchOnce(key, maxBytes, sink);
      } catch (error) {
        if (!(error instanceof RetryableError)) throw error;
        if (sink.receivedBytes - bytesBefore >= MIN_PROGRESS_BYTES) attempt = 0;
        if (attempt >= tries) throw new SourceDown(this.name, key, `${error.message} (${attempt} tries)`);
        if (clock.monotonic() - startedAtMs > MAX_OBJECT_MS)
          throw new SourceDown(this.name, key, `${error.message} (too slow)`);
        const waitMs = pauseMs * 2 ** Math.max(0, attempt - 1) * (1 - Math.random() / 2);
        await clock.sleep(Math.min(MAX_PAUSE_MS, Math.max(waitMs, error.afterMs)));
      }
    }
  }

  async #fetchOnce(key: string, maxBytes: number, sink: Sink): Promise<boolean> {
    const signal = AbortSignal.timeout(this.options.answerMs ?? 300_000);
    const { receivedBytes: at, etag } = sink;
    const headers = {
      "accept-encoding": isBundle(key) ? "gzip" : "identity",
      ...(at > 0 && etag ? { range: `bytes=${at}-`, "if-range": etag } : {}),
    };
    let answer: Dispatcher.ResponseData | undefined;
    try {
      answer = await request(this.#base + checkKey(key), { dispatcher: this.#agent, signal, headers });
      if (answer.statusCode === 404 || answer.statusCode === 410) return false;
      if (answer.statusCode === 403 && (await this.#refusals.isMissing(key))) return false;
      await this.#checkHeaders(key, answer, sink);
      await writeBounded(answer, key, maxBytes, sink);
      return true;
    } catch (error) {
      if (error instanceof RetryableError || error instanceof Oversized || error instanceof SourceDown) throw error;
      if (isLocalDiskFault(error)) throw error;
      // A fault of the network: the connection was refused, reset or silent, or the body was cut off.
      throw new RetryableError(error instanceof Error ? error.message : String(error));
    } finally {
      // Closes the connection if the body was not read to its end: reading the rest might never end.
      if (answer && !answer.body.readableEnded) answer.body.on("error", () => undefined).destroy();
    }
  }

  /**
   * Asks the server whether a key exists, without reading the object.
   * @throws RetryableError and what the network throws
   */
  async #readKeyState(key: string): Promise<KeyState> {
    const signal = AbortSignal.timeout(MAX_SILENCE_MS);
    const headers = { "accept-encoding": "identity" };
    const answer = await request(this.#base + checkKey(key), { dispatcher: this.#agent, signal, headers });
    try {
      return await keyStateOf(answer);
    } finally {
      if (!answer.body.readableEnded) answer.body.on("error", () => undefined).destroy();
    }
  }

  /** Checks status and headers. Restarts the sink unless the body continues what the sink has. */
  async #checkHeaders(
    key: string,
    { statusCode: status, headers }: Dispatcher.ResponseData,
    sink: Sink,
  ): Promise<void> {
    const statusText = `it answered ${status}`;
    const createSourceDown = (why: string) => new SourceDown(this.name, key, why);
    if (isBusy(status)) throw busyError(status, headers);
    if (status >= 300 && status < 400) throw createSourceDown(`${statusText}: a redirect is not followed`);
    if (status === 206 || status === 416) {
      const isExpectedPart = new RegExp(`^bytes ${sink.receivedBytes}-`).test(String(headers["content-range"]));
      if (status === 206 && sink.receivedBytes > 0 && isExpectedPart && headers.etag === sink.etag)
        return checkEncoding(key, headers, createSourceDown);
      await sink.restart(null);
      throw new RetryableError(`${statusText} with another part than was asked for`);
    }
    if (status !== 200) throw createSourceDown(statusText);
    checkEncoding(key, headers, createSourceDown);
    await sink.restart(strongEtagOf(headers.etag));
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}

/** Largest number of bytes that are read of the body of an answer with status 403. S3 sends a few hundred. */
const MAX_REFUSAL_BYTES = 4_096;

/** Reads from an answer whether its key exists. @throws RetryableError for a server that is busy */
async function keyStateOf({ statusCode: status, headers, body }: Dispatcher.ResponseData): Promise<KeyState> {
  if (isBusy(status)) throw busyError(status, headers);
  if (status === 200) return "there";
  if (status === 404 || status === 410) return "missing";
  if (status !== 403) return "other";
  let text = "";
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    text += Buffer.from(chunk).toString("latin1");
    if (text.length > MAX_REFUSAL_BYTES) return "other";
  }
  return text.includes("<Code>AccessDenied</Code>") ? "refused" : "other";
}

const isBusy = (status: number): boolean => status === 429 || status >= 500;
const busyError = (status: number, headers: Headers): RetryableError =>
  new RetryableError(`it answered ${status}`, Number(headers["retry-after"] ?? 0) * 1000 || 0);

type Headers = Dispatcher.ResponseData["headers"];

const isBundle = (key: string): boolean => key.startsWith("tile/entries/");

/**
 * Returns a strong etag; null for a weak or missing one. A weak etag does not prove that a range is of the bytes that
 * were received before (RFC 9110, 13.1.5).
 */
const strongEtagOf = (etag: unknown): string | null => (typeof etag === "string" && /^".*"$/.test(etag) ? etag : null);

/** Refuses an answer that a proxy compressed: its bytes are not the stored bytes, so their hash would not match. */
function checkEncoding(key: string, headers: Headers, createSourceDown: (why: string) => SourceDown): void {
  const encoding = String(headers["content-encoding"] ?? "identity").toLowerCase();
  if (encoding === "identity" || (isBundle(key) && encoding === "gzip")) return;
  throw createSourceDown(`it is sent with content-encoding ${encoding.slice(0, 40)}, not as it is stored`);
}

/** Returns whether this is a fault of our own disk, which must not be reported as a fault of the source. */
const isLocalDiskFault = (error: unknown): boolean =>
  ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO"].includes((error as NodeJS.ErrnoException | null)?.code ?? "");

async function writeBounded(answer: Dispatcher.ResponseData, key: string, maxBytes: number, sink: Sink): Promise<void> {
  const contentLength = answer.headers["content-length"];
  if (contentLength !== undefined && sink.receivedBytes + Number(contentLength) > maxBytes)
    throw new Oversized(key, maxBytes);
  const startAt = sink.receivedBytes;
  for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
    if (sink.receivedBytes + chunk.length > maxBytes) throw new Oversized(key, maxBytes);
    await sink.write(chunk);
  }
  const receivedBytes = sink.receivedBytes - startAt;
  if (contentLength !== undefined && receivedBytes !== Number(contentLength))
    throw new RetryableError(`${receivedBytes} of ${contentLength} bytes came`);
}

/** Number of bytes that one ranged read requests. */
const RANGE_BYTES = 8 * 1024 * 1024;

/** A bucket (or any store of infra/store) as a source. It is never written to. `close` closes the store. */
export class StoreSource implements Source {
  readonly #store: Store;

  constructor(
    readonly name: string,
    store: Store,
  ) {
    this.#store = withMissingAsNull(store, CHECKPOINT);
  }

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    return (await this.#withSourceErrors(key, maxBytes, () => this.#store.get(key, { maxBytes })))?.bytes ?? null;
  }

  /**
   * Reads the object in ranges. A request for a range cannot name an etag, so the etag is compared after the last
   * range.
   */
  async into(key: string, maxBytes: number, sink: Sink): Promise<boolean> {
    return this.#withSourceErrors(key, maxBytes, async () => {
      const info = await this.#store.head(key);
      if (!info) return false;
      if (info.size > maxBytes) throw new Oversized(key, maxBytes);
      const etag = `"${info.etag}"`;
      if (sink.etag !== etag || sink.receivedBytes > info.size) await sink.restart(etag);
      while (sink.receivedBytes < info.size) {
        const bytes = await this.#store.getRange(
          key,
          sink.receivedBytes,
          Math.min(info.size, sink.receivedBytes + RANGE_BYTES),
        );
        if (!bytes?.length) throw new SourceDown(this.name, key, "it went away while it was read");
        await sink.write(bytes);
      }
      if ((await this.#store.head(key))?.etag === info.etag) return true;
      await sink.restart(null);
      throw new SourceDown(this.name, key, "it changed while it was read");
    });
  }

  async #withSourceErrors<T>(key: string, maxBytes: number, operation: () => Promise<T>): Promise<T> {
    try {
      return await operation();
    } catch (error) {
      if (error instanceof ObjectTooLarge) throw new Oversized(key, maxBytes);
      if (error instanceof StoreDown) throw new SourceDown(this.name, key, error.message);
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#store.close();
  }
}

/**
 * Opens the source that an operator named: an http(s) address, a bucket (`s3://`), or a folder ({@link
 * findRecordFolder}).
 * @param settings returns the credentials of a bucket (stores.public_key_id and so on); called only for a bucket
 * @param httpLimits retries and time limits for an http(s) address
 * @throws Failure `unreadable` when there is no such folder and the name is no address either; Failure `usage` for a
 * malformed address or bucket, or a bucket without `settings`; StoreUnfit for a bucket without credentials
 */
export async function openSource(
  name: string,
  clock: Clock,
  settings?: () => Pick<Config, "stores">,
  httpLimits: Omit<HttpSourceOptions, "clock"> = {},
): Promise<Source> {
  if (name.startsWith("s3://")) return openBucket(name.replace(/\/+$/, ""), settings);
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(name)) return new HttpSource(name, { clock, ...httpLimits });
  const folder = await findRecordFolder(name);
  if (!folder) throw new Failure("unreadable", `neither an address nor a folder: ${name}`);
  return new DirectorySource(folder.publicDir);
}

async function openBucket(name: string, settings: (() => Pick<Config, "stores">) | undefined): Promise<Source> {
  if (!settings) throw new Failure("usage", `no credentials for ${name}`);
  if (!/^s3:\/\/[a-z0-9][a-z0-9.-]+(?:\/[A-Za-z0-9._=-]+)*$/.test(name))
    throw new Failure("usage", `not a bucket: ${name}`);
  const { stores } = settings();
  return new StoreSource(name, await openStore({ stores: { ...stores, public: name } }, "public", "", false));
}
