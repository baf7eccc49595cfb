import { sha256hexAsync } from "../../../infra/canonical.ts";
import { rfc3339 } from "../../../pipelines/record/time.ts";
import { badField, Problem } from "../../http/problem.ts";
import { BriefAnswer, BriefRequest, type BriefSource } from "../../schemas/brief.ts";
import { textOnly } from "../extract/limits.ts";
import { extractDocument, fetchDocument } from "../fetching.ts";
import type { Work, WorkDeps } from "../work.ts";
import { LOOKED_AT_CHARS, type Source } from "./corpus.ts";
import { termsOf } from "./rank.ts";
import { verifiedQuotes } from "./summariser.ts";

const MAX_BODY = 32_768;
const MAX_SENTENCES = 8;
/** Longest run of a summariser, ms. */
const SUMMARY_MS = 30_000;

/** A document that was read, or why it could not be. */
type Tried = { ok: true; source: Source } | { ok: false; url: string; problem: Problem };

async function readAt(url: string, i: number, deps: WorkDeps, signal?: AbortSignal): Promise<Source> {
  const pointer = `/urls/${i}`;
  const answer = await fetchDocument(deps.egress, { url, pointer, holder: deps.holder, signal });
  const fetchedAt = deps.clock.now();
  const asked = {
    bytes: answer.body,
    type: answer.headers["content-type"],
    url: answer.url,
    part: "main" as const,
    kinds: ["pdf", "html", "text"] as const,
    most: textOnly(LOOKED_AT_CHARS),
    ...(deps.holder ? { holder: deps.holder } : {}),
    ...(signal ? { signal } : {}),
  };
  const [sha256, { text, kind, part, metadata, cut }] = await Promise.all([
    sha256hexAsync(answer.body),
    extractDocument(deps.extractor, asked, pointer),
  ]);
  return {
    about: {
      read: true,
      url,
      final_url: answer.url,
      fetched_at: rfc3339(fetchedAt),
      title: metadata.title,
      kind,
      part,
      sha256,
      bytes: answer.body.length,
      cut: cut.includes("text"),
    },
    text,
  };
}

async function tryAll(urls: readonly string[], deps: WorkDeps, signal?: AbortSignal): Promise<Tried[]> {
  const tries = urls.map(async (url, i): Promise<Tried> => {
    try {
      return { ok: true, source: await readAt(url, i, deps, signal) };
    } catch (error) {
      // An address that is never fetched is the client's mistake, and other errors are faults of ours: both end the work.
      if (!(error instanceof Problem) || !["not_fetched", "not_extracted"].includes(error.code)) throw error;
      return { ok: false, url, problem: error };
    }
  });
  // Wait for all fetches before throwing, so that none runs on after the response.
  await Promise.allSettled(tries);
  return Promise.all(tries);
}

/** Reads the addresses of a request. @throws Problem not_fetched when none could be read, with the reason of each */
async function sourcesAt(
  urls: readonly string[],
  deps: WorkDeps,
  signal?: AbortSignal,
): Promise<{ read: Source[]; listed: BriefSource[] }> {
  const tried = await tryAll(urls, deps, signal);
  const read = tried.flatMap((one) => (one.ok ? [one.source] : []));
  if (read.length === 0) {
    const errors = tried.flatMap((one) => (one.ok ? [] : (one.problem.extra.errors ?? [])));
    throw new Problem("not_fetched", "none of the addresses could be read", { errors });
  }
  const listed = tried.map((one): BriefSource => {
    if (one.ok) return one.source.about;
    const says = one.problem.extra.errors?.[0]?.detail ?? one.problem.message;
    return { read: false, url: one.url, says };
  });
  return { read, listed };
}

/** Returns all documents of the corpus. @throws Problem unavailable */
async function ownSources({ corpus }: WorkDeps): Promise<readonly Source[]> {
  try {
    return await corpus.sources();
  } catch {
    throw new Problem("unavailable", "the documentation cannot be read now", {
      headers: { "retry-after": "10" },
    });
  }
}

/** Runs the summariser with a timeout and verifies its quotes. @throws Problem unavailable */
async function summaryOf(question: string, sources: readonly Source[], deps: WorkDeps, signal?: AbortSignal) {
  const patience = AbortSignal.timeout(SUMMARY_MS);
  const off = signal ? AbortSignal.any([signal, patience]) : patience;
  const late = new Promise<never>((_, reject) => {
    off.addEventListener("abort", () => reject(new Error("called off")), { once: true });
  });
  // If the race below never starts, the rejection must not count as unhandled.
  late.catch(() => undefined);
  const evidence = sources.map(({ about: { url, kind }, text }) => ({ url, text, wraps: kind !== "html" }));
  try {
    const given = await Promise.race([deps.summariser.summarise(question, evidence, MAX_SENTENCES, off), late]);
    const asked = given.slice(0, MAX_SENTENCES);
    const quotes = verifiedQuotes(asked, evidence);
    return { quotes, notQuoted: asked.length - quotes.length };
  } catch {
    throw new Problem("unavailable", "the brief cannot be made now", { headers: { "retry-after": "10" } });
  }
}

/** The work of POST /v1/research/brief (docs/paid-operations.md). */
export const researchBrief: Work<BriefRequest, BriefAnswer> = {
  id: "researchBrief",
  method: "POST",
  path: "/v1/research/brief",
  summary: "A question answered in sentences of the sources, each quoted word for word and cited",
  body: BriefRequest,
  example: { question: "What is a delivery rate?", urls: ["https://example.com/"] },
  answer: BriefAnswer,
  maxBodyBytes: MAX_BODY,
  errors: ["not_fetched", "nothing_relevant", "unavailable"],
  async run({ question, urls }, deps, signal) {
    if (termsOf(question).length === 0) throw badField("/question", "has no word that can be looked for");
    const own = urls ? null : await ownSources(deps);
    const { read, listed } = own ? { read: own, listed: [] } : await sourcesAt(urls!, deps, signal);
    const { quotes, notQuoted } = await summaryOf(question, read, deps, signal);
    if (quotes.length === 0) {
      throw new Problem("nothing_relevant", "no sentence in the sources says anything about the question");
    }
    const sentences = quotes.map(({ source, text, offset }) => {
      const { url, sha256 } = read[source]!.about;
      return { text, cites: { url, sha256, offset } };
    });
    const cited = [...new Set(quotes.map(({ source }) => source))].map((source) => read[source]!.about);
    const { name, says } = deps.summariser;
    return {
      schema: "svc.brief.v1",
      question,
      asked_of: urls
        ? { what: "urls", says: "the addresses of the request, and nothing else" }
        : { what: "corpus", says: deps.corpus.says },
      summariser: { name, says },
      sentences,
      not_quoted: notQuoted,
      sources: own ? cited : listed,
      answered_at: rfc3339(deps.clock.now()),
    };
  },
};
