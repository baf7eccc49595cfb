import { readFileSync } from "node:fs";
import { join } from "node:path";
import { compress, decompress } from "zstd-napi";
import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import { signObject } from "../../infra/keys/signer.ts";
import type { NewRecord } from "../../infra/log/log.ts";
import { gradeRows } from "../../pipelines/3-grade/pure.ts";
import { NO_RELATED_PARTIES_SHA256, RelatedParties } from "../../pipelines/3-grade/related.ts";
import { whyText } from "../../pipelines/3-grade/why.ts";
import type { EvidenceDraft } from "../../pipelines/4-publish/filings.ts";
import { writeKeys } from "../../pipelines/4-publish/keys.ts";
import { EndpointEvidence } from "../../pipelines/audit/as-of.ts";
import { evidenceKey } from "../../pipelines/published/objects.ts";
import type { UnsignedCard } from "../../pipelines/record/card.ts";
import { type EvidenceLine, parseEvidenceLine } from "../../pipelines/record/evidence.ts";
import { publishEvidence } from "../helpers/evidence-files.ts";
import { type EndpointSpec, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { capOf, handshake, intent, later, NOTHING, result, settlement, urlOf } from "../pipelines/2-ingest/records.ts";

/** A record whose cards follow from its evidence, graded by the real code, and others whose publisher lies. */

/** `good` is honest; the publisher of the others signed and logged what does not follow. */
export const GOOD = "good";
export const BETTER = "better";
export const UNFOUNDED = "unfounded";
export const UNSIGNED = "unsigned";
const NAMES = [GOOD, BETTER, UNFOUNDED, UNSIGNED];
export const specOf = (name: string): EndpointSpec => ({ url: urlOf(name) });

const LAST_DAY = "2026-11-20";
const DAYS = 20;
const dayAt = (n: number): string =>
  new Date(Date.parse(`${LAST_DAY}T00:00:00.000Z`) - (DAYS - 1 - n) * 86_400_000).toISOString().slice(0, 10);

/** Twenty days of four handshakes and two paid calls, one of which in eight brings nothing. */
function recordsOf(name: string): NewRecord[] {
  return Array.from({ length: DAYS }, (_, n) => {
    const day = dayAt(n);
    const probes = ["01", "07", "13", "19"].map((hour) => handshake(name, `${day}T${hour}:10:00.000Z`));
    const calls = ["02", "14"].flatMap((hour, i) => {
      const at = `${day}T${hour}:20:00.000Z`;
      const call = intent(name, at);
      const came = n % 4 === 3 && i === 0 ? NOTHING : { outcome: 1, latency_ms: 300 + 10 * n };
      return [
        call,
        settlement(name, call.eventId, later(at, 1_000)),
        result(name, call.eventId, later(at, 2_000), came),
      ];
    });
    return [...probes, ...calls];
  }).flat();
}

async function rowsOf(record: PublicRecord, files: readonly EvidenceDraft[], name: string): Promise<EndpointEvidence> {
  const evidence = new EndpointEvidence();
  for (const { key } of files) {
    const text = decompress((await record.store.get(key!))!.bytes).toString("utf8");
    for (const line of text.trimEnd().split("\n")) {
      const found = parseEvidenceLine(JSON.parse(line)) as EvidenceLine;
      if (found.capability_id === capOf(name)) evidence.add(found);
    }
  }
  return evidence;
}

/** What a lying publisher makes of a card before it signs it. */
const LIES: Record<string, (card: UnsignedCard) => UnsignedCard> = {
  // A letter above what its own figures allow.
  [BETTER]: (card) => ({ ...card, band: "A" }),
  // Figures that agree with each other, of other rows.
  [UNFOUNDED]: (card) => ({ ...card, sample_count: card.sample_count + 40 }),
};

async function publishCard(
  record: PublicRecord,
  name: string,
  files: readonly EvidenceDraft[],
  at: string,
): Promise<void> {
  const cap = capOf(name);
  const positions = { "observations.free": 1_000, "observations.paid": 1_000 };
  const endpoint = (await rowsOf(record, files, name)).endpointAsOf(cap, positions, null);
  const line = gradeRows(endpoint, new RelatedParties([]), new Date(at));
  const made = line.cards.find(({ headline }) => headline)!;
  const card = (LIES[name] ?? ((one) => one))(made.card);
  const signed = record.sign(card);
  const signature = name === UNSIGNED ? signObject(record.keys.answers, card).signature : signed.signature;
  await record.publish([
    {
      ...{ kind: "grade" as const, day: at.slice(0, 10), raw_band: card.band, headline: true },
      why: whyText({ band: card.band, parts: made.why, heldUntil: null }),
      inputs: { positions, digest: line.inputs_digest, kin: NO_RELATED_PARTIES_SHA256 },
      card: { ...signed, signature },
    },
  ]);
}

/** @param theirs keys of another record: a second history under the same names */
export async function provenRecord(theirs?: PublicRecord["keys"]): Promise<PublicRecord> {
  const record = await PublicRecord.open(theirs);
  const keys = await writeKeys(
    record.store,
    record.committer.fold,
    record.jwks,
    record.keys,
    new Date("2026-10-01T00:00:00.000Z"),
  );
  // The second history differs from its second leaf on.
  if (theirs) await record.publish([keys!], [listingDraft({ url: "https://elsewhere.example/x" })]);
  await record.publish(...(theirs ? [] : [[keys!]]), ...NAMES.map((name) => [listingDraft(specOf(name))]));
  for (const name of NAMES) {
    const files = await publishEvidence(record, recordsOf(name));
    await publishCard(record, name, files, `${LAST_DAY}T23:59:59.000Z`);
    // The newest card is of a day whose evidence is not published yet.
    if (name === GOOD) await publishCard(record, name, files, "2026-11-21T06:00:00.000Z");
  }
  await record.live(NAMES.map((name) => rowOf(specOf(name))));
  return record;
}

/** An evidence file with another first paid row, packed and named anew, as a service that lies would serve it. */
export function otherRows(packed: Uint8Array, key: string): { key: string; packed: Buffer } {
  const text = decompress(packed).toString("utf8");
  let done = false;
  const lines = text.split("\n").map((line) => {
    if (done || !line.includes('"kind":1')) return line;
    done = true;
    return canonicalText({ ...JSON.parse(line), latency_ms: 7 });
  });
  const other = lines.join("\n");
  const [, day, bucket] = /^evidence\/([\d-]+)\/(\d+)\./.exec(key)!;
  return { key: evidenceKey(day!, Number(bucket), sha256hex(other)), packed: compress(Buffer.from(other)) };
}

/** The built module. */
export const moduleText = (): string =>
  readFileSync(join(import.meta.dirname, "../../serving/client/dist/prove.mjs"), "utf8");
