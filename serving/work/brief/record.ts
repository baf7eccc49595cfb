import { createYielder } from "../../../infra/concurrency.ts";
import { splitWords } from "../../../infra/text-index.ts";
import { NETWORK_NAMES, USDC } from "../../../pipelines/record/networks.ts";
import { BadUrl, hostOf, normaliseUrl } from "../../../pipelines/record/url.ts";
import type { Band } from "../../../pipelines/record/vocabulary.ts";
import { readQuestion } from "../../answers/question.ts";
import { ownFlags } from "../../answers/related.ts";
import { findEndpoints } from "../../answers/search.ts";
import type { BriefAnswer, BriefQuotation, BriefSource } from "../../schemas/brief.ts";
import { defectsOf } from "../../tables/defects.ts";
import { cardOf, headlineOf, isListed, type ListedEntry, leafOf } from "../../tables/entry.ts";
import { matchUrl } from "../../tables/match.ts";
import type { View } from "../../tables/view.ts";
import { RecordDocuments, type RecordParts } from "./record-documents.ts";

/**
 * The answer to a question from the record, which is what this service has observed of endpoints. Without claims, the
 * record does not answer the question.
 */
export type RecordAnswer = Pick<BriefAnswer, "claims" | "disagreements" | "not_found"> & {
  sources: readonly BriefSource[];
};

/** Largest number of endpoints that one brief describes one by one. */
const MAX_DESCRIBED = 20;
/** Largest number of of those endpoints that have the same host. */
const MAX_PER_HOST = 3;
/** Largest number of results of a search. */
const MAX_FOUND = 5;
/**
 * Largest number of endpoints that took money without delivering whose newest such call is read from the published
 * evidence.
 */
const MAX_THEFTS_READ = 5;
/**
 * Largest number of endpoints that are looked up because a question names them, and most failed calls described of
 * each.
 */
const MAX_NAMED = 3;
/** Number of endpoints that are examined between two yields to the event loop. */
const ENTRIES_PER_TURN = 2_000;
/** Largest number of cards (signed grades of endpoints) that are unpacked for one question. */
const MAX_UNPACKED = 2_000;

/** What a question asks about endpoints, by its words in English and German. The first entry that matches counts. */
const ASPECTS = [
  [
    "thefts",
    /\b(?:thie(?:f|ves)|thefts?|steal(?:s|ing)?|stole|stolen|scam\w*|fraud\w*|crooks?|cheat\w*|swindl\w*|robs?|robbed|dieb\w*|stehlen|gestohlen|betr[uü]g\w*)\b|\b(?:take|takes|took|keeps?|kept) (?:the |our |my |your )?money\b/iu,
  ],
  ["defects", /\b(?:defects?|defective|differ\w*|disagree\w*|mismatch\w*|mängel|abweich\w*)\b/iu],
  [
    "failures",
    /\b(?:fail\w*|broken|wrong|errors?|unreliable|bad|worst|untrustworthy|avoid\w*|not (?:pay|buy|trust)|schlecht\w*|versag\w*|fehler\w*|meiden|nicht (?:be)?zahlen)\b/iu,
  ],
  ["letters", /\b(?:grade[ds]?|letters?|rat(?:ed|ing|ings)|bewertet|note)\b/iu],
  [
    "prices",
    /\b(?:prices?|priced|costs?|cheap\w*|expensive|how much|preise?|kostet|kosten|billig\w*|günstig\w*|teuer)\b/iu,
  ],
  ["latencies", /\b(?:fast\w*|quick\w*|slow\w*|latency|schnell\w*)\b/iu],
  [
    "offers",
    /\b(?:best|good|reliable|trusted|trustworthy|safe|buy|sells?|offers?|beste\w*|zuverlässig\w*|kaufen|verkauf\w*)\b/iu,
  ],
] as const;
type Aspect = (typeof ASPECTS)[number][0];

/** Matches words for what the record is about: sellers and what they sell. */
const SUBJECT_WORDS =
  /\b(?:sellers?|endpoints?|apis?|services?|providers?|merchants?|vendors?|tools?|listings?|capabilit\w+|market|anbieter|verkäufer|händler|dienste?|endpunkte?)\b/iu;
/** Words that show that a question without a word of {@link SUBJECT_WORDS} is about something that is sold. */
const TRADE_WORDS =
  /\b(?:cheapest|fastest|buy|avoid\w*|not (?:pay|trust)|billigste\w*|günstigste\w*|kaufen|meiden|nicht (?:be)?zahlen)\b/iu;
/**
 * Matches a question that asks for particular endpoints. Other questions, such as "how does a seller fail?", ask how
 * something works, which the record does not explain.
 */
const SELECTING_START =
  /^\W*(?:please\s+)?(?:which|who|whose|what (?:are|is) the (?:most \w+|\w+est|best|price)|list|show|name|find|where|how many|are there|is there|cheapest|fastest|best|welche\w*|wer|wo|wie viele|gibt es|nenne|what (?:sellers?|endpoints?|apis?|services?|providers?|listings?)|(?:the )?\w+ (?:sellers?|endpoints?))\b/iu;
const COUNT_WORDS = /\b(?:how many|number of|wie viele|anzahl)\b/iu;
/** Matches a letter in a question: a grade from A to F, or UNRATED. */
const ASKED_LETTER =
  /\b(?:letters?|grade[ds]?|rat(?:ed|ing)|note|bewertet mit|an?|with)\s+(?:of\s+)?(?:an?\s+|the letter\s+)?["'“]?([A-DF])\b(?!['’])|\bUNRATED\b/u;

/** Words in questions about the record that name no topic, besides those that {@link readQuestion} leaves out. */
const NON_TOPIC_WORD =
  /^(?:known|record|market|here|there|currently|now|today|many|number|list|name|price|prices|letter|grade|graded|rated|money|took|take|geld|listing|listings|tool|tools|merchant|merchants|vendor|vendors|welche|welcher|anbieter|verkäufer|händler|gibt|es|viele|nenne|alle|haben|mit)$/u;

/** How a question about the record is understood. */
interface Reading {
  /** What the question asks about the endpoints. */
  aspect: Aspect;
  /** True if the question asks for a number of endpoints. */
  asksForCount: boolean;
  /** The letter (grade) that the question asks for. */
  band: Band | null;
  /** Endpoints of the record that the question names. */
  named: readonly ListedEntry[];
  /** True if the question contains the address or id of an endpoint, be it in the record or not. */
  hasAddress: boolean;
  /**
   * True if the words of the question show that it is about the record. If false, it may be about something else: if
   * the record yields no claim, the question is left to other sources.
   */
  isSurelyAboutRecord: boolean;
}

/** Returns the text by which claims name an endpoint. */
const nameOf = ({ listing: { method, url, tool } }: ListedEntry): string =>
  tool === null ? `${method} ${url}` : `${tool} at ${url}`;

/** Returns a network's name, or its id if it has none. */
const networkName = (id: string): string => Object.entries(NETWORK_NAMES).find(([, one]) => one === id)?.[0] ?? id;

/** Matches an address or a capability id, the id of an endpoint. */
const ADDRESS = /\bhttps?:\/\/\S|\bcap_[0-9A-HJKMNP-TV-Z]{26}\b/iu;
/**
 * Matches addresses, and names with a dot or a hyphen. They are removed before {@link ASPECTS} is applied, since a name
 * may contain a word such as "best".
 */
const ADDRESSES_AND_NAMES = /\bhttps?:\/\/\S+|[\p{L}\p{N}]+(?:[-.][\p{L}\p{N}]+)+/giu;

/** Returns the text by which claims name a token: USDC, or the address of its contract. */
const assetName = (asset: string, networks: readonly string[]): string =>
  networks.some((id) => USDC[id] === asset.toLowerCase()) ? "USDC" : asset;

/** Finds the endpoints that a question names by id, by address, by host, or by the first label of a host. */
async function findNamedEndpoints(view: View, question: string): Promise<ListedEntry[]> {
  const caps = new Set<string>(question.match(/\bcap_[0-9A-HJKMNP-TV-Z]{26}\b/g) ?? []);
  for (const [url] of question.matchAll(/\bhttps?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)]/gi)) {
    try {
      const cap = matchUrl(view, normaliseUrl(url))?.cap;
      if (cap !== undefined) caps.add(cap);
    } catch (error) {
      if (!(error instanceof BadUrl)) throw error;
    }
  }
  const rest = question.replaceAll(/\bhttps?:\/\/\S+/gi, " ");
  for (const [name] of rest.matchAll(/[\p{L}\p{N}]+(?:[-.][\p{L}\p{N}]+)+/gu)) {
    if (caps.size >= MAX_NAMED) break;
    const label = name.toLowerCase();
    const { hits } = await findEndpoints(view, { words: splitWords(label, 12) }, false);
    let lookedCount = 0;
    for (const { entry, lackedWords } of hits) {
      if (++lookedCount > ENTRIES_PER_TURN || lackedWords.length > 0) break;
      const { hostname } = new URL(entry.listing.url);
      if (hostname === label || hostname.startsWith(`${label}.`)) caps.add(entry.cap);
      if (caps.size >= MAX_NAMED) break;
    }
  }
  return [...caps].slice(0, MAX_NAMED).flatMap((cap) => {
    const entry = view.entry(cap);
    return isListed(entry) ? [entry] : [];
  });
}

/** Reads a question about the record; null when it is about something else. */
async function interpretQuestion(view: View, question: string): Promise<Reading | null> {
  const named = await findNamedEndpoints(view, question);
  const textWithoutNames = question.replaceAll(ADDRESSES_AND_NAMES, " ");
  const letter = ASKED_LETTER.exec(question);
  const band = letter === null ? null : ((letter[1] ?? "UNRATED") as Band);
  const matchedAspect = ASPECTS.find(([, words]) => words.test(textWithoutNames))?.[0];
  const aspect = matchedAspect ?? (band === null ? "offers" : "letters");
  const asksForCount = COUNT_WORDS.test(question);
  const reading = { aspect, asksForCount, band, named, hasAddress: ADDRESS.test(question) };
  if (named.length > 0 || reading.hasAddress) return { ...reading, isSurelyAboutRecord: true };
  if (!SELECTING_START.test(question)) return null;
  const { maxPrice, network } = readQuestion(question);
  const isTrade = TRADE_WORDS.test(question) || maxPrice !== null || network !== null;
  if (aspect !== "thefts" && !isTrade && !SUBJECT_WORDS.test(question)) return null;
  return { ...reading, isSurelyAboutRecord: matchedAspect !== undefined || band !== null || asksForCount || isTrade };
}

/** Answers a question by rules over the record's tables; null when the question is not about the record. */
export async function askRecord(parts: RecordParts, question: string, client: string): Promise<RecordAnswer | null> {
  const view = parts.view();
  const reading = await interpretQuestion(view, question);
  if (reading === null) return null;
  const documents = new RecordDocuments(parts, view, client);
  const answer: AnswerParts = { claims: [], disagreements: [], not_found: [] };
  if (reading.named.length > 0) await describeNamed(answer, documents, reading);
  else if (reading.hasAddress)
    answer.not_found.push("The address that the question names is not listed in the record.");
  else if (["prices", "latencies", "offers"].includes(reading.aspect) && reading.band === null && !reading.asksForCount)
    await describeFound(answer, documents, question);
  else await describeSet(answer, documents, reading, question);
  if (answer.claims.length === 0 && !reading.isSurelyAboutRecord) return null;
  return { ...answer, sources: documents.cited };
}

type AnswerParts = Pick<BriefAnswer, "claims" | "disagreements" | "not_found">;

/**
 * Adds claims about the endpoints that a question names: their letter, price, latency, failed calls (with the letter)
 * or defects, whichever is asked. For a general question, and for one about thefts, it adds letter, price and failed
 * calls. For these two kinds of questions and for one about defects, it adds the defects whose code ends in `_differs`
 * as disagreements.
 */
async function describeNamed(
  answer: AnswerParts,
  documents: RecordDocuments,
  { aspect, named }: Reading,
): Promise<void> {
  const isAsked = (candidate: Aspect): boolean => aspect === candidate || aspect === "offers" || aspect === "thefts";
  for (const entry of named) {
    const name = nameOf(entry);
    const check = await documents.readCheck(entry.cap);
    const { why, observed, defects } = check.value;
    if (isAsked("letters") || aspect === "failures") await describeLetter(answer, documents, entry, why);
    if (isAsked("prices")) {
      const advertised = observed?.advertised ?? null;
      if (advertised === null) answer.not_found.push(`The record has no price of ${name}.`);
      else
        answer.claims.push({
          text: `${name} asks ${advertised.amount} ${assetName(advertised.asset, advertised.networks)} on ${advertised.networks.map(networkName).join(", ")}.`,
          quotations: [documents.quote(check, "advertised", advertised)],
        });
    }
    if (aspect === "latencies") await describeLatency(answer, documents, entry);
    if (isAsked("failures")) await describeFailures(answer, documents, entry, MAX_NAMED);
    for (const defect of isAsked("defects") ? defects : []) {
      const says = `${name}: ${defect.says}.`;
      const quotations = [documents.quote(check, "says", defect.says)];
      if (/_differs$|^network_differs|^schema_differs/.test(defect.defect))
        answer.disagreements.push({ says, quotations });
      if (aspect === "defects") answer.claims.push({ text: says, quotations });
    }
  }
}

/**
 * Adds a claim with the sentence that explains the grade of an endpoint. It quotes GET /v1/check and, if there is a
 * card (signed grade), also the leaf of the log (one of its entries) that contains the card.
 */
async function describeLetter(
  answer: AnswerParts,
  documents: RecordDocuments,
  entry: ListedEntry,
  why: string,
): Promise<void> {
  const card = headlineOf(entry);
  const check = await documents.readCheck(entry.cap);
  const quotations = [documents.quote(check, "url", entry.listing.url)];
  const leaf = card && leafOf(card);
  // The sentence in the check differs from that in the leaf where something was learned since the grade.
  if (leaf?.why !== why) quotations.unshift(documents.quote(check, "why", why));
  if (card && leaf) quotations.unshift(documents.quote(await documents.readLeaf(card), "why", leaf.why));
  answer.claims.push({ text: `${nameOf(entry)}: ${why}`, quotations });
}

async function describeLatency(answer: AnswerParts, documents: RecordDocuments, entry: ListedEntry): Promise<void> {
  const card = headlineOf(entry);
  const method = card && card.latencyMs !== null ? cardOf(card).components?.latency_p95.method : undefined;
  if (!card || method === undefined) {
    answer.not_found.push(`The record has no latency of ${nameOf(entry)}.`);
    return;
  }
  answer.claims.push({
    text: `95 of 100 answers of ${nameOf(entry)} came within ${card.latencyMs} ms.`,
    quotations: [documents.quote(await documents.readLeaf(card), "method", method)],
  });
}

/** Adds claims about the newest failed calls of an endpoint. @returns true if there are any, else false */
async function describeFailures(
  answer: AnswerParts,
  documents: RecordDocuments,
  entry: ListedEntry,
  maxCalls: number,
): Promise<boolean> {
  const failures = await documents.readFailures(entry.cap);
  if (!failures) answer.not_found.push(`The evidence of ${nameOf(entry)} cannot be read now.`);
  const failedCalls = failures?.value.failures ?? [];
  for (const { id, at, says, expected, came } of failedCalls.slice(0, maxCalls)) {
    const callStart = failures!.text.indexOf(JSON.stringify(id));
    answer.claims.push({
      text: `${nameOf(entry)}, paid call of ${at}: ${says} Expected: ${expected}. Came: ${came}.`,
      quotations: [
        ...[documents.quote(failures!, "id", id), documents.quote(failures!, "says", says, callStart)],
        ...[
          documents.quote(failures!, "expected", expected, callStart),
          documents.quote(failures!, "came", came, callStart),
        ],
      ],
    });
  }
  return failedCalls.length > 0;
}

/** Largest number of characters of the text of a search (schemas/search.ts). */
const MAX_QUERY_CHARS = 200;

/**
 * Adds claims about the endpoints that a search finds. Price, network, order and words are read from the question as
 * GET /v1/search reads them.
 */
async function describeFound(answer: AnswerParts, documents: RecordDocuments, question: string): Promise<void> {
  const search = await documents.readSearch({ q: question.slice(0, MAX_QUERY_CHARS), limit: String(MAX_FOUND) });
  const { capabilities, read_as } = search.value;
  const lackedWords = new Set<string>();
  for (const capability of capabilities) {
    // An endpoint that lacks more than half of the words is about something else.
    if (capability.lacks.length * 2 > read_as.words.length) continue;
    for (const word of capability.lacks) lackedWords.add(word);
    const resultStart = search.text.indexOf(JSON.stringify(capability.capability_id));
    const price =
      capability.price === null
        ? ""
        : ` It asks ${capability.price} ${assetName(capability.asset ?? "", capability.networks)} on ${capability.networks.map(networkName).join(", ")}.`;
    const latency =
      capability.latency_p95_ms === null ? "" : ` 95 of 100 answers came within ${capability.latency_p95_ms} ms.`;
    const quoteMember = (name: "url" | "why" | "price" | "networks" | "latency_p95_ms") =>
      capability[name] === null ? [] : [documents.quote(search, name, capability[name], resultStart)];
    answer.claims.push({
      text: `${capability.tool ?? capability.method} ${capability.url}: ${capability.why}${price}${latency}`,
      quotations: [
        ...quoteMember("url"),
        ...quoteMember("why"),
        ...quoteMember("price"),
        ...quoteMember("networks"),
        ...quoteMember("latency_p95_ms"),
      ],
    });
  }
  for (const word of lackedWords)
    answer.not_found.push(`No endpoint that was found says "${word}" where it is named here.`);
  if (search.value.says !== null) answer.not_found.push(search.value.says);
}

/** The endpoints that a question asks for, in the order of {@link comparePaidSamples}, and what they have in common. */
interface EndpointSet {
  entries: readonly ListedEntry[];
  /** What they have in common; continues a sentence that begins "n of m listed endpoints". */
  says: string;
}

/**
 * Adds claims about the endpoints that a question asks for: their number, then the first {@link MAX_DESCRIBED} of them.
 */
async function describeSet(
  answer: AnswerParts,
  documents: RecordDocuments,
  reading: Reading,
  question: string,
): Promise<void> {
  const topicCaps = await endpointsOnTopic(answer, documents.view, question);
  const { entries, says } = await selectEndpoints(documents, reading, topicCaps);
  const described = limitPerHost(entries);
  const consideredCount = topicCaps?.size ?? countListed(documents.view);
  if (described.length === 0) {
    answer.not_found.push(`None of ${consideredCount} listed endpoints ${says}.`);
    return;
  }
  const firstClaim = answer.claims.length;
  const quotations: BriefQuotation[] = [];
  for (const [i, entry] of described.entries()) {
    const { value, text } = await documents.readCheck(entry.cap);
    if (reading.aspect !== "defects") await describeLetter(answer, documents, entry, value.why);
    const claim = answer.claims.at(-1)!;
    if (reading.aspect !== "defects") quotations.push(claim.quotations[0]!);
    if (reading.aspect === "thefts") {
      if (text.includes('"took_the_money"'))
        claim.quotations.push(documents.quote(await documents.readCheck(entry.cap), "flags", value.flags));
      if (i < MAX_THEFTS_READ) await describeTheft(answer, documents, entry);
    }
    if (reading.aspect === "defects")
      for (const defect of value.defects) {
        const quotation = documents.quote(await documents.readCheck(entry.cap), "says", defect.says);
        answer.claims.push({ text: `${nameOf(entry)}: ${defect.says}.`, quotations: [quotation] });
        quotations.push(quotation);
      }
  }
  const moreText = entries.length > described.length ? ` ${described.length} of them are told of.` : "";
  const text = `${entries.length} of ${consideredCount} listed endpoints ${says}.${moreText}`;
  answer.claims.splice(firstClaim, 0, { text, quotations });
}

/** Adds a claim about the newest call in which an endpoint took money and delivered nothing, from the evidence. */
async function describeTheft(answer: AnswerParts, documents: RecordDocuments, entry: ListedEntry): Promise<void> {
  const failures = await documents.readFailures(entry.cap);
  const call = failures?.value.failures.find(({ says }) => says.endsWith("and nothing came back."));
  if (!failures || !call) return;
  const from = failures.text.indexOf(JSON.stringify(call.id));
  answer.claims.push({
    text: `${nameOf(entry)}, paid call of ${call.at}: ${call.says}`,
    quotations: [
      ...[documents.quote(failures, "id", call.id), documents.quote(failures, "says", call.says, from)],
      ...(call.tx === null ? [] : [documents.quote(failures, "tx", call.tx, from)]),
    ],
  });
}

/** Returns the first endpoints, at most {@link MAX_PER_HOST} of one host and {@link MAX_DESCRIBED} in all. */
function limitPerHost(entries: readonly ListedEntry[]): ListedEntry[] {
  const chosen: ListedEntry[] = [];
  const countByHost = new Map<string, number>();
  for (const entry of entries) {
    if (chosen.length === MAX_DESCRIBED) break;
    const host = hostOf(entry.listing.url);
    const count = countByHost.get(host) ?? 0;
    if (count === MAX_PER_HOST) continue;
    countByHost.set(host, count + 1);
    chosen.push(entry);
  }
  return chosen;
}

const countListed = (view: View): number => [...view.entries.values()].filter(isListed).length;

/**
 * Returns the ids of the endpoints whose texts contain the topic words of a question. Returns null for all endpoints:
 * if the question has no topic words, or if no endpoint contains them, which is then added to `not_found` of the
 * answer.
 */
async function endpointsOnTopic(
  answer: AnswerParts,
  view: View,
  question: string,
): Promise<ReadonlySet<string> | null> {
  const textWithoutAspects = ASPECTS.reduce(
    (text, [, words]) => text.replaceAll(new RegExp(words.source, "giu"), " "),
    question.replace(ASKED_LETTER, " "),
  );
  const topicText = textWithoutAspects.replaceAll(new RegExp(SUBJECT_WORDS.source, "giu"), " ");
  const words = readQuestion(topicText).words.filter(({ word }) => !NON_TOPIC_WORD.test(word));
  if (words.length === 0) return null;
  const giveTurn = createYielder(ENTRIES_PER_TURN);
  const caps = new Set<string>();
  for (const { entry, lackedWords } of (await findEndpoints(view, { words })).hits) {
    await giveTurn();
    if (lackedWords.length > 0) break;
    caps.add(entry.cap);
  }
  if (caps.size > 0) return caps;
  const topicWords = words.map(({ word }) => `"${word}"`).join(", ");
  answer.not_found.push(`No endpoint holds ${topicWords} where it is named here, so all were looked at.`);
  return null;
}

async function selectEndpoints(
  { view, parts }: RecordDocuments,
  { aspect, band, asksForCount }: Reading,
  topicCaps: ReadonlySet<string> | null,
): Promise<EndpointSet> {
  const now = parts.clock.now();
  const hasBand =
    (...bands: Band[]) =>
    (entry: ListedEntry) =>
      bands.includes(view.bandOf(entry));
  const collectMembers = async (isMember: (entry: ListedEntry) => boolean, says: string): Promise<EndpointSet> => {
    const entries: ListedEntry[] = [];
    const giveTurn = createYielder(ENTRIES_PER_TURN);
    for (const entry of view.entries.values()) {
      await giveTurn();
      if (isListed(entry) && (topicCaps?.has(entry.cap) ?? true) && isMember(entry)) entries.push(entry);
    }
    return { entries: entries.sort(comparePaidSamples), says };
  };
  if (aspect === "thefts") {
    let unpackedCount = 0;
    const hasTheftFlag = (entry: ListedEntry): boolean => {
      const card = headlineOf(entry);
      if (card?.band !== "F" || ++unpackedCount > MAX_UNPACKED) return false;
      return ownFlags(view, entry.cap, cardOf(card).flags ?? [], card.leaf, now).includes("took_the_money");
    };
    const says = "took money for paid calls and delivered nothing, without paying it back";
    return collectMembers(
      (entry) => view.volatile.thefts.ofEndpoint(entry.cap, now) !== null || hasTheftFlag(entry),
      says,
    );
  }
  if (aspect === "defects")
    return collectMembers(
      (entry) => defectsOf(view.row(entry.cap), entry).length > 0,
      "have a listing or a 402 with defects",
    );
  if (band !== null)
    return collectMembers(hasBand(band), band === "UNRATED" ? "have no letter" : `have the letter ${band}`);
  if (aspect === "failures") return collectMembers(hasBand("F", "D"), "have the letter F or D");
  if (asksForCount) return collectMembers(() => true, topicCaps === null ? "are in the record" : "fit");
  return collectMembers(hasBand("A", "B", "C", "D", "F"), "have a letter");
}

/** Orders endpoints by the weight of the paid samples behind their card, descending, then by address. */
const comparePaidSamples = (a: ListedEntry, b: ListedEntry): number =>
  (headlineOf(b)?.paidSamples ?? 0) - (headlineOf(a)?.paidSamples ?? 0) || (a.listing.url < b.listing.url ? -1 : 1);
