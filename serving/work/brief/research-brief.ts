import { sha256hexAsync } from "../../../infra/canonical.ts";
import { rfc3339 } from "../../../pipelines/record/time.ts";
import { badField, Problem, type ProblemCode } from "../../http/problem.ts";
import { BriefAnswer, type BriefQuotation, BriefRequest, type BriefSource } from "../../schemas/brief.ts";
import { Extracted } from "../../schemas/extract.ts";
import { extractDocument, type FetchedAnswer, fetchDocument } from "../fetching.ts";
import type { Work, WorkDeps } from "../work.ts";
import { BRIEF_EXTRACT_LIMITS, headingRangesOf, type Source } from "./corpus.ts";
import { renderBrief } from "./page.ts";
import { askRecord } from "./record.ts";
import { type VerifiedQuote, verifyDraft } from "./summariser.ts";
import { soughtWordsOf } from "./terms.ts";

const MAX_BODY_BYTES = 32_768;
const MAX_CLAIMS = 8;
/** Longest run of a summariser, ms. */
const SUMMARY_TIMEOUT_MS = 30_000;
/**
 * Largest number of bytes of all documents that one brief extracts. With the limits of each document, and of ranking, a
 * brief takes at most 85 s of a processor, which is less than a tenth of its price where a core costs 0.05 USD an hour.
 */
const MAX_ALL_BYTES = 12 * 1024 * 1024;

/** Kinds of documents whose text has wrapped lines. In texts of all other kinds each line is a paragraph. */
const WRAPPED_KINDS: ReadonlySet<string> = new Set(["pdf", "text", "image"]);

/**
 * Problems of a document that could not be read, after which the work goes on without that document. All other errors
 * end the work: an address in the request that is never fetched is the client's mistake, the others are faults of ours.
 */
const UNREADABLE_CODES: readonly ProblemCode[] = ["not_fetched", "not_extracted"];

/** A document that was read, or why it could not be. */
type ReadResult = { ok: true; source: Source } | { ok: false; url: string; problem: Problem };

/** What the reading of all documents of one brief shares. */
interface ReadContext {
  deps: WorkDeps;
  signal: AbortSignal | undefined;
  /** Bytes that may still be extracted. */
  bytesLeft: number;
  /** Returns the JSON pointer to the i-th address in the request, for errors. */
  pointerAt: (i: number) => string;
  /** Problems of one document that do not end the work. */
  tolerated: readonly ProblemCode[];
}

async function readDocument(url: string, i: number, reading: ReadContext): Promise<Source> {
  const { deps, signal } = reading;
  const pointer = reading.pointerAt(i);
  const answer = await fetchDocument(deps.egress, { url, pointer, holder: deps.holder, signal });
  refuseLarge(answer, reading, pointer);
  const fetchedAt = deps.clock.now();
  const extraction = {
    bytes: answer.body,
    type: answer.headers["content-type"],
    url: answer.url,
    part: "main" as const,
    kinds: Extracted.shape.kind.options,
    limits: BRIEF_EXTRACT_LIMITS,
    ...(deps.holder ? { holder: deps.holder } : {}),
    ...(signal ? { signal } : {}),
  };
  const [sha256, { text, kind, part, metadata, cut, headings }] = await Promise.all([
    sha256hexAsync(answer.body),
    extractDocument(deps.extractor, extraction, pointer),
  ]);
  return {
    info: {
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
    headings: headingRangesOf(headings),
  };
}

/** Refuses a document before its extraction, if it and those before it exceed {@link MAX_ALL_BYTES} together. */
function refuseLarge({ body }: FetchedAnswer, reading: ReadContext, pointer: string): void {
  reading.bytesLeft -= body.length;
  if (reading.bytesLeft >= 0) return;
  const detail = `the documents of one brief are at most ${MAX_ALL_BYTES} bytes together`;
  throw new Problem("not_extracted", detail, { errors: [{ pointer, detail }] });
}

async function readAll(urls: readonly string[], reading: ReadContext): Promise<ReadResult[]> {
  const reads = urls.map(async (url, i): Promise<ReadResult> => {
    try {
      return { ok: true, source: await readDocument(url, i, reading) };
    } catch (error) {
      if (!(error instanceof Problem) || !reading.tolerated.includes(error.code)) throw error;
      return { ok: false, url, problem: error };
    }
  });
  // Wait for all fetches before throwing, so that none runs on after the response.
  await Promise.allSettled(reads);
  return Promise.all(reads);
}

/** The sources that were read for a question. */
interface SourcesRead {
  asked_of: BriefAnswer["asked_of"];
  sources: readonly Source[];
  /** Addresses that could not be read. */
  unread: readonly BriefSource[];
  /** True: the answer also names sources from which nothing is quoted. False: it names only those that it quotes. */
  namesAll: boolean;
}

/** Reads the addresses of a request. @throws Problem not_fetched when none could be read, with the reason of each */
async function readUrls(urls: readonly string[], deps: WorkDeps, signal?: AbortSignal): Promise<SourcesRead> {
  const reading = {
    deps,
    signal,
    bytesLeft: MAX_ALL_BYTES,
    pointerAt: (i: number) => `/urls/${i}`,
    tolerated: UNREADABLE_CODES,
  };
  const results = await readAll(urls, reading);
  const sources = results.flatMap((one) => (one.ok ? [one.source] : []));
  if (sources.length === 0) {
    const errors = results.flatMap((one) => (one.ok ? [] : (one.problem.extra.errors ?? [])));
    throw new Problem("not_fetched", "none of the addresses could be read", { errors });
  }
  const asked_of = { what: "urls" as const, says: "the addresses of the request, and nothing else" };
  return { asked_of, sources, unread: unreadOf(results), namesAll: true };
}

const unreadOf = (results: readonly ReadResult[]): BriefSource[] =>
  results.flatMap((one) => {
    if (one.ok) return [];
    const says = one.problem.extra.errors?.[0]?.detail ?? one.problem.message;
    return [{ read: false as const, url: one.url, says }];
  });

/**
 * Reads this service's documentation and, if the operator set up a search engine, the pages that it finds.
 * @throws Problem unavailable
 */
async function readPagesAndSearch(question: string, deps: WorkDeps, signal?: AbortSignal): Promise<SourcesRead> {
  const { corpus, search } = deps;
  const ownPages = await corpus.findSources(question).catch(() => {
    throw new Problem("unavailable", "the documentation cannot be read now", { headers: { "retry-after": "10" } });
  });
  if (!search)
    return { asked_of: { what: "corpus", says: corpus.says }, sources: ownPages, unread: [], namesAll: false };
  const urls = await search.find(question, signal).catch(() => {
    throw new Problem("unavailable", "the search cannot be asked now", { headers: { "retry-after": "10" } });
  });
  // An address that is never fetched was found by the search and not given by the client.
  const tolerated: ProblemCode[] = [...UNREADABLE_CODES, "bad_request"];
  const results = await readAll(urls, {
    deps,
    signal,
    bytesLeft: MAX_ALL_BYTES,
    pointerAt: () => "/question",
    tolerated,
  });
  const sources = [...ownPages, ...results.flatMap((one) => (one.ok ? [one.source] : []))];
  return {
    asked_of: { what: "search", says: `${search.says}, and ${corpus.says}` },
    sources,
    unread: unreadOf(results),
    namesAll: false,
  };
}

/** Runs the summariser with a timeout and verifies its draft. @throws Problem unavailable */
async function summarise(question: string, sources: readonly Source[], deps: WorkDeps, signal?: AbortSignal) {
  const timeout = AbortSignal.timeout(SUMMARY_TIMEOUT_MS);
  const stopSignal = signal ? AbortSignal.any([signal, timeout]) : timeout;
  const aborted = new Promise<never>((_, reject) => {
    stopSignal.addEventListener("abort", () => reject(new Error("called off")), { once: true });
  });
  // If the race below never starts, the rejection must not count as unhandled.
  aborted.catch(() => undefined);
  const evidence = sources.map(({ info: { url, kind }, text, headings = [] }) => {
    return { url, text, isWrapped: WRAPPED_KINDS.has(kind), headings };
  });
  try {
    const draft = await Promise.race([deps.summariser.summarise(question, evidence, MAX_CLAIMS, stopSignal), aborted]);
    return verifyDraft(draft, evidence, MAX_CLAIMS);
  } catch {
    throw new Problem("unavailable", "the brief cannot be made now", { headers: { "retry-after": "10" } });
  }
}

type BriefContent = Pick<BriefAnswer, "claims" | "disagreements" | "not_found" | "not_quoted" | "summariser">;

/** Builds the answer of a brief. @throws Problem nothing_relevant without a claim */
function briefOf(
  question: string,
  asked_of: BriefAnswer["asked_of"],
  content: BriefContent,
  sources: readonly BriefSource[],
  deps: WorkDeps,
): BriefAnswer {
  if (content.claims.length === 0) {
    const why =
      content.not_found.slice(0, 5).join(" ") || "No sentence in the sources says anything about the question.";
    throw new Problem("nothing_relevant", why);
  }
  const { summariser, claims, disagreements, not_found, not_quoted } = content;
  const sentences = claims.map(({ quotations: [first] }) => {
    const { text, ...cites } = first!;
    return { text, cites };
  });
  const brief = {
    ...{ schema: "svc.brief.v1" as const, question, asked_of, summariser, claims, sentences, disagreements },
    ...{ not_found, not_quoted, sources: [...sources], answered_at: rfc3339(deps.clock.now()) },
  };
  return { ...brief, markdown: renderBrief(brief) };
}

const RULES_SUMMARISER = {
  name: "record",
  says: "Rules over the tables of the record. Every figure stands in a quotation of a leaf of the log or of an answer.",
};

/** Makes a brief from the sources that were read. @throws Problem nothing_relevant, unavailable */
async function briefFromSources(
  question: string,
  read: SourcesRead,
  deps: WorkDeps,
  signal?: AbortSignal,
): Promise<BriefAnswer> {
  const { claims, differences, leftOutCount } = await summarise(question, read.sources, deps, signal);
  const citedSources = new Set<number>();
  const toQuotation = ({ source, text, offset }: VerifiedQuote): BriefQuotation => {
    citedSources.add(source);
    const { url, sha256 } = read.sources[source]!.info;
    return { text, url, sha256, offset };
  };
  const { name, says } = deps.summariser;
  const content: BriefContent = {
    summariser: { name, says },
    claims: claims.map(({ text, quotations }) => ({ text, quotations: quotations.map(toQuotation) })),
    disagreements: differences.map(({ differsIn, sentences }) => {
      return { says: `These sources may not agree: ${differsIn}.`, quotations: sentences.map(toQuotation) };
    }),
    not_found: [],
    not_quoted: leftOutCount,
  };
  const quotedText = claims.flatMap(({ quotations }) => quotations.map(({ text }) => text)).join(" ");
  content.not_found = claims.length === 0 ? [] : wordsNotQuoted(question, quotedText);
  const namedSources = read.sources.filter((_, i) => read.namesAll || citedSources.has(i)).map((source) => source.info);
  return briefOf(question, read.asked_of, content, [...namedSources, ...read.unread], deps);
}

/** Returns one sentence that names the words of a question that no quotation contains; an empty list if all occur. */
function wordsNotQuoted(question: string, quoted: string): string[] {
  const quotedTerms = new Set(soughtWordsOf(quoted).flatMap(({ terms }) => terms));
  const words = soughtWordsOf(question).filter(({ terms }) => !terms.some((term) => quotedTerms.has(term)));
  return words.length === 0 ? [] : [`No quotation has ${words.map(({ word }) => `"${word}"`).join(", ")}.`];
}

/** The work of POST /v1/research/brief (docs/paid-operations.md). */
export const researchBrief: Work<BriefRequest, BriefAnswer> = {
  id: "researchBrief",
  method: "POST",
  path: "/v1/research/brief",
  summary: "A question answered from sources or from the record: claims, each with quotations that can be checked",
  body: BriefRequest,
  example: { question: "What is a delivery rate?", urls: ["https://example.com/"] },
  answer: BriefAnswer,
  maxBodyBytes: MAX_BODY_BYTES,
  errors: ["not_fetched", "nothing_relevant", "unavailable"],
  async run({ question, urls }, deps, signal) {
    if (!soughtWordsOf(question).some(({ word }) => /\p{L}/u.test(word)))
      throw badField("/question", "has no word that can be looked for");
    if (urls) return briefFromSources(question, await readUrls(urls, deps, signal), deps, signal);
    const recordAnswer = deps.record && (await askRecord(deps.record, question, deps.holder?.client ?? ""));
    if (recordAnswer) {
      const asked_of = { what: "record" as const, says: "the record of this service, by rules over its tables" };
      const { sources, ...claims } = recordAnswer;
      return briefOf(question, asked_of, { ...claims, summariser: RULES_SUMMARISER, not_quoted: 0 }, sources, deps);
    }
    return briefFromSources(question, await readPagesAndSearch(question, deps, signal), deps, signal);
  },
};
