import { canonicalText, sha256hex } from "../infra/canonical.ts";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { parseUrl } from "../infra/url.ts";
import { createDraft } from "../pipelines/1-observe/recorder.ts";
import { NotInRecord } from "../pipelines/corrections/errors.ts";
import type { LogHistoryReader } from "../pipelines/corrections/reading.ts";
import { isId } from "../pipelines/record/ids.ts";
import { normaliseUrl, toolInUrl } from "../pipelines/record/url.ts";
import { recorderOf, withRecord } from "./opening.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/**
 * Whether one source (a catalogue, a seller's document or an operator's file) lists an endpoint, by its newest record.
 */
interface SourceState {
  /** Name of the source in the record, such as its url; `402` is the endpoint's own 402. */
  source: string;
  /** Id of the endpoint within the source. */
  source_id: string;
  /** `delisted`: the source listed it earlier and no longer does. */
  state: "listed" | "delisted";
  /** Time of the source's newest record about the endpoint, RFC 3339. */
  at: string;
}

/** An endpoint with every source that ever listed it. */
interface ListedEndpoint {
  /** Id of the endpoint: a hash of url, method and tool. */
  capability_id: string;
  url: string;
  method: string | null;
  /** Name of the tool, for an endpoint of an MCP server. */
  tool: string | null;
  /** Time of the first record about the endpoint in the topic `listings`, RFC 3339. */
  first_listed: string;
  /** Did its seller ever list it, on its own host or under its payee's signature? */
  seller_listed: boolean;
  sources: SourceState[];
}

const NEXT = "next: touchstone listings list";

const textOf = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);

/** Reads every endpoint that the topic `listings` names, sorted by url. */
async function readEndpoints(reading: LogHistoryReader): Promise<ListedEndpoint[]> {
  const endpoints = new Map<string, ListedEndpoint & { bySource: Map<string, SourceState> }>();
  for (let partition = 0; partition < reading.partitions; partition++) {
    for await (const { type, body, key, observedAt } of reading.readFacts("listings", partition, null)) {
      const [source, source_id] = [textOf(body.source), textOf(body.source_id) ?? ""];
      if (source === null || (type !== "listing" && type !== "delisting")) continue;
      const endpoint = endpoints.get(key) ?? {
        ...{ capability_id: key, url: "", method: null, tool: null, first_listed: observedAt },
        ...{ seller_listed: false, sources: [], bySource: new Map<string, SourceState>() },
      };
      endpoints.set(key, endpoint);
      if (type === "listing") {
        const claims = (body.claims ?? {}) as Record<string, unknown>;
        endpoint.url = textOf(body.normalised_url) ?? endpoint.url;
        endpoint.method = textOf(claims.method) ?? endpoint.method;
        endpoint.tool = textOf(claims.tool) ?? endpoint.tool;
        endpoint.seller_listed ||= source !== "402" && body.seller_controlled === true;
      }
      const previousState = endpoint.bySource.get(`${source} ${source_id}`);
      const state = type === "listing" ? ("listed" as const) : ("delisted" as const);
      if (!previousState || previousState.at <= observedAt)
        endpoint.bySource.set(`${source} ${source_id}`, { source, source_id, state, at: observedAt });
      if (observedAt < endpoint.first_listed) endpoint.first_listed = observedAt;
    }
  }
  return [...endpoints.values()]
    .map(({ bySource, ...one }) => ({ ...one, sources: [...bySource.values()] }))
    .sort((a, b) => (a.url === b.url ? 0 : a.url < b.url ? -1 : 1));
}

/** Is the endpoint listed now? Its own 402 counts only if its seller never listed it (sql/queries/listings). */
const isListed = ({ sources, seller_listed }: ListedEndpoint): boolean =>
  sources.some(({ source, state }) => state === "listed" && (source !== "402" || !seller_listed));
const nameOf = ({ method, url, tool }: ListedEndpoint): string => `${method ?? "GET"} ${url}${tool ? `#${tool}` : ""}`;

/** Returns a host in the form in which urls have it. @throws Failure `usage` for a text that is no host */
function parseHost(text: string): string {
  const url = /[/?#@]/.test(text) ? null : parseUrl(`https://${text}`);
  if (!url) throw new Failure("usage", `--host: expected a host such as seller.example or 10.0.0.1:8080, not ${text}`);
  return url.host;
}

/** `touchstone listings list`: prints every endpoint that a source lists now. @throws Failure `usage` */
export async function listListings(config: Config, options: OptionsOf<"listings list">): Promise<void> {
  const host = options.host === undefined ? null : parseHost(options.host);
  await withRecord(config, async (reading) => {
    const all = await readEndpoints(reading);
    const shownEndpoints = all.filter(
      (one) => (options.all || isListed(one)) && (host === null || parseUrl(one.url)?.host === host),
    );
    const lines = shownEndpoints.map(
      (one) => `${one.capability_id}  ${isListed(one) ? "" : "(delisted) "}${nameOf(one)}`,
    );
    const next = shownEndpoints[0]
      ? `next: touchstone listings show ${shownEndpoints[0].capability_id}`
      : "next: touchstone listings add --help";
    print(options, { endpoints: shownEndpoints }, [
      ...lines,
      `${shownEndpoints.length} of ${all.length} endpoints`,
      next,
    ]);
  });
}

/**
 * Returns the endpoint with this capability id, or all endpoints at this url; of an MCP server only the tool that the
 * fragment names, if it has one.
 * @throws NotInRecord
 */
async function findListed(reading: LogHistoryReader, endpoint: string): Promise<ListedEndpoint[]> {
  const url = isId("cap", endpoint) ? null : normaliseUrl(endpoint);
  const found = (await readEndpoints(reading)).filter((one) =>
    url === null ? one.capability_id === endpoint : one.url === url,
  );
  const tool = url !== null && found.some((one) => one.tool !== null) ? toolInUrl(endpoint) : null;
  const named = tool === null ? found : found.filter((one) => one.tool === tool);
  if (named.length === 0) throw new NotInRecord(`${endpoint} was never listed`);
  return named;
}

/** `touchstone listings show`: prints which sources list an endpoint, and since when. @throws NotInRecord, BadUrl */
export const showListing = (config: Config, endpoint: string, options: OptionsOf<"listings show">): Promise<void> =>
  withRecord(config, async (reading) => {
    const found = await findListed(reading, endpoint);
    const lines = found.flatMap((one) => [
      `${one.capability_id}  ${nameOf(one)}`,
      `  first listed ${one.first_listed}`,
      ...one.sources.map(
        ({ source, source_id, state, at }) => `  ${state.padEnd(8)} by ${source} since ${at} as ${source_id}`,
      ),
    ]);
    print(options, { endpoints: found }, [...lines, NEXT]);
  });

/**
 * `touchstone listings remove`: records that an endpoint is no longer listed, for every source that lists it.
 * Observations stay in the record. A source that goes on naming the endpoint lists it again at its next read;
 * `observe.exclude` ends all paid calls to a host.
 * @throws NotInRecord, BadUrl
 */
export const removeListing = (config: Config, endpoint: string, options: OptionsOf<"listings remove">): Promise<void> =>
  withRecord(config, async (reading, parts) => {
    const found = (await findListed(reading, endpoint)).filter(isListed);
    const at = systemClock.now();
    const drafts = found.flatMap((one) =>
      one.sources.flatMap(({ source, source_id, state, at: since }) => {
        const body = { source, source_id, reason: options.says };
        // The record's id follows from `slot`. An endpoint that is listed again has another `since`, so removing it
        // then is a new record.
        const slot = sha256hex(canonicalText({ ...body, since }));
        return state === "listed" ? [createDraft({ type: "delisting", cap: one.capability_id, slot, at, body })] : [];
      }),
    );
    if (drafts.length > 0) await recorderOf(parts).append(drafts);
    const endpointIds = found.map(({ capability_id }) => capability_id);
    const lines = endpointIds.map((cap) => `removed ${cap}`);
    const noRemovalText = ["no source lists this endpoint now: nothing was changed"];
    print(options, { removed: endpointIds, sources: drafts.length }, [
      ...(lines.length > 0 ? lines : noRemovalText),
      NEXT,
    ]);
  });
