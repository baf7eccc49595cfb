import type { NoticeChange } from "../../pipelines/record/vocabulary.ts";
import type { SignedCard, Standing, WatcherAnswer, WatcherMade } from "./answers.ts";
import { postOf, type Service } from "./ask.ts";
import { readBounded } from "./http.ts";
import { type KeySet, verifyCard } from "./verify.ts";

/** Time for creating a watcher: the service posts its challenge to the receiver before it answers. */
const MAKING_MS = 20_000;

/**
 * Creates a watcher (POST /v1/watchers). The receiver must be listening, since it is challenged before this resolves.
 * Keep `token`: it is given only once.
 * @param watch 1 to 100 urls or capability ids
 * @throws ServiceFault `problem` when the receiver did not echo, and as any question may
 */
export async function createWatcher(service: Service, url: string, watch: readonly string[]): Promise<WatcherMade> {
  const { body } = await service.ask("/v1/watchers", postOf({ url, watch }), { timeout_ms: MAKING_MS });
  return body as WatcherMade;
}

const MAX_WATCHER_BYTES = 1024 * 1024;

/** Reads a watcher. @throws ServiceFault */
export async function readWatcher(service: Service, watcherId: string, token: string): Promise<WatcherAnswer> {
  const path = `/v1/watchers/${encodeURIComponent(watcherId)}`;
  const init = { headers: { authorization: `Bearer ${token}` } };
  return (await service.ask(path, init, { max_bytes: MAX_WATCHER_BYTES })).body as WatcherAnswer;
}

/** Stops the watcher of a token; stopping it twice is no error. @throws ServiceFault */
export async function stopWatcher(service: Service, token: string): Promise<void> {
  await service.ask("/v1/watchers/stop", { method: "POST", headers: { authorization: `Bearer ${token}` } });
}

/** A notice. Its signature and that of its card were verified. */
export interface Notice {
  type: "card.changed";
  watcher_id: string;
  capability_id: string;
  /** Url or id as the watcher's creator wrote it. */
  asked: string;
  /** Number of the notice for this watcher and endpoint, from 1, without gaps. */
  seq: number;
  /** Further values may be added. */
  change: NoticeChange | (string & {});
  from: Standing | null;
  to: Standing;
  card: SignedCard;
  leaf: number;
  at: string;
}

/**
 * Ids of notices that were received. `begin` returns `new` once for each id, `busy` until `end` is called for it, and
 * `done` after that; after a failure the id is forgotten, since the notice will come again. A repeated notice is
 * refused as old after `tolerance_s`, so memory is enough for one process; several processes need a store that they
 * share.
 */
export interface Seen {
  begin(id: string): Promise<"new" | "busy" | "done"> | "new" | "busy" | "done";
  end(id: string, done: boolean): Promise<void> | void;
}

/** Many times the notices that one domain is sent in ten minutes. */
const MAX_SEEN = 10_000;

/** {@link Seen} in memory, for the newest 10,000 ids. */
export function seenInMemory(): Seen {
  const held = new Map<string, "busy" | "done">();
  return {
    begin(id) {
      const state = held.get(id);
      if (state) return state;
      if (held.size >= MAX_SEEN) held.delete(held.keys().next().value!);
      held.set(id, "busy");
      return "new";
    },
    end(id, done) {
      if (done) held.set(id, "done");
      else held.delete(id);
    },
  };
}

export interface ReceiverOptions {
  /** The service that sends the notices. */
  service: Pick<Service, "keys" | "now">;
  /** Handles a notice. If it throws, the answer is 500, and the notice comes again. It has 15 seconds. */
  onNotice: (notice: Notice) => Promise<void> | void;
  /** Is this watcher ours? Notices of others are answered 410, which stops them. Default: all are ours. */
  isOurs?: (watcherId: string) => Promise<boolean> | boolean;
  seen?: Seen;
  /** Largest difference between our clock and the timestamp of an attempt. Default 300. */
  tolerance_s?: number;
}

const MAX_NOTICE_BYTES = 256 * 1024;
const MAX_SIGNATURES = 8;

const reply = (status: number, text: string): Response =>
  new Response(status === 204 ? null : text, { status, headers: { "content-type": "text/plain; charset=utf-8" } });

interface Message {
  id: string;
  timestamp_s: number;
  bytes: Uint8Array<ArrayBuffer>;
  signatures: Uint8Array[];
  // biome-ignore lint/suspicious/noExplicitAny: what came, read member by member once it is known to be signed
  body: any;
}

/**
 * The receiving side of watchers (Standard Webhooks), for any server with `Request` and `Response`. It echoes
 * challenges that the answers key signed. It passes on notices that the cards key signed, whose card that key signed
 * too, and which agree with their card. Each notice is passed on once; a repetition within the tolerance is
 * acknowledged and not passed on, a later one is refused as old.
 */
export function noticeReceiver(options: ReceiverOptions): (request: Request) => Promise<Response> {
  const { service, tolerance_s = 300, seen = seenInMemory() } = options;
  return async (request) => {
    if (request.method !== "POST") return reply(405, "notices are posted");
    const message = await readMessage(request).catch(() => null);
    if (message === null) return reply(400, "not understood");
    if (!(Math.abs(service.now() / 1000 - message.timestamp_s) <= tolerance_s)) return reply(400, "too old");
    if (message.body?.type === "watcher.challenge") return echo(service.keys, message);
    if (!(await isSigned(service.keys, message, "cards"))) return reply(401, "not signed by the key of the cards");
    // Notices of other kinds are acknowledged, so that they do not hold up those behind them.
    if (message.body?.type !== "card.changed") return reply(204, "");
    return take(message, { ...options, seen });
  };
}

async function take({ id, body }: Message, { service, onNotice, isOurs, seen }: ReceiverOptions & { seen: Seen }) {
  if (!(await isAboutItsCard(service.keys, body))) return reply(401, "the card does not bear the notice out");
  if (isOurs && !(await isOurs(body.watcher_id))) return reply(410, "no watcher of ours");
  const state = await seen.begin(id);
  if (state === "done") return reply(204, "");
  if (state === "busy") return reply(503, "still at it");
  try {
    await onNotice(body as Notice);
  } catch {
    await seen.end(id, false);
    return reply(500, "not taken");
  }
  await seen.end(id, true);
  return reply(204, "");
}

async function echo(keys: KeySet, message: Message): Promise<Response> {
  if (typeof message.body.challenge !== "string") return reply(400, "not understood");
  if (!(await isSigned(keys, message, "answers"))) return reply(401, "not signed by the key of the answers");
  return reply(200, message.body.challenge);
}

/** @throws on anything that is no message */
async function readMessage(request: Request): Promise<Message> {
  const header = (name: string): string => request.headers.get(name) ?? "";
  const [id, timestamp] = [header("webhook-id"), header("webhook-timestamp")];
  if (!/^[\w.-]{1,100}$/.test(id) || !/^\d{1,12}$/.test(timestamp)) throw new TypeError("no webhook headers");
  const body = await readBounded(request.body, MAX_NOTICE_BYTES);
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const bytes = new Uint8Array(head.length + body.length);
  bytes.set(head);
  bytes.set(body, head.length);
  const signatures = header("webhook-signature")
    .split(" ")
    .filter((one) => one.startsWith("v1a,"))
    .slice(0, MAX_SIGNATURES)
    .map((one) => Uint8Array.from(atob(one.slice(4)), (char) => char.charCodeAt(0)));
  const parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  return { id, timestamp_s: Number(timestamp), bytes, signatures, body: parsed };
}

const isSigned = (keys: KeySet, { timestamp_s, bytes, signatures }: Message, purpose: "cards" | "answers") =>
  keys.verifyBytes(bytes, signatures, { purpose, at: new Date(timestamp_s * 1000) });

/** Is the notice's card signed by the service, and does the notice agree with it? */
async function isAboutItsCard(keys: KeySet, { card, capability_id, to }: Notice): Promise<boolean> {
  const verdict = await verifyCard(await keys.keys(), card);
  if (!verdict.ok || card.capability_id !== capability_id) return false;
  const { band, tier, composite, computed_at } = to ?? {};
  return band === card.band && tier === card.tier && composite === card.composite && computed_at === card.computed_at;
}
