import { parseBearer, toWatcherAnswer } from "../answers/watchers.ts";
import { validate } from "../http/problem.ts";
import { JSON_TYPE, uncachedJson } from "../http/reply.ts";
import { readJson } from "../http/request.ts";
import { StopRequest, WatcherAnswer, WatcherMade, WatcherParams, WatcherRequest } from "../schemas/watchers.ts";
import type { Call, Operation } from "./operation.ts";

/** Longest body: 101 addresses of 2,048 characters, each of up to four bytes. */
const MAX_BODY_BYTES = 1024 * 1024;

/** Builds an answer that only the holder of a watcher's token may see: no cache keeps it. */
const replyPrivately = (
  { limitHeaders }: Pick<Call, "limitHeaders">,
  status: number,
  value: object,
  location?: string,
) => uncachedJson(value, status, { ...(location === undefined ? {} : { location }), ...limitHeaders });

/** POST /v1/watchers: a receiver that echoes its challenge becomes a watcher (docs/watchers.md). */
const createOperation: Operation = {
  id: "watcherCreate",
  needsRecord: true,
  method: "POST",
  path: "/v1/watchers",
  summary: "A receiver is told when the card of a watched endpoint changes",
  body: WatcherRequest,
  answer: WatcherMade,
  type: JSON_TYPE,
  status: 201,
  tag: "watch",
  errors: ["receiver_failed", "too_many_watchers", "log_unavailable"],
  limiter: (service) => service.readLimiter,
  async run({ service, request, client }) {
    const value = await readJson(request.body, MAX_BODY_BYTES);
    const { watcher, token, limitHeaders } = await service.watchers.create(validate(WatcherRequest, value), client);
    const { id, url, createdAt, watched } = watcher;
    const created: WatcherMade = {
      ...{ watcher_id: id, token, url, state: "active", created_at: createdAt },
      watched: watched.map(({ asked, matched, capability_ids }) => ({ asked, matched, capability_ids })),
    };
    return replyPrivately({ limitHeaders }, 201, created, `/v1/watchers/${id}`);
  },
};

/** POST /v1/watchers/stop: the token alone names the watcher. Stopping twice is no error. */
const stopOperation: Operation = {
  id: "watcherStop",
  method: "POST",
  path: "/v1/watchers/stop",
  summary: "Stops the watcher of the bearer token",
  body: StopRequest,
  answer: WatcherAnswer,
  type: JSON_TYPE,
  tag: "watch",
  bearer: true,
  errors: ["bad_token", "not_ready", "log_unavailable"],
  limiter: (service) => service.readLimiter,
  async run(call) {
    const { service, request } = call;
    const value = await readJson(request.body, MAX_BODY_BYTES, {});
    const { watcher_id: id } = validate(StopRequest, value);
    const watcher = await service.watchers.stop(parseBearer(request.headers), id);
    return replyPrivately(call, 200, toWatcherAnswer(watcher, service.follower.view));
  },
};

/** GET /v1/watchers/{watcher_id} with the token. */
const readOperation: Operation = {
  id: "watcher",
  needsRecord: true,
  path: "/v1/watchers/:watcher_id",
  summary: "A watcher, its deliveries of late and what waits, for the holder of its token",
  params: WatcherParams,
  answer: WatcherAnswer,
  type: JSON_TYPE,
  tag: "watch",
  bearer: true,
  errors: ["bad_token", "log_unavailable"],
  limiter: (service) => service.readLimiter,
  async run(call) {
    const { service, request, params } = call;
    const { watcher_id: id } = validate(WatcherParams, params);
    const watcher = await service.watchers.read(parseBearer(request.headers), id);
    return replyPrivately(call, 200, toWatcherAnswer(watcher, service.follower.view));
  },
};

export const WATCHERS: readonly Operation[] = [createOperation, readOperation, stopOperation];
