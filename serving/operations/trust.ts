import { logId } from "../../infra/tree/checkpoint.ts";
import { SignedDispute } from "../../pipelines/corrections/dispute.ts";
import { CardBundle, makeCardBundle, readLeafText } from "../../pipelines/published/card-bundle.ts";
import { NO_CARD_TEXT } from "../../pipelines/published/index-lines.ts";
import type { Snapshot } from "../../pipelines/published/reader.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import { GradeLeaf, IndexLine } from "../../pipelines/record/leaf.ts";
import { dayOf } from "../../pipelines/record/time.ts";
import { correctionsOf } from "../answers/corrections.ts";
import { failuresOf } from "../answers/failures.ts";
import type { CachedAnswer } from "../http/answer-cache.ts";
import { codingHeaders, compressChunks, linesToChunks, negotiateCoding } from "../http/encoding.ts";
import { Problem, queryOf, validate } from "../http/problem.ts";
import { etagOfText, JSON_TYPE, matchesEtag, NDJSON_TYPE, reply, uncachedJson } from "../http/reply.ts";
import { readJson } from "../http/request.ts";
import { CheckAnswer, CheckArguments, CheckQuery } from "../schemas/check.ts";
import {
  CardProof,
  DisputeReceipt,
  FailuresAnswer,
  FailuresQuery,
  FeedQuery,
  TrustParams,
  TrustResponse,
} from "../schemas/trust.ts";
import { publishedDefects } from "../tables/defects.ts";
import {
  type CardEntry,
  cardOf,
  type Entry,
  headlineOf,
  isListed,
  type ListedEntry,
  leafOf,
  unpackLeaf,
} from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { CACHE_ONE_MINUTE, type Call, type Operation, replyJson } from "./operation.ts";

/** Time for which a check answer may be cached, seconds. */
const MAX_AGE_S = 60;

/** GET /v1/check. The signed bytes are cached for a minute; the header `Age` is their age. */
export const check: Operation = {
  id: "check",
  needsRecord: true,
  path: "/v1/check",
  summary: "What the record holds about a paid endpoint, before it is paid",
  query: CheckQuery,
  answer: CheckAnswer,
  type: JSON_TYPE,
  tag: "check",
  cache: `public, max-age=${MAX_AGE_S}`,
  responseHeaders: ["Age"],
  tool: {
    name: "check_grade",
    title: "Check before you pay",
    description:
      "What the record holds about a paid endpoint: its letter and what measured it, what its newest 402 asked, defects of its listing, our corrections, and with pay_to what is known of that address. Signed. A url that nobody asked about is UNRATED (unknown, not bad) and put in line for a free handshake.",
    async run({ checks }, input, client) {
      return JSON.parse(
        (await checks.answer(validate(CheckArguments, input), client)).bytes.toString("utf8"),
      ) as object;
    },
  },
  // A cached answer costs nothing; while this process is overloaded, `run` refuses to make others.
  evenWhenOverloaded: true,
  errors: ["unavailable"],
  limiter: (service) => service.checkLimiter,
  run(call) {
    const query = validate(CheckQuery, queryOf(call.query));
    const { checks } = call.service;
    const cached = checks.getCached(query, call.client);
    if (cached) return respond(call, cached);
    call.refuseWhenOverloaded();
    const answer = checks.answer(query, call.client);
    return answer instanceof Promise ? answer.then((made) => respond(call, made)) : respond(call, answer);
  },
};

function respond({ service, request, limitHeaders }: Call, answer: CachedAnswer): Response {
  const age = Math.min(MAX_AGE_S, Math.floor(service.checks.age(answer) / 1000));
  return reply(request, answer.bytes, {
    type: JSON_TYPE,
    cache: check.cache!,
    etag: answer.etag,
    headers: { age: String(age), ...limitHeaders },
  });
}

/** Returns the answer of GET /v1/trust/{id}. @throws Problem unknown_capability if the id is not in the record */
function trustOf(view: View, cap: string): TrustResponse {
  const entry = view.entry(cap);
  if (!entry && !view.has(cap)) throw new Problem("unknown_capability", `${cap} is not in the record`);
  const { corrections, disputes } = correctionsOf(view, cap);
  return {
    schema: "svc.trust.v1",
    capability_id: cap,
    scorecards: (entry?.cards ?? []).map(cardOf),
    disputes: [...disputes],
    corrections: [...corrections],
  };
}

/** Range of positions in the log that one answer of the feed covers, the end exclusive. */
interface FeedSpan {
  from: number;
  to: number;
}

const cursorOf = (origin: string, position: number): string => `${logId(origin)}:${position}`;

/** Retry-After, seconds. A replica that is behind has probably caught up by then. */
const RETRY_S = 2;

/**
 * Returns the span of one request: from its cursor, or the beginning, to the current size of the tree.
 * @throws Problem bad_cursor for a cursor of another log; not_ready for a cursor beyond the tree of this replica.
 * Either another replica that is ahead returned it, or the log was rolled back since; an empty answer would hide such
 * a rollback.
 */
function spanOf(cursor: string | undefined, head: { origin: string; size: number }): FeedSpan {
  if (cursor === undefined) return { from: 0, to: head.size };
  const [id, position] = cursor.split(":") as [string, string];
  if (id !== logId(head.origin)) {
    const detail = `this log is ${logId(head.origin)}, the cursor belongs to ${id}`;
    throw new Problem("bad_cursor", detail, { errors: [{ pointer: "/cursor", detail }] });
  }
  const from = Number(position);
  if (from > head.size) {
    const detail = `the cursor is at ${from}, this replica has read ${head.size} leaves`;
    throw new Problem("not_ready", detail, {
      errors: [{ pointer: "/cursor", detail }],
      headers: { "retry-after": String(RETRY_S) },
    });
  }
  return { from, to: head.size };
}

/** Yields the verified grade leaves (entries of the log with a card) of the span, one a line, unchanged. */
async function* gradeLines({ reader }: Snapshot, { from, to }: FeedSpan): AsyncGenerator<string> {
  for await (const { bytes, leaf } of reader.leaves(from, to)) if (leaf.kind === "grade") yield bytes.toString("utf8");
}

/** Returns the etag of a span, without the coding. Leaves never change, so the bytes between two positions never do. */
const feedTag = (origin: string, { from, to }: FeedSpan): string => `${logId(origin)}-${from}-${to}`;

/** Returns the `Link` to the rest of the feed, from the first position after this answer. */
const nextLink = (baseUrl: string, origin: string, { to }: FeedSpan): string =>
  `<${baseUrl}/v1/trust/feed?cursor=${cursorOf(origin, to)}>; rel="next"`;

function snapshotOf({ service }: Call): Snapshot {
  const { snapshot } = service.follower;
  if (snapshot) return snapshot;
  throw new Problem("not_ready", "nothing has been published yet, or it is still being read", {
    headers: { "retry-after": "2" },
  });
}

/** Returns a stream of lines in the content coding that the client prefers. */
function replyLines(
  { service, request, client, limitHeaders }: Call,
  lines: AsyncIterable<string> | Iterable<string>,
  { cache, tag, headers }: { cache: string; tag: string; headers?: Record<string, string> },
): Response {
  const coding = negotiateCoding(request.headers.get("accept-encoding"));
  const etag = `"${tag}-${coding}"`;
  // Nothing is read for an answer without a body.
  const hasNoBody = request.method === "HEAD" || matchesEtag(request, etag);
  const body = hasNoBody ? null : service.streams.stream(client, compressChunks(linesToChunks(lines), coding));
  return reply(request, body, {
    type: NDJSON_TYPE,
    cache,
    etag,
    headers: { ...codingHeaders(coding), ...headers, ...limitHeaders },
  });
}

/**
 * Returns one line of the market index: an endpoint and its headline card, which GET /v1/check shows. Members are in
 * the order of RFC 8785, so that the text equals the line in the published shards.
 */
function indexLine(entry: ListedEntry): IndexLine {
  const headline = headlineOf(entry);
  const leaf = headline ? leafOf(headline) : null;
  const { listing } = entry;
  return {
    band: leaf?.card.band ?? "UNRATED",
    capability_id: entry.cap,
    card: leaf?.card ?? null,
    class: listing.class,
    defects: publishedDefects(entry),
    description: listing.description,
    leaf: headline?.leaf ?? null,
    method: listing.method,
    ...(listing.offers && { offers: listing.offers }),
    sample_count: leaf ? (leaf.card.sample_count ?? null) : 0,
    tier: leaf && headline?.measured ? leaf.card.tier : null,
    tool: listing.tool,
    url: listing.url,
    why: leaf?.why ?? NO_CARD_TEXT,
  };
}

/** Yields every listed endpoint of the view, one JSON text a line. Later views do not change the result. */
function* indexLines(view: View): Generator<string> {
  for (const entry of view.entries.values()) if (isListed(entry)) yield JSON.stringify(indexLine(entry));
}

const market: Operation = {
  id: "trustIndex",
  needsRecord: true,
  path: "/v1/trust/index",
  summary: "One line per listed paid endpoint: band, tier, sample count, defects, offers and the signed card",
  answer: IndexLine,
  type: NDJSON_TYPE,
  tag: "record",
  cache: CACHE_ONE_MINUTE,
  errors: ["unavailable"],
  limiter: (service) => service.readLimiter,
  run(call) {
    const { view } = call.service.follower;
    snapshotOf(call);
    return replyLines(call, indexLines(view), { cache: CACHE_ONE_MINUTE, tag: `${logId(view.origin)}-${view.size}` });
  },
};

const feed: Operation = {
  id: "trustFeed",
  needsRecord: true,
  path: "/v1/trust/feed",
  summary: "Every grade as published, resumable from a cursor",
  query: FeedQuery,
  answer: GradeLeaf,
  type: NDJSON_TYPE,
  tag: "record",
  cache: "no-cache",
  responseHeaders: ["Link"],
  errors: ["bad_cursor", "unavailable"],
  limiter: (service) => service.readLimiter,
  run(call) {
    const { cursor } = validate(FeedQuery, queryOf(call.query));
    const snapshot = snapshotOf(call);
    const span = spanOf(cursor, snapshot.head);
    return replyLines(call, gradeLines(snapshot, span), {
      cache: feed.cache!,
      tag: feedTag(snapshot.head.origin, span),
      headers: { link: nextLink(call.service.baseUrl, snapshot.head.origin, span) },
    });
  },
};

const trustById: Operation = {
  id: "trust",
  needsRecord: true,
  path: "/v1/trust/:id",
  summary: "The signed cards of one endpoint, the seller's disputes and our corrections",
  params: TrustParams,
  answer: TrustResponse,
  type: JSON_TYPE,
  tag: "record",
  cache: CACHE_ONE_MINUTE,
  errors: ["unknown_capability"],
  limiter: (service) => service.readLimiter,
  run(call) {
    const { id } = validate(TrustParams, call.params);
    return replyJson(call, JSON.stringify(trustOf(call.service.follower.view, id)), CACHE_ONE_MINUTE);
  },
};

/** Limits on the uncached files that one answer may read: enough for two months of a small market. */
const FAILURES_READ_LIMITS = { maxFiles: 64, maxBytes: 64 * 1024 * 1024 };

/** GET /v1/trust/{id}/failures (docs/evidence.md). */
const failures: Operation = {
  id: "failures",
  needsRecord: true,
  path: "/v1/trust/:id/failures",
  summary: "Paid calls of one endpoint that failed, newest first: what was expected, what came, and the evidence",
  params: TrustParams,
  query: FailuresQuery,
  answer: FailuresAnswer,
  type: JSON_TYPE,
  tag: "record",
  cache: CACHE_ONE_MINUTE,
  errors: ["unknown_capability", "unavailable"],
  limiter: (service) => service.readLimiter,
  async run(call) {
    const { id } = validate(TrustParams, call.params);
    const { cursor, limit } = validate(FailuresQuery, queryOf(call.query));
    const { follower, paidRows, baseUrl, logger } = call.service;
    if (!follower.view.has(id)) throw new Problem("unknown_capability", `${id} is not in the record`);
    try {
      const page = await failuresOf(follower.view, id, paidRows, {
        cursor,
        limit,
        baseUrl,
        ...FAILURES_READ_LIMITS,
      });
      const answer: FailuresAnswer = { schema: "svc.trust.failures.v1", capability_id: id, ...page };
      return replyJson(call, JSON.stringify(answer), CACHE_ONE_MINUTE);
    } catch (error) {
      if (error instanceof Problem) throw error;
      logger.warn({ err: error, cap: id }, "evidence could not be read for an answer");
      throw new Problem("unavailable", "the evidence cannot be read now", { headers: { "retry-after": "5" } });
    }
  },
};

/** Returns the headline card of an endpoint, and its entry. @throws Problem unknown_capability, not_found */
function headlineIn(view: View, id: string): { entry: Entry; headline: CardEntry } {
  if (!view.has(id)) throw new Problem("unknown_capability", `${id} is not in the record`);
  const entry = view.entry(id);
  const headline = entry ? headlineOf(entry) : null;
  if (!entry || !headline) throw new Problem("not_found", `no card of ${id} is published yet`);
  return { entry, headline };
}

/** GET /v1/trust/{id}/bundle (docs/card-bundle.md). */
const bundle: Operation = {
  id: "cardBundle",
  needsRecord: true,
  path: "/v1/trust/:id/bundle",
  summary: "The headline card of one endpoint with all that proves it offline, as one file",
  params: TrustParams,
  answer: CardBundle,
  type: JSON_TYPE,
  tag: "record",
  cache: CACHE_ONE_MINUTE,
  responseHeaders: ["Content-Disposition"],
  errors: ["unknown_capability", "not_found", "not_ready"],
  limiter: (service) => service.readLimiter,
  async run(call) {
    const { id } = validate(TrustParams, call.params);
    const { follower, jwks } = call.service;
    const { headline } = headlineIn(follower.view, id);
    // The view may be older than the snapshot, never newer, so the snapshot has every leaf of the view.
    const leafOfCard = { index: headline.leaf, leaf: unpackLeaf(headline.packed), capability_id: id };
    const cardBundle = await makeCardBundle(snapshotOf(call), leafOfCard, jwks());
    return reply(call.request, JSON.stringify(cardBundle), {
      ...{ type: JSON_TYPE, cache: CACHE_ONE_MINUTE, etag: etagOfText(`${cardBundle.checkpoint}${cardBundle.leaf}`) },
      headers: { "content-disposition": `attachment; filename="${id}.touchstone"`, ...call.limitHeaders },
    });
  },
};

/** GET /v1/trust/{id}/proof (docs/card-bundle.md). */
const proof: Operation = {
  id: "cardProof",
  needsRecord: true,
  path: "/v1/trust/:id/proof",
  summary: "What a browser proves the headline card of one endpoint from, and makes a letter again from",
  params: TrustParams,
  answer: CardProof,
  type: JSON_TYPE,
  tag: "record",
  cache: CACHE_ONE_MINUTE,
  errors: ["unknown_capability", "not_found", "not_ready"],
  limiter: (service) => service.readLimiter,
  async run(call) {
    const { id } = validate(TrustParams, call.params);
    const { follower, jwks } = call.service;
    const { entry, headline } = headlineIn(follower.view, id);
    const { evidence } = follower.view;
    const snapshot = snapshotOf(call);
    // The newest headline card that was computed by the end of the newest day with published evidence.
    const newestClosedDay = evidence.newestDay ?? "";
    const gradedLeaf = entry.letters.findLast(({ at }) => dayOf(new Date(at)) <= newestClosedDay)?.leaf;
    const bundleAt = async (index: number, leaf?: string) =>
      makeCardBundle(
        snapshot,
        { index, leaf: leaf ?? (await readLeafText(snapshot, index)), capability_id: id },
        jwks(),
      );
    const cardProof: CardProof = {
      ...{ schema: "svc.card.proof.v1", capability_id: id },
      bundle: await bundleAt(headline.leaf, unpackLeaf(headline.packed)),
      graded: gradedLeaf === undefined ? null : await bundleAt(gradedLeaf),
      evidence: evidence.filesOf(bucketOf(id)).map(({ day, key, bytes, rows }) => ({ day, key, bytes, rows })),
    };
    return replyJson(call, JSON.stringify(cardProof), CACHE_ONE_MINUTE);
  },
};

export const TRUST: readonly Operation[] = [trustById, failures, bundle, proof, market, feed];

/** Longest body: 2,000 characters of text, each escaped, and the other members of a dispute. */
const MAX_DISPUTE_BYTES = 32_768;

/** POST /v1/trust/{id}/disputes: a seller's dispute, signed by its payTo (docs/corrections.md). */
export const disputes: Operation = {
  id: "dispute",
  needsRecord: true,
  method: "POST",
  path: "/v1/trust/:id/disputes",
  summary: "A seller's dispute, signed by the address that the endpoint is paid at",
  params: TrustParams,
  body: SignedDispute,
  answer: DisputeReceipt,
  type: JSON_TYPE,
  tag: "record",
  status: 201,
  errors: ["unknown_capability", "not_the_payee", "already_there", "too_many_disputes", "log_unavailable"],
  limiter: (service) => service.disputeLimiter,
  async run({ service, request, params, limitHeaders }) {
    const { id } = validate(TrustParams, params);
    const receipt = await service.disputes.put(id, await readJson(request.body, MAX_DISPUTE_BYTES));
    return uncachedJson(receipt, 201, { location: `/v1/trust/${id}`, ...limitHeaders });
  },
};
