import { afterAll, describe, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import { createMetrics } from "../../../infra/telemetry.ts";
import { parseBase64Json } from "../../../pipelines/1-observe/json.ts";
import { countReasons, REASONS, type Reason } from "../../../pipelines/1-observe/listings/claims.ts";
import { type ParsedListing, parseListing, readText } from "../../../pipelines/1-observe/listings/documents.ts";
import { Intake, type IntakeReport } from "../../../pipelines/1-observe/listings/intake.ts";
import { Recorder } from "../../../pipelines/1-observe/recorder.ts";

import { readListedOffers } from "../../../pipelines/1-observe/terms/terms.ts";
import { Terms } from "../../../pipelines/record/bodies.ts";
import { readChallenges } from "../../../pipelines/record/terms/challenges.ts";
import { wildLines, wildText } from "../../helpers/outside.ts";
import { readTerms } from "./readings.ts";
import { DAY, FakeLog, FakeRail } from "./world.ts";

/** The corpus of real listings and 402s through the real intake and the real terms reader. */
interface Case {
  id: string;
  kind: string;
  raw: {
    headers?: Record<string, string | string[]> | null;
    body?: string | null;
    openapi?: { server: string | null; path: string; method: string } & Record<string, unknown>;
    openapi_operation?: Record<string, unknown>;
    mpp_request_b64?: string;
  };
  reading: { protocol: string; version: number | null; entries: Entry[] };
}
interface Entry {
  scheme: string | null;
  network: string | null;
  asset: unknown;
  amount: string | null;
  payTo: string | null;
  defects: string[];
}

const rail = new FakeRail();
const real = createEgress({ allowLoopback: false, userAgent: "touchstone-test" });
afterAll(() => real.close());

function intake() {
  const log = new FakeLog();
  const metrics = createMetrics();
  const recorder = new Recorder({ log, producer: "test", metrics });
  const clock = new FixedClock(`${DAY}T00:00:00.000Z`);
  return { log, clock, take: new Intake({ egress: real, rail, recorder, metrics }) };
}

const byHand = (name: string, base?: string) => ({ name, byOperator: true, ...(base ? { base } : {}) });

/** Every item is a record, the same as one, or a rejected row with a reason; what was written can be read again. */
function accounted(report: IntakeReport, log: FakeLog): void {
  expect(report.appended + report.same + report.refused).toBe(report.items);
  expect(report.rejected).toHaveLength(report.refused);
  for (const { reason, says } of report.rejected) expect(says).toContain(REASONS[reason]);
  expect(log.bodies("listing")).toHaveLength(report.appended);
}

describe("files of the corpus, as an operator hands them in", () => {
  // Nobody's own word: only what a row states is a defect, never that it has no timeout, domain or payee.
  test.each<[string, number, Partial<Record<Reason, number>>, Record<string, number>]>([
    ["bazaar-rows.ndjson", 1_289, { not_http: 7, not_public: 2 }, { bad_asset: 1, bad_timeout: 2 }],
    ["listings.ndjson", 3_360, {}, { bad_asset: 2, bad_pay_to: 2, no_payable_entry: 2 }],
  ])("%s", async (file, taken, reasons, defects) => {
    const text = wildText(file);
    if (text === null) return;
    const { log, clock, take } = intake();
    const listed = readText(text);
    expect(listed.form).toBe("ndjson");
    const began = performance.now();
    const report = await take.recordDocument(listed, byHand(`operator:${file}`), clock);
    const ms = Math.round(performance.now() - began);
    accounted(report, log);
    expect(report.appended + report.same).toBe(taken);
    expect(countReasons(report.rejected)).toEqual(reasons);
    const said = log.bodies("listing").flatMap((listing) => listing.defects.map(({ defect }) => defect));
    expect(counts(said)).toEqual(defects);
    console.info(
      `${file}: ${report.items} rows, ${report.appended} listings, ${report.same} the same as one of them, ` +
        `${report.refused} rejected ${JSON.stringify(reasons)}, ${ms} ms`,
    );
  });
});

/** How often each word is there. */
function counts(words: readonly string[]): Record<string, number> {
  const sum: Record<string, number> = {};
  for (const word of words) sum[word] = (sum[word] ?? 0) + 1;
  return sum;
}

/** The document of a case that is a listing; null for a 402. */
function documentOf({ kind, raw }: Case): ParsedListing | null {
  if (raw.openapi) {
    const { server, path, method, ...operation } = raw.openapi;
    const servers = server === null ? {} : { servers: [{ url: server }] };
    return parseListing({ openapi: "3.1.0", ...servers, paths: { [path]: { [method]: operation } } });
  }
  if (raw.openapi_operation) return parseListing({ openapi: "3.1.0", paths: { "/x": { get: raw.openapi_operation } } });
  return /^(?:bazaar-row|well-known|agent-card)/.test(kind) ? readText(raw.body ?? "") : null;
}

/** A 402 of a case as it would have come over the wire. */
function answerOf({ raw }: Case) {
  const pairs = Object.entries(raw.headers ?? {}).map(([name, value]) => [
    name.toLowerCase(),
    [value].flat().join(", "),
  ]);
  const headers: Record<string, string> = Object.fromEntries(pairs);
  if (raw.mpp_request_b64) {
    headers["www-authenticate"] =
      `Payment id="x", realm="r", method="m", intent="charge", request="${raw.mpp_request_b64}"`;
  }
  return { headers, body: Buffer.from(raw.body ?? "") };
}

describe("cases of the corpus", () => {
  test("each is a listing, a handshake reading or a rejected row with a reason", async () => {
    const cases = wildLines("cases.ndjson") as Case[] | null;
    if (cases === null) return;
    const ends = { listings: 0, readings: 0, rejected: {} as Partial<Record<Reason, number>> };
    for (const one of cases) {
      const listed = documentOf(one);
      if (listed === null) {
        const read = readTerms(answerOf(one), rail);
        Terms.parse(read.terms);
        expect(read.readable || read.terms.offers.length > 0 || read.terms.defects.length > 0, one.id).toBe(true);
        ends.readings++;
        continue;
      }
      const { log, clock, take } = intake();
      // Relative addresses get the origin that the seller's own document would give them.
      const report = await take.recordDocument(listed, byHand(one.id, listed.base ?? "https://case.example"), clock);
      accounted(report, log);
      expect(report.items, one.id).toBeGreaterThan(0);
      if (report.appended > 0) ends.listings++;
      const [reason] = Object.keys(countReasons(report.rejected)) as Reason[];
      if (report.appended === 0) ends.rejected[reason!] = (ends.rejected[reason!] ?? 0) + 1;
    }
    console.info(`cases.ndjson: ${cases.length} lines: ${JSON.stringify(ends)}`);
    const rejected = Object.values(ends.rejected).reduce((sum, n) => sum + n, 0);
    expect(ends.listings + ends.readings + rejected).toBe(cases.length);
    expect(ends).toEqual({ listings: 150, readings: 208, rejected: { no_list: 5, not_http: 2, not_public: 1 } });
  });

  test("ours agrees with the reading that came with it, or the table says why ours is better", () => {
    const cases = wildLines("cases.ndjson") as Case[] | null;
    if (cases === null) return;
    const compared = cases.filter(({ kind }) => !/^(?:agent-card|well-known-x402|openapi-op)$/.test(kind));
    const differ = Object.fromEntries(
      compared.flatMap((one) => {
        const found = differences(one);
        return found.length > 0 ? [[one.id, found.join("; ")]] : [];
      }),
    );
    const explained = Object.fromEntries(Object.entries(BETTER).map(([id, { differs }]) => [id, differs]));
    console.info(
      `cases.ndjson: ${compared.length} readings compared, ${compared.length - Object.keys(differ).length} agree, ` +
        `${Object.keys(differ).length} differ and are explained`,
    );
    expect(differ).toEqual(explained);
  });
});

describe("challenges whose header is whole (mpp-mended)", () => {
  test("each is read as it was written, or the table says why not", () => {
    const lines = wildLines("mpp-mended.ndjson") as Mended[] | null;
    if (lines === null) return;
    const differ = lines.flatMap(({ id, header, challenges }) => {
      const ours = readChallenges(header).challenges.map(({ params }) => asMended(params));
      const theirs = challenges.map(({ request_text: _, ...challenge }) => challenge);
      return JSON.stringify(ours) === JSON.stringify(theirs) ? [] : [id];
    });
    console.info(`mpp-mended.ndjson: ${lines.length} headers, ${lines.length - differ.length} read alike`);
    expect(differ).toEqual(Object.keys(SEVERAL));
    for (const { id, header } of lines) {
      const { terms } = readTerms({ headers: { "www-authenticate": header }, body: Buffer.from("") }, rail);
      if (Object.hasOwn(SEVERAL, id)) expect(terms.offers, id).toHaveLength(SEVERAL[id]!);
    }
  });
});

interface Mended {
  id: string;
  header: string;
  challenges: (Record<string, unknown> & { request_text: string | null })[];
}

const asMended = (params: ReadonlyMap<string, string>) => {
  const said = (name: string): string | null => params.get(name) ?? null;
  const request = parseBase64Json(params.get("request") ?? "") ?? null;
  const [id, realm, method, intent] = ["id", "realm", "method", "intent"].map(said);
  return { id, realm, method, intent, expires: said("expires"), request };
};

/** Several header lines stand in one text, each a challenge: the corpus keeps the last, we read all of them. */
const SEVERAL: Readonly<Record<string, number>> = { c0479: 2, c0480: 3, c0482: 2, c0483: 2 };

/** Defects of the corpus in our words. What has none here is not a defect to us, or is one of the whole 402. */
const WORDS: Readonly<Record<string, string>> = {
  "amount-decimal": "bad_amount",
  "amount-number": "bad_amount",
  "amount-currency-string": "bad_amount",
  "amount-empty": "missing_amount",
  "missing-amount": "missing_amount",
  "asset-symbol": "bad_asset",
  "asset-caip19": "bad_asset",
  "asset-placeholder": "bad_asset",
  "asset-of-other-network": "bad_asset",
  "missing-asset": "bad_asset",
  "payTo-empty": "bad_pay_to",
  "missing-payTo": "bad_pay_to",
  "payTo-placeholder": "bad_pay_to",
  "payTo-bad-evm-address": "bad_pay_to",
  "missing-maxTimeoutSeconds": "bad_timeout",
  "maxTimeoutSeconds-not-positive": "bad_timeout",
  "missing-currency": "bad_asset",
  "missing-recipient": "bad_pay_to",
  "no-eip712-domain": "missing_domain",
  "v1-caip2-network": "network_form",
  "v2-named-network": "network_form",
  "network-malformed-caip2": "bad_network",
  "unknown-network-name": "bad_network",
  "entry-not-object": "bad_entry",
  "missing-scheme": "bad_entry",
  "missing-network": "bad_entry",
  "missing-id": "bad_entry",
  "missing-intent": "bad_entry",
  "missing-method": "bad_entry",
};

/** What differs between our reading of a case and the one that came with it, in short. */
function differences(one: Case): string[] {
  const { reading, raw, kind } = one;
  const item = raw.openapi_operation;
  const terms = item ? null : readTerms(answerOf(one), rail).terms;
  const { offers, defects } = terms ?? readListedOffers(item, rail.network);
  const found: string[] = [];
  if (offers.length !== reading.entries.length) found.push(`offers ${offers.length} not ${reading.entries.length}`);
  if (terms?.x402_version && reading.version !== null && terms.x402_version !== reading.version) {
    found.push(`version ${terms.x402_version} not ${reading.version}`);
  }
  for (const [i, want] of reading.entries.entries()) {
    const offer = offers[i];
    if (offer === undefined) continue;
    const amount = want.amount !== null && /^\d{1,78}$/.test(want.amount) ? want.amount : null;
    const unnamed = offer.network === "" || offer.network === "unknown";
    if (offer.amount_atomic !== amount) found.push("amount");
    if ((offer.pay_to ?? "") !== (want.payTo ?? "")) found.push("pay_to");
    if (want.network === null ? !unnamed : offer.network !== want.network) found.push("network");
    if ((offer.asset ?? "") !== (typeof want.asset === "string" ? want.asset : "")) found.push("asset");
    if (want.scheme !== null && reading.protocol === "x402" && offer.scheme !== want.scheme) found.push("scheme");
  }
  if (kind.startsWith("issue")) return found;
  const wanted = new Set(reading.entries.flatMap((entry) => entry.defects.map((code) => WORDS[code])));
  const ours = new Set(defects.map(({ defect }) => defect));
  const words = [...new Set(Object.values(WORDS))];
  found.push(...words.filter((code) => wanted.has(code) && !ours.has(code)).map((code) => `-${code}`));
  found.push(...words.filter((code) => !wanted.has(code) && ours.has(code)).map((code) => `+${code}`));
  return found;
}

/** Case by case: what differs, and why ours is better. */
const BETTER: Readonly<Record<string, { differs: string; why: string }>> = {
  ...each(["c0004"], "offers 0 not 1", "JSON that breaks off names no offer: malformed_terms, and nothing is guessed"),
  ...each(["c0017"], "offers 0 not 1", "a JSON-RPC result is no HTTP 402: the MCP reader takes it, this one must not"),
  ...each(
    ["c0199", "c0274"],
    "asset",
    "behind the CAIP-19 prefix stands the contract: stripped to compare, and a defect",
  ),
  ...each(
    ["c0200", "c0280"],
    "-bad_network",
    "deployed ids break the CAIP-2 grammar; refusing them would lose the offer",
  ),
  ...each(["c0361"], "-bad_network", "version 1 writes names, and a name we do not know is not a wrong one"),
  ...each(["c0424"], "network", "interwoven-1 is no number, so no EVM chain: unknown, and not eip155:interwoven-1"),
  ...each(
    ["c0506", "c0521", "c0522", "c0527"],
    "amount",
    "a JSON number is never an amount: past 2^53 it is another number than was written; a defect",
  ),
  ...each(
    ["c0547", "c0551", "c0552", "c0553", "c0625", "c0626", "c0639"],
    "+missing_domain",
    "an exact EVM entry without name and version as texts cannot be signed, whatever else it lacks",
  ),
  ...each(["c0567", "c0573"], "+bad_pay_to", "six characters are no payout address on any network"),
  ...each(
    ["c0456"],
    "network",
    "the challenge names its cluster in the words of its method: mainnet-beta is a network",
  ),
  ...each(["c0509", "c0525"], "+bad_asset", "three digits, and an ellipsis, are no contract on any network"),
  ...each(["c0681"], "+bad_pay_to", "32 zero bytes are Solana's system program, which is nobody"),
};

function each(ids: string[], differs: string, why: string): Record<string, { differs: string; why: string }> {
  return Object.fromEntries(ids.map((id) => [id, { differs, why }]));
}
