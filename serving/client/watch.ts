import type { NoticeChange } from "../../pipelines/record/vocabulary.ts";
import type { SignedCard, Standing, WatcherAnswer, WatcherMade } from "./answers.ts";
import { postOf, type Service } from "./ask.ts";
import { readBounded } from "./http.ts";
import { type KeySet, verifyCard } from "./verify.ts";

/**
 * Time limit for creating a watcher. The service posts its challenge to the receiver before it answers, and waits up to
 * 25 s for the receiver. If the client gave up earlier, the watcher could exist, and its token would be lost.
 */
const CREATE_TIMEOUT_MS = 30_000;

/**
 * Creates a watcher (POST /v1/watchers). The receiver at `url` must be listening, since the service posts it a
 * challenge before this resolves. Store `token`: no other answer contains it.
 * @param watch 1 to 100 urls or capability ids
 * @throws ServiceFault `problem` if the receiver did not echo the challenge; other codes as for any request
 */
export async function createWatcher(service: Service, url: string, watch: readonly string[]): Promise<WatcherMade> {
  const { body } = await service.ask("/v1/watchers", postOf({ url, watch }), { timeout_ms: CREATE_TIMEOUT_MS });
  return body as WatcherMade;
}

const MAX_WATCHER_BYTES = 1024 * 1024;

/** Reads a watcher (GET /v1/watchers/{id}). @throws ServiceFault */
export async function readWatcher(service: Service, watcherId: string, token: string): Promise<WatcherAnswer> {
  const path = `/v1/watchers/${encodeURIComponent(watcherId)}`;
  const init = { headers: { authorization: `Bearer ${token}` } };
  return (await service.ask(path, init, { max_bytes: MAX_WATCHER_BYTES })).body as WatcherAnswer;
}

/** Stops the watcher of a token; stopping it twice is no error. @throws ServiceFault */
export async function stopWatcher(service: Service, token: string): Promise<void> {
  await service.ask("/v1/watchers/stop", { method: "POST", headers: { authorization: `Bearer ${token}` } });
}

/**
 * A notice that the card (signed grade) of a watched endpoint changed. The receiver verifies the signatures of the
 * notice and of the card before it calls `onNotice`.
 */
export interface Notice {
  type: "card.changed";
  watcher_id: string;
  capability_id: string;
  /** Url or id as the watcher's creator wrote it. */
  asked: string;
  /** Number of the notice for this watcher and endpoint, from 1, without gaps. */
  seq: number;
  /** What changed. A later version of the service may add values. */
  change: NoticeChange | (string & {});
  from: Standing | null;
  to: Standing;
  card: SignedCard;
  /** Position of the card in the service's log. */
  leaf: number;
  at: string;
}

/**
 * The ids of received notices, so that each notice is handled once. `begin` returns `new` once for each id, then `busy`
 * until `end` is called for it, then `done`. `end` with `done` false forgets the id, since the service will send the
 * notice again. Repetitions are refused as old after `tolerance_s`, so one process needs only memory; several processes
 * need a store that they share.
 */
export interface Seen {
  begin(id: string): Promise<"new" | "busy" | "done"> | "new" | "busy" | "done";
  end(id: string, done: boolean): Promise<void> | void;
}

/** Largest number of ids in memory. Within twice the default tolerance the service sends far fewer to one domain. */
const MAX_SEEN = 10_000;

/** Returns a {@link Seen} in memory for the newest 10,000 ids. */
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
  /** Handles a notice, within 15 seconds. If it throws, the response is 500, and the service sends the notice again. */
  onNotice: (notice: Notice) => Promise<void> | void;
  /**
   * Is this a watcher of the caller? A notice of any other gets a 410, which stops that watcher. Default: always true.
   */
  isOurs?: (watcherId: string) => Promise<boolean> | boolean;
  /** Remembers which notices were handled. Default: {@link seenInMemory}. */
  seen?: Seen;
  /** Largest allowed difference between the clock here and the timestamp of a notice. Default 300. */
  tolerance_s?: number;
}

const MAX_NOTICE_BYTES = 256 * 1024;
const MAX_SIGNATURES = 8;

const reply = (status: number, text: string): Response =>
  new Response(status === 204 ? null : text, { status, headers: { "content-type": "text/plain; charset=utf-8" } });

interface Message {
  id: string;
  timestamp_s: number;
  /** The bytes that are signed: id, timestamp and body. */
  bytes: Uint8Array<ArrayBuffer>;
  signatures: Uint8Array[];
  // biome-ignore lint/suspicious/noExplicitAny: JSON of the request; its signature is verified before it is used
  body: any;
}

/**
 * Returns a handler for the notices of watchers (Standard Webhooks), for any server with `Request` and `Response`. It
 * echoes challenges that an answers key signed. It calls `onNotice` once for each notice that a cards key signed and
 * that agrees with the card in it, which a cards key must have signed too. A repetition is acknowledged without a call;
 * it gets a 503 while `onNotice` still runs, and is refused as old after the tolerance.
 */
export function noticeReceiver(options: ReceiverOptions): (request: Request) => Promise<Response> {
  const { service, tolerance_s = 300, seen = seenInMemory() } = options;
  return async (request) => {
    if (request.method !== "POST") return reply(405, "only POST is accepted");
    const message = await readMessage(request).catch(() => null);
    if (message === null) return reply(400, "the request is not a signed notice");
    if (!(Math.abs(service.now() / 1000 - message.timestamp_s) <= tolerance_s))
      return reply(400, "too old, or in the future");
    if (message.body?.type === "watcher.challenge") return echo(service.keys, message);
    if (!(await isSigned(service.keys, message, "cards"))) return reply(401, "no valid signature of a cards key");
    // Notices of unknown types are acknowledged too, since the service sends no later notice before that.
    if (message.body?.type !== "card.changed") return reply(204, "");
    return handle(message, { ...options, seen });
  };
}

async function handle({ id, body }: Message, { service, onNotice, isOurs, seen }: ReceiverOptions & { seen: Seen }) {
  if (!(await isAboutItsCard(service.keys, body))) return reply(401, "the notice does not agree with its card");
  if (isOurs && !(await isOurs(body.watcher_id))) return reply(410, "this watcher is not ours");
  const state = await seen.begin(id);
  if (state === "done") return reply(204, "");
  if (state === "busy") return reply(503, "this notice is being handled");
  try {
    await onNotice(body as Notice);
  } catch {
    await seen.end(id, false);
    return reply(500, "the notice could not be handled");
  }
  await seen.end(id, true);
  return reply(204, "");
}

async function echo(keys: KeySet, message: Message): Promise<Response> {
  if (typeof message.body.challenge !== "string") return reply(400, "the challenge is not a text");
  if (!(await isSigned(keys, message, "answers"))) return reply(401, "no valid signature of an answers key");
  return reply(200, message.body.challenge);
}

/** Reads headers and body of a signed notice. @throws Error for any other request */
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

/** Is the notice's card signed by the service, and does the notice agree with the card? */
async function isAboutItsCard(keys: KeySet, { card, capability_id, to }: Notice): Promise<boolean> {
  const verdict = await verifyCard(await keys.keys(), card);
  if (!verdict.ok || card.capability_id !== capability_id) return false;
  const { band, tier, composite, computed_at } = to ?? {};
  return band === card.band && tier === card.tier && composite === card.composite && computed_at === card.computed_at;
}
