import type { HTTPResponse } from "h3";
import { logId } from "../../infra/tree/checkpoint.ts";
import { GradeLeaf, IndexLine } from "../../pipelines/record/leaf.ts";
import { feedTag, gradeLines, nextLink, spanOf } from "../answers/feed.ts";
import { indexLines } from "../answers/market.ts";
import { trustOf } from "../answers/trust.ts";
import { codingHeaders, linesToChunks, negotiate, packed } from "../http/encoding.ts";
import { Problem, queryOf, validated } from "../http/problem.ts";
import { JSON_TYPE, matchesEtag, NDJSON_TYPE, reply } from "../http/reply.ts";
import type { Call, Operation } from "../operations.ts";
import { FeedQuery } from "../schemas/feed.ts";
import { TrustParams, TrustResponse } from "../schemas/trust.ts";
import type { Snapshot } from "../tables/tree.ts";
import { MINUTE, replyJson } from "./json-text.ts";

function snapshotOf({ service }: Call): Snapshot {
  const { snapshot } = service.follower;
  if (snapshot) return snapshot;
  throw new Problem("not_ready", "nothing was published yet, or it is still being read", {
    headers: { "retry-after": "2" },
  });
}

/** A stream of lines in the coding that the client takes best. */
function ndjson(
  { request, limitHeaders }: Call,
  lines: AsyncIterable<string> | Iterable<string>,
  { cache, tag, headers }: { cache: string; tag: string; headers?: Record<string, string> },
): HTTPResponse {
  const coding = negotiate(request.headers.get("accept-encoding"));
  const etag = `"${tag}-${coding}"`;
  // Nothing is read for an answer without a body.
  const empty = request.method === "HEAD" || matchesEtag(request, etag);
  const body = empty ? null : ReadableStream.from(packed(linesToChunks(lines), coding));
  return reply(request, body, {
    type: NDJSON_TYPE,
    cache,
    etag,
    headers: { ...codingHeaders(coding), ...headers, ...limitHeaders },
  });
}

const index: Operation = {
  id: "trustIndex",
  path: "/v1/trust/index",
  summary: "One line per listed paid endpoint: band, tier, sample count, defects and the signed card",
  answer: IndexLine,
  type: NDJSON_TYPE,
  limiter: (service) => service.readLimiter,
  run(call) {
    const { view } = call.service.follower;
    snapshotOf(call);
    return ndjson(call, indexLines(view), { cache: MINUTE, tag: `${logId(view.origin)}-${view.size}` });
  },
};

const feed: Operation = {
  id: "trustFeed",
  path: "/v1/trust/feed",
  summary: "Every grade as published, resumable from a cursor",
  query: FeedQuery,
  answer: GradeLeaf,
  type: NDJSON_TYPE,
  limiter: (service) => service.readLimiter,
  run(call) {
    const { cursor } = validated(FeedQuery, queryOf(call.query));
    const snapshot = snapshotOf(call);
    const span = spanOf(cursor, snapshot.head);
    return ndjson(call, gradeLines(snapshot, span), {
      cache: "no-cache",
      tag: feedTag(snapshot.head.origin, span),
      headers: { link: nextLink(call.service.baseUrl, snapshot.head.origin, span) },
    });
  },
};

const byId: Operation = {
  id: "trust",
  path: "/v1/trust/:id",
  summary: "The signed cards of one endpoint, the seller's disputes and our corrections",
  params: TrustParams,
  answer: TrustResponse,
  type: JSON_TYPE,
  limiter: (service) => service.readLimiter,
  run(call) {
    const { id } = validated(TrustParams, call.params);
    return replyJson(call, JSON.stringify(trustOf(call.service.follower.view, id)), MINUTE);
  },
};

export const TRUST: readonly Operation[] = [byId, index, feed];
