import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { DEFAULT_LIMITS, type Limits } from "../../infra/config.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { FoldFile, type FoldFolder } from "../../infra/log/fold-file.ts";
import type { AppendedRecord } from "../../infra/log/log.ts";
import { LogTail } from "../../infra/log/tail.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { comparedMembers, createWatcherRecord, type WatcherType } from "../../pipelines/6-notify/notice.ts";
import { isDelivered, type Watcher, WatcherTable } from "../../pipelines/6-notify/watcher-table.ts";
import { type BodyOf, MAX_WATCHED_IDS } from "../../pipelines/record/bodies.ts";
import { capId, crockford130, isId } from "../../pipelines/record/ids.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import {
  BadUrl,
  normaliseUrl,
  PLATFORM_CAP_FACTOR,
  platformOf,
  registrableDomain,
  toolInUrl,
} from "../../pipelines/record/url.ts";
import { Limiter, type LimitResult } from "../http/limits.ts";
import { badField, type FieldError, Problem } from "../http/problem.ts";
import { ReadOnlyReplica, type ServingLog } from "../replica/background-log.ts";
import type { WatcherAnswer, WatcherRequest } from "../schemas/watchers.ts";
import { cardOf, headlineOf } from "../tables/entry.ts";
import { matchUrl, toolsOf } from "../tables/match.ts";
import type { View } from "../tables/view.ts";
import { clientNamesOf } from "./client-names.ts";
import { challenge, sameText } from "./receiver.ts";

export interface WatchersDeps {
  log: ServingLog;
  view: () => View;
  validateUrl: Egress["validate"];
  egress: Pick<Egress, "fetch">;
  signer: Signer;
  clock: Clock;
  logger: Pick<Logger, "error" | "warn">;
  /** Host of this service, which may not be a receiver. */
  ownHost: string;
  /** Development switch: receivers may be on plain http. */
  allowPlainHttp: boolean;
  limits?: Partial<Limits>;
  /** Folder in which the table of watchers is saved, so that a restart reads only the log's records since then. */
  folds?: FoldFolder | undefined;
}

/** Longest wait until the record that a request appended, or that its token names, is read from the log, real ms. */
const READ_BACK_WAIT_MS = 2_000;
const RETRY_S = "5";

export interface CreatedWatcher {
  watcher: Watcher;
  token: string;
  /** RateLimit headers of the limit on watchers that one client creates. */
  limitHeaders: Record<string, string>;
}

/**
 * Creates, reads and stops watchers for the API. Each change is appended to the log as a record, which is read back
 * before the client gets its answer. The table of this replica is computed (folded) from all records of the topic
 * `watchers`, so it also has watchers that other replicas created.
 */
export class Watchers {
  readonly table = new WatcherTable();
  readonly #tail: LogTail;
  readonly #limits: Limits;
  readonly #clients: Limiter;
  readonly #platforms: Limiter;
  readonly #clientNameOf: (client: string) => string;

  constructor(private readonly deps: WatchersDeps) {
    this.#limits = { ...DEFAULT_LIMITS, ...deps.limits };
    const { log, folds, signer } = deps;
    this.#clientNameOf = clientNamesOf(signer);
    const file = folds ? new FoldFile(join(folds.dir, "watchers"), this.table, folds) : null;
    this.#tail = new LogTail(log, "watchers", (record) => this.table.apply(record), file);
    const monotonicNow = () => deps.clock.monotonic();
    const { watchers_per_hour, challenges_per_domain_hour } = this.#limits;
    this.#clients = new Limiter({ name: "watchers", quota: watchers_per_hour, windowS: 3600 }, monotonicNow);
    this.#platforms = new Limiter(
      { name: "challenges", quota: challenges_per_domain_hour, windowS: 3600 },
      monotonicNow,
    );
  }

  /** Applies the new records of the topic to the table. @throws errors of the log */
  catchUp(): Promise<void> {
    return this.#tail.catchUp();
  }

  /**
   * Creates a watcher for a receiver that echoes a challenge, a random text that is posted to it. Nothing is recorded
   * before the echo.
   * @throws Problem bad_request with pointers, too_many_requests, too_many_watchers, receiver_failed, log_unavailable
   */
  async create({ url, watch, secret: givenSecret }: WatcherRequest, client: string): Promise<CreatedWatcher> {
    const receiver = this.#checkReceiver(url);
    const view = this.deps.view();
    const watched = resolveAllWatched(view, watch, this.deps.validateUrl);
    const watcherKeys = {
      domain: registrableDomain(receiver),
      platform: platformOf(receiver),
      by: this.#clientNameOf(client),
    };
    const limitHeaders = this.#admit(client, watcherKeys.platform);
    await this.#withLog(() => this.#tail.catchUp());
    this.#checkLimits(watcherKeys);
    const id = `wat_${crockford130(randomBytes(17))}`;
    const { egress, signer, clock } = this.deps;
    const hmacKey = givenSecret?.replace(/^whsec_/, "") ?? null;
    await challenge(receiver, id, { egress, signer, clock, hmacKey });
    const evictable = this.#checkLimits(watcherKeys);
    if (evictable) {
      const at = rfc3339(clock.now());
      await this.#append("watcher.stopped", { id: evictable.watcher.id, why: evictable.why, at });
    }
    const secret = createSecret();
    const body: BodyOf<"watcher.created"> = {
      ...{ id, url: receiver, watched, tree_size: view.size, standing: standingIn(view, watched) },
      ...{ token_sha256: hashOfSecret(secret), created_at: rfc3339(clock.now()) },
      ...(hmacKey === null ? {} : { hmac_key: hmacKey }),
      by: watcherKeys.by,
    };
    const { partition, offset } = await this.#append("watcher.created", body);
    const watcher = this.table.get(id)!;
    return { watcher, token: formatToken({ id, partition, offset, secret }), limitHeaders };
  }

  /**
   * Returns the watcher to which a token gives access. A wrong token, another watcher's token, and a token of a
   * watcher that does not exist get the same answer, so that nobody learns which ids exist.
   * @param id the requested watcher; undefined: the watcher that the token names
   * @throws Problem bad_token; not_ready when this replica has not read the watcher's record yet; log_unavailable
   */
  async open(token: WatcherToken | null, id?: string): Promise<Watcher> {
    if (token && (id === undefined || id === token.id)) {
      const reached = await this.#withLog(() => this.#tail.reach(token.partition, token.offset, READ_BACK_WAIT_MS));
      if (reached === "late") {
        const headers = { "retry-after": RETRY_S };
        throw new Problem("not_ready", "this replica has not read the watcher's record yet", { headers });
      }
      const watcher = this.table.get(token.id);
      const isRightSecret = sameText(hashOfSecret(token.secret), watcher?.tokenSha256 ?? "");
      if (watcher && isRightSecret) return watcher;
    }
    throw new Problem("bad_token", "this token opens no watcher", { headers: { "www-authenticate": "Bearer" } });
  }

  /**
   * Returns the watcher as {@link open} does, after its newest records were read from the log. @throws as `open` does
   */
  async read(token: WatcherToken | null, id?: string): Promise<Watcher> {
    const watcher = await this.open(token, id);
    await this.#withLog(() => this.#tail.catchUp(watcher.partition));
    return watcher;
  }

  /** Stops a watcher. A watcher that has already ended does not change. @throws as `open` does */
  async stop(token: WatcherToken | null, id?: string): Promise<Watcher> {
    const watcher = await this.read(token, id);
    if (watcher.state !== "active") return watcher;
    await this.#append("watcher.stopped", { id: watcher.id, why: "asked", at: rfc3339(this.deps.clock.now()) });
    return watcher;
  }

  /** Checks a receiver's address and returns it in the form in which it is stored. @throws Problem bad_request */
  #checkReceiver(url: string): string {
    const verdict = this.deps.validateUrl(url);
    if (!verdict.ok) throw badField("/url", `is no receiver: ${verdict.says}`);
    const parsed = new URL(url);
    if (parsed.protocol !== "https:" && !this.deps.allowPlainHttp) throw badField("/url", "must be https");
    if (parsed.host === this.deps.ownHost) throw badField("/url", "is this service itself");
    parsed.hash = "";
    if (parsed.href.length > 2048) throw badField("/url", "is longer than 2048 characters");
    return parsed.href;
  }

  /**
   * Checks the limits on watchers.
   * @returns the watcher that has to be stopped to make room for the new one, and why; null when there is room
   * @throws Problem too_many_watchers
   */
  #checkLimits(watcherKeys: Pick<Watcher, "domain" | "platform" | "by">) {
    const { watchers_per_domain: perDomain, watchers: total } = this.#limits;
    const { domain, platform } = watcherKeys;
    const refuse = (detail: string): never => {
      throw new Problem("too_many_watchers", detail);
    };
    if (this.table.countForDomain(domain) >= perDomain) refuse(`${domain} has ${perDomain} watchers: stop one first`);
    const maxOfPlatform = PLATFORM_CAP_FACTOR * perDomain;
    if (platform !== domain && this.table.countForPlatform(platform) >= maxOfPlatform) {
      refuse(`names under ${platform} have ${maxOfPlatform} watchers together`);
    }
    const evictable = this.table.findEvictable(total, watcherKeys, this.deps.clock.now());
    return evictable === undefined
      ? refuse(`there are ${total} watchers already, and nobody has more than you`)
      : evictable;
  }

  /**
   * Counts one challenge for the client and for the receiver's platform.
   * @returns the client's limit headers
   * @throws Problem too_many_requests
   */
  #admit(client: string, platform: string): Record<string, string> {
    const takeOrRefuse = (limiter: Limiter, key: string, whose: string): LimitResult => {
      const decision = limiter.take(key);
      if (decision.ok) return decision;
      const detail = `at most ${limiter.limit.quota} receivers ${whose} are challenged in an hour`;
      throw new Problem("too_many_requests", detail, { headers: limiter.headers(decision) });
    };
    const decision = takeOrRefuse(this.#clients, client, "of one client");
    takeOrRefuse(this.#platforms, platform, `under ${platform}`);
    return this.#clients.headers(decision);
  }

  /**
   * Appends a record, then waits until it is read back and applied.
   * @throws Problem log_unavailable: the record may or may not be in the log
   */
  async #append<T extends WatcherType>(type: T, body: BodyOf<T>): Promise<AppendedRecord> {
    return this.#withLog(async () => {
      const { log, clock } = this.deps;
      const origin = { now: clock.now(), producer: "serving" };
      const [appended] = (await log.append([createWatcherRecord(type, body, origin, log.partitions)])) as [
        AppendedRecord,
      ];
      const reached = await this.#tail.reach(appended.partition, appended.offset, READ_BACK_WAIT_MS);
      if (reached !== "there")
        throw new Error(`${appended.eventId} was not read back at ${appended.partition}/${appended.offset}`);
      return appended;
    });
  }

  /** Runs `work`, which uses the log, and converts its errors. @throws Problem log_unavailable */
  async #withLog<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof ReadOnlyReplica) throw new Problem("log_unavailable", error.message);
      this.deps.logger.error({ err: error }, "the topic of watchers could not be read or written");
      const headers = { "retry-after": RETRY_S };
      throw new Problem("log_unavailable", "watchers cannot be read or written now; try again", { headers });
    }
  }
}

/**
 * Returns the current state of the watched endpoints' headline cards (those that GET /v1/check shows). The first
 * notice about each endpoint sends it as `from`.
 */
function standingIn(view: View, watched: BodyOf<"watcher.created">["watched"]) {
  const caps = new Set(watched.flatMap(({ capability_ids }) => capability_ids));
  return [...caps].flatMap((capability_id) => {
    const entry = view.entry(capability_id);
    const card = entry && headlineOf(entry);
    return card ? [{ capability_id, ...comparedMembers(cardOf(card)) }] : [];
  });
}

/** Returns a watcher in the form that the holder of its token sees. */
export function toWatcherAnswer(watcher: Watcher, view: View): WatcherAnswer {
  const endpoints = [...watcher.caps].map(([capability_id, { seq, standing }]) => ({
    ...{ capability_id, last_seq: seq, standing },
    pending: watcher.state === "active" ? countCardsAfter(view, capability_id, standing?.computed_at ?? "") : 0,
  }));
  const { failing } = watcher;
  return {
    watcher_id: watcher.id,
    url: watcher.url,
    state: watcher.state,
    says: watcher.why,
    created_at: watcher.createdAt,
    ended_at: watcher.endedAt,
    watched: watcher.watched.map(({ asked, matched, capability_ids }) => ({ asked, matched, capability_ids })),
    endpoints,
    pending: endpoints.reduce((sum, { pending }) => sum + pending, 0),
    failing:
      failing && watcher.state === "active"
        ? {
            ...{ since: failing.since, attempts: failing.attempts },
            ...{ next_attempt_at: failing.retryAt, says: failing.says },
          }
        : null,
    deliveries: watcher.late.map((one) => ({
      ...{ notice_id: one.notice, capability_id: one.capability_id, seq: one.seq, change: one.change },
      ...{ attempt: one.attempt, at: one.at, delivered: isDelivered(one), status: one.status },
      says: isDelivered(one) ? null : one.says,
    })),
  };
}

/**
 * Counts the headline cards of an endpoint that were computed after this time. A view keeps only the newest 120 of
 * each endpoint.
 */
const countCardsAfter = (view: View, cap: string, computedAt: string): number =>
  (view.entry(cap)?.letters ?? []).filter(({ at }) => at > computedAt).length;

const TOO_MANY_IDS = `makes more than ${MAX_WATCHED_IDS} endpoints of one watcher: name the tools of a server as url#tool`;

type WatchedEndpoint = BodyOf<"watcher.created">["watched"][number];

/**
 * Finds the endpoints to watch. The url of an MCP server means all of its listed tools. A url that is not in the record
 * is watched under the ids that an endpoint there would have with GET, with POST and, if the url's fragment names a
 * tool, as that tool, so that the endpoint's first card causes a notice.
 * @throws Problem bad_request with a pointer for each item that can never have a card
 */
function resolveAllWatched(view: View, watch: readonly string[], validateUrl: Egress["validate"]): WatchedEndpoint[] {
  const errors: FieldError[] = [];
  let idCount = 0;
  const watched = watch.flatMap((asked, i) => {
    let one = resolveWatched(view, asked, validateUrl);
    if (typeof one !== "string") {
      idCount += one.capability_ids.length;
      if (idCount <= MAX_WATCHED_IDS) return [one];
      one = TOO_MANY_IDS;
    }
    errors.push({ pointer: `/watch/${i}`, detail: one });
    return [];
  });
  if (errors.length === 0) return watched;
  throw new Problem("bad_request", errors.map(({ pointer, detail }) => `${pointer.slice(1)} ${detail}`).join("; "), {
    errors: errors.slice(0, 20),
  });
}

/** Returns the item to watch, or a text that tells what is wrong with it. */
function resolveWatched(view: View, asked: string, validateUrl: Egress["validate"]): WatchedEndpoint | string {
  if (isId("cap", asked)) {
    return view.has(asked) ? { asked, matched: "exact", capability_ids: [asked] } : "is not in the record";
  }
  let url: string;
  try {
    url = normaliseUrl(asked);
  } catch (error) {
    if (error instanceof BadUrl) return `is no endpoint: ${error.says}`;
    throw error;
  }
  const tool = toolInUrl(asked);
  // A listing of a tool that names no method gives it POST.
  const idsOfTool = tool === null ? [] : [capId("POST", url, tool)];
  const match = matchUrl(view, url, undefined, tool);
  if (match?.tools?.unknownTool != null) return { asked, matched: "none", capability_ids: idsOfTool };
  if (match) {
    const otherTools = match.tools ? toolsOf(view, url) : [];
    return { asked, matched: match.matched, capability_ids: [...new Set([match.cap, ...otherTools])].sort() };
  }
  const verdict = validateUrl(url);
  if (!verdict.ok) return `is never fetched: ${verdict.says}`;
  return { asked, matched: "none", capability_ids: [capId("GET", url), capId("POST", url), ...idsOfTool] };
}

/** The content of a watcher's bearer token: the watcher's id, the position of its record in the log, and the secret. */
export interface WatcherToken {
  id: string;
  /** Position of the watcher's record in the log. A replica waits until it has read the log up to this position. */
  partition: number;
  offset: number;
  secret: string;
}

/** Creates a secret of 32 random bytes. Only its hash is stored. */
const createSecret = (): string => randomBytes(32).toString("base64url");

const hashOfSecret = (secret: string): string => sha256hex(secret);

const formatToken = ({ id, partition, offset, secret }: WatcherToken): string =>
  `${id}.${partition}.${offset}.${secret}`;

const TOKEN = /^(wat_[0-9A-HJKMNP-TV-Z]{26})\.(\d{1,2})\.(\d{1,15})\.([A-Za-z0-9_-]{43})$/;

/** Parses the token of an Authorization header (RFC 6750 section 2.1); null when none has the form of {@link TOKEN}. */
export function parseBearer(headers: Headers): WatcherToken | null {
  const [scheme, text, ...rest] = (headers.get("authorization") ?? "").slice(0, 300).trim().split(/ +/);
  const match = scheme?.toLowerCase() === "bearer" && rest.length === 0 ? TOKEN.exec(text ?? "") : null;
  if (!match) return null;
  return { id: match[1]!, partition: Number(match[2]), offset: Number(match[3]), secret: match[4]! };
}
