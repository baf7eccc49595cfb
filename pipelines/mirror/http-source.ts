import { Agent, type Dispatcher, request } from "undici";
import type { Clock } from "../../infra/clock.ts";
import { checkKey } from "../../infra/store/store.ts";
import { MirrorUsage, Oversized, SourceDown } from "./errors.ts";
import type { Source } from "./source.ts";

export interface HttpSourceOptions {
  clock: Clock;
  /** Tries of one object (default 5), with a pause before each further one. */
  tries?: number;
  /** First pause in ms (default 250); it doubles, and each is cut by up to half at random. */
  pauseMs?: number;
  /** Longest silence within an answer and longest answer, ms (default 30 s and 5 min). */
  silenceMs?: number;
  answerMs?: number;
}

/** Longest pause that a server may ask for. */
const MAX_PAUSE_MS = 60_000;

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
 * without undoing Content-Encoding. Redirects are not followed: the operator named this address and no other.
 */
export class HttpSource implements Source {
  readonly #agent: Agent;
  readonly #base: string;

  /** @throws MirrorUsage unless `name` is an http or https address without query */
  constructor(
    readonly name: string,
    private readonly options: HttpSourceOptions,
  ) {
    const url = URL.canParse(name) ? new URL(name) : null;
    if (!url || !/^https?:$/.test(url.protocol) || url.search || url.hash) {
      throw new MirrorUsage(`not an address of a public store: ${name}`);
    }
    this.#base = url.href.replace(/\/*$/, "/");
    const silence = options.silenceMs ?? 30_000;
    this.#agent = new Agent({ headersTimeout: silence, bodyTimeout: silence, connect: { timeout: silence } });
  }

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    const url = this.#base + checkKey(key);
    const { clock, tries = 5, pauseMs = 250 } = this.options;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once(url, key, maxBytes);
      } catch (error) {
        if (!(error instanceof Again)) throw error;
        if (attempt >= tries) throw new SourceDown(this.name, key, `${error.message} (${attempt} tries)`);
        const pause = pauseMs * 2 ** (attempt - 1) * (1 - Math.random() / 2);
        await clock.sleep(Math.min(MAX_PAUSE_MS, Math.max(pause, error.afterMs)));
      }
    }
  }

  async #once(url: string, key: string, maxBytes: number): Promise<Uint8Array | null> {
    const signal = AbortSignal.timeout(this.options.answerMs ?? 300_000);
    const encoding = key.startsWith("tile/entries/") ? "gzip" : "identity";
    let answer: Dispatcher.ResponseData | undefined;
    try {
      answer = await request(url, { dispatcher: this.#agent, signal, headers: { "accept-encoding": encoding } });
      const { statusCode: status, headers } = answer;
      if (status === 200) return await bounded(answer.body, key, maxBytes);
      if (status === 404 || status === 410) return null;
      const says = `it answered ${status}`;
      if (status === 429 || status >= 500) throw new Again(says, Number(headers["retry-after"] ?? 0) * 1000 || 0);
      throw new SourceDown(
        this.name,
        key,
        status >= 300 && status < 400 ? `${says}: a redirect is not followed` : says,
      );
    } catch (error) {
      if (error instanceof Again || error instanceof Oversized || error instanceof SourceDown) throw error;
      // The network: refused, reset, silent, or the body was cut off.
      throw new Again(error instanceof Error ? error.message : String(error));
    } finally {
      // What was not read to its end is cut: draining it could last for ever.
      if (answer && !answer.body.readableEnded) answer.body.on("error", () => undefined).destroy();
    }
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}

async function bounded(body: AsyncIterable<Uint8Array>, key: string, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > maxBytes) throw new Oversized(key, maxBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, size);
}
