import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Agent, type Dispatcher, request } from "undici";
import type { Clock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { Failure } from "../../infra/errors.ts";
import { openStore } from "../../infra/store/open.ts";
import { checkKey, ObjectTooLarge, type Store, StoreDown } from "../../infra/store/store.ts";
import { type KeyState, RefusalReader, withMissingAsNull } from "../../infra/store/unlisted.ts";
import { parseUrl } from "../../infra/url.ts";
import { Oversized, SourceDown } from "./errors.ts";
import { CHECKPOINT } from "./objects.ts";
import { MemorySink, type Sink } from "./sink.ts";
import { DirectorySource, type Source } from "./source.ts";

/** Where a record lies on this disk. */
interface RecordFolder {
  /** The objects: what is published. */
  publicDir: string;
  /** What a mirror remembers beside them; not there for a publisher's own record. */
  stateDir: string;
}

/**
 * A record by the folder that holds it: a mirror's or a service's data folder, or its `public` part, which any web server
 * serves. Nothing is made.
 * @returns null when there is no folder of that name
 */
export async function recordFolder(name: string): Promise<RecordFolder | null> {
  if (!(await stat(name).catch(() => null))?.isDirectory()) return null;
  const inside = join(name, "public");
  const has = (dir: string) => stat(join(dir, CHECKPOINT)).catch(() => null);
  if (!(await has(name)) && (await stat(inside).catch(() => null))?.isDirectory()) {
    return { publicDir: inside, stateDir: join(name, "state") };
  }
  const above = basename(name) === "public" ? dirname(name) : name;
  return { publicDir: name, stateDir: join(above, "state") };
}

export interface HttpSourceOptions {
  clock: Clock;
  /** Tries of one object without getting further (default 5), with a pause before each further one. */
  tries?: number;
  /** First pause in ms (default 250); it doubles, and each is cut by up to half at random. */
  pauseMs?: number;
  /** Longest answer, ms (default 5 min). */
  answerMs?: number;
}

/** Longest silence within an answer. */
const SILENCE_MS = 30_000;
/** Longest time for one object over all its tries. A server that sends forever, slowly, is given up then. */
const OBJECT_MS = 1_800_000;
/** Longest pause that a server may ask for. */
const MAX_PAUSE_MS = 60_000;
/** A cut answer that brought at least this much got further: the next try is a first one. */
const FURTHER_BYTES = 64 * 1024;

/** Worth another try: the network, or a server that says that it is busy. */
class Again extends Error {
  constructor(
    why: string,
    readonly afterMs = 0,
  ) {
    super(why);
  }
}

/**
 * A public store over HTTP: our own service, a bucket, any static file server. The bytes are taken as they are stored,
 * without undoing Content-Encoding. An answer that was cut is continued by Range and If-Range where the server names the
 * object by a strong etag. Redirects are not followed: the operator named this address and no other.
 */
export class HttpSource implements Source {
  readonly #agent: Agent;
  readonly #base: string;
  readonly #unlisted = new RefusalReader({ ask: (key) => this.#ask(key), known: CHECKPOINT });

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
    this.#agent = new Agent({ headersTimeout: SILENCE_MS, bodyTimeout: SILENCE_MS, connect: { timeout: SILENCE_MS } });
  }

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    const sink = new MemorySink();
    return (await this.into(key, maxBytes, sink)) ? sink.bytes() : null;
  }

  async into(key: string, maxBytes: number, sink: Sink): Promise<boolean> {
    const { clock, tries = 5, pauseMs = 250 } = this.options;
    const began = clock.monotonic();
    for (let attempt = 1; ; attempt++) {
      const before = sink.at;
      try {
        return await this.#once(key, maxBytes, sink);
      } catch (error) {
        if (!(error instanceof Again)) throw error;
        if (sink.at - before >= FURTHER_BYTES) attempt = 0;
        if (attempt >= tries) throw new SourceDown(this.name, key, `${error.message} (${attempt} tries)`);
        if (clock.monotonic() - began > OBJECT_MS) throw new SourceDown(this.name, key, `${error.message} (too slow)`);
        const pause = pauseMs * 2 ** Math.max(0, attempt - 1) * (1 - Math.random() / 2);
        await clock.sleep(Math.min(MAX_PAUSE_MS, Math.max(pause, error.afterMs)));
      }
    }
  }

  async #once(key: string, maxBytes: number, sink: Sink): Promise<boolean> {
    const signal = AbortSignal.timeout(this.options.answerMs ?? 300_000);
    const { at, etag } = sink;
    const headers = {
      "accept-encoding": isBundle(key) ? "gzip" : "identity",
      ...(at > 0 && etag ? { range: `bytes=${at}-`, "if-range": etag } : {}),
    };
    let answer: Dispatcher.ResponseData | undefined;
    try {
      answer = await request(this.#base + checkKey(key), { dispatcher: this.#agent, signal, headers });
      if (answer.statusCode === 404 || answer.statusCode === 410) return false;
      if (answer.statusCode === 403 && (await this.#unlisted.isMissing(key))) return false;
      await this.#begin(key, answer, sink);
      await bounded(answer, key, maxBytes, sink);
      return true;
    } catch (error) {
      if (error instanceof Again || error instanceof Oversized || error instanceof SourceDown) throw error;
      if (isOurs(error)) throw error;
      // The network: refused, reset, silent, or the body was cut off.
      throw new Again(error instanceof Error ? error.message : String(error));
    } finally {
      // What was not read to its end is cut: draining it could last for ever.
      if (answer && !answer.body.readableEnded) answer.body.on("error", () => undefined).destroy();
    }
  }

  /** What it says of a key, without taking the bytes. @throws Again and what the network throws */
  async #ask(key: string): Promise<KeyState> {
    const signal = AbortSignal.timeout(SILENCE_MS);
    const headers = { "accept-encoding": "identity" };
    const answer = await request(this.#base + checkKey(key), { dispatcher: this.#agent, signal, headers });
    try {
      return await keyStateOf(answer);
    } finally {
      if (!answer.body.readableEnded) answer.body.on("error", () => undefined).destroy();
    }
  }

  /** Check status and headers; the sink stands where the body begins then. */
  async #begin(key: string, { statusCode: status, headers }: Dispatcher.ResponseData, sink: Sink): Promise<void> {
    const says = `it answered ${status}`;
    const down = (why: string) => new SourceDown(this.name, key, why);
    if (isBusy(status)) throw busy(status, headers);
    if (status >= 300 && status < 400) throw down(`${says}: a redirect is not followed`);
    if (status === 206 || status === 416) {
      const part = new RegExp(`^bytes ${sink.at}-`).test(String(headers["content-range"]));
      if (status === 206 && sink.at > 0 && part && headers.etag === sink.etag) return checkEncoding(key, headers, down);
      await sink.restart(null);
      throw new Again(`${says} with another part than was asked for`);
    }
    if (status !== 200) throw down(says);
    checkEncoding(key, headers, down);
    await sink.restart(strongTag(headers.etag));
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}

/** Bytes of a refusal that are read: S3's are some hundred. */
const MAX_REFUSAL = 4_096;

/** @throws Again for a server that is busy */
async function keyStateOf({ statusCode: status, headers, body }: Dispatcher.ResponseData): Promise<KeyState> {
  if (isBusy(status)) throw busy(status, headers);
  if (status === 200) return "there";
  if (status === 404 || status === 410) return "missing";
  if (status !== 403) return "other";
  let text = "";
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    text += Buffer.from(chunk).toString("latin1");
    if (text.length > MAX_REFUSAL) return "other";
  }
  return text.includes("<Code>AccessDenied</Code>") ? "refused" : "other";
}

const isBusy = (status: number): boolean => status === 429 || status >= 500;
const busy = (status: number, headers: Headers): Again =>
  new Again(`it answered ${status}`, Number(headers["retry-after"] ?? 0) * 1000 || 0);

type Headers = Dispatcher.ResponseData["headers"];

const isBundle = (key: string): boolean => key.startsWith("tile/entries/");

/** Only a strong etag says that the rest belongs to the same bytes (RFC 9110, section 13.1.5). */
const strongTag = (etag: unknown): string | null => (typeof etag === "string" && /^".*"$/.test(etag) ? etag : null);

/** Bytes that somebody packed on the way are not those that are stored: no hash would speak of them. */
function checkEncoding(key: string, headers: Headers, down: (why: string) => SourceDown): void {
  const encoding = String(headers["content-encoding"] ?? "identity").toLowerCase();
  if (encoding === "identity" || (isBundle(key) && encoding === "gzip")) return;
  throw down(`it is sent with content-encoding ${encoding.slice(0, 40)}, not as it is stored`);
}

/** Faults of our own disk are not the source's. */
const isOurs = (error: unknown): boolean =>
  ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO"].includes((error as NodeJS.ErrnoException | null)?.code ?? "");

async function bounded(answer: Dispatcher.ResponseData, key: string, maxBytes: number, sink: Sink): Promise<void> {
  const announced = answer.headers["content-length"];
  if (announced !== undefined && sink.at + Number(announced) > maxBytes) throw new Oversized(key, maxBytes);
  const from = sink.at;
  for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
    if (sink.at + chunk.length > maxBytes) throw new Oversized(key, maxBytes);
    await sink.write(chunk);
  }
  const got = sink.at - from;
  if (announced !== undefined && got !== Number(announced)) throw new Again(`${got} of ${announced} bytes came`);
}

/** Bytes of one ranged read. */
const STEP_BYTES = 8 * 1024 * 1024;

/** A bucket (or any store of infra/store) as a source. Only read; closed with the source. */
export class StoreSource implements Source {
  readonly #store: Store;

  constructor(
    readonly name: string,
    store: Store,
  ) {
    this.#store = withMissingAsNull(store, CHECKPOINT);
  }

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    return (await this.#asking(key, maxBytes, () => this.#store.get(key, { maxBytes })))?.bytes ?? null;
  }

  /** In ranges. The store does not tie a range to an etag, so the object is looked at again after the last one. */
  async into(key: string, maxBytes: number, sink: Sink): Promise<boolean> {
    return this.#asking(key, maxBytes, async () => {
      const info = await this.#store.head(key);
      if (!info) return false;
      if (info.size > maxBytes) throw new Oversized(key, maxBytes);
      const etag = `"${info.etag}"`;
      if (sink.etag !== etag || sink.at > info.size) await sink.restart(etag);
      while (sink.at < info.size) {
        const bytes = await this.#store.getRange(key, sink.at, Math.min(info.size, sink.at + STEP_BYTES));
        if (!bytes?.length) throw new SourceDown(this.name, key, "it went away while it was read");
        await sink.write(bytes);
      }
      if ((await this.#store.head(key))?.etag === info.etag) return true;
      await sink.restart(null);
      throw new SourceDown(this.name, key, "it changed while it was read");
    });
  }

  async #asking<T>(key: string, maxBytes: number, ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
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
 * The source that an operator named: an http(s) address, a bucket, else a folder: the public one, or the one around it.
 * @param settings where the credentials of a bucket stand (stores.public_key_id and so on); only read for one
 * @throws Failure `usage` when it is none of them, StoreUnfit for a bucket without credentials
 */
export async function openSource(name: string, clock: Clock, settings?: () => Pick<Config, "stores">): Promise<Source> {
  if (name.startsWith("s3://")) return openBucket(name.replace(/\/+$/, ""), settings);
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(name)) return new HttpSource(name, { clock });
  const found = await recordFolder(name);
  if (!found) throw new Failure("unreadable", `neither an address nor a folder: ${name}`);
  return new DirectorySource(found.publicDir);
}

async function openBucket(name: string, settings: (() => Pick<Config, "stores">) | undefined): Promise<Source> {
  if (!settings) throw new Failure("usage", `no credentials for ${name}`);
  if (!/^s3:\/\/[a-z0-9][a-z0-9.-]+(?:\/[A-Za-z0-9._=-]+)*$/.test(name))
    throw new Failure("usage", `not a bucket: ${name}`);
  const { stores } = settings();
  return new StoreSource(name, await openStore({ stores: { ...stores, public: name } }, "public", "", false));
}
