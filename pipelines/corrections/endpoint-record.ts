import { capId, isId, partitionOf } from "../record/ids.ts";
import { BadUrl, normaliseUrl } from "../record/url.ts";
import { METHODS } from "../record/vocabulary.ts";
import { BadCorrection, NotInRecord } from "./errors.ts";
import type { Fact, Reading } from "./reading.ts";
import { Said } from "./said.ts";

/** Records that are samples by themselves; a paid one is identified by its intent (records.md, Evidence). */
const SAMPLES: ReadonlySet<string> = new Set(["handshake", "mcp.probe", "paid.intent"]);
const OBSERVED = ["observations.free", "observations.paid", "observations.mcp"] as const;

export interface HeldRecord {
  type: string;
  observedAt: string;
  /** The sample that it is a part of, when it is none itself. */
  of: string | null;
}

/** What the record holds of one endpoint, as a correction or a dispute needs to know it. */
export interface EndpointRecord {
  cap: string;
  /** Every observation by its id. */
  records: ReadonlyMap<string, HeldRecord>;
  /** How many of them are samples. */
  samples: number;
  /** Lower-case addresses that a 402 of this endpoint named to us. A listing's are not believed: anybody may write one. */
  payTos: ReadonlySet<string>;
  said: Said;
}

const textOf = (value: unknown): string | null => (typeof value === "string" ? value : null);
const memberOf = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;

/** Every address that the 402 in this observation named. */
function payTosOf({ body }: Fact): string[] {
  const terms = [body.terms, memberOf(body.first_leg, "terms")].flatMap((one) => memberOf(one, "offers") ?? []);
  const named = [body.pay_to, memberOf(body.quote, "pay_to"), ...terms.map((offer) => memberOf(offer, "pay_to"))];
  return named.flatMap((one) => textOf(one)?.toLowerCase() ?? []);
}

/** @throws NotInRecord when the record has never met this id */
export async function readEndpoint(reading: Reading, cap: string): Promise<EndpointRecord> {
  const found = await lookFor(reading, cap);
  if (!found) throw new NotInRecord(`${cap} is not in the record: no listing, no observation`);
  return found;
}

async function lookFor(reading: Reading, cap: string): Promise<EndpointRecord | null> {
  const partition = partitionOf(cap, reading.partitions);
  const records = new Map<string, HeldRecord>();
  const payTos = new Set<string>();
  const said = new Said();
  let samples = 0;
  for (const topic of OBSERVED) {
    for await (const fact of reading.facts(topic, partition, cap)) {
      const sample = SAMPLES.has(fact.type);
      const of = sample ? null : (textOf(fact.body.intent) ?? textOf(fact.body.of));
      records.set(fact.eventId, { type: fact.type, observedAt: fact.observedAt, of });
      if (sample) samples++;
      for (const payTo of payTosOf(fact)) payTos.add(payTo);
    }
  }
  if (records.size === 0 && !(await isListed(reading, partition, cap))) return null;
  for await (const fact of reading.facts("corrections", partition, cap)) said.add(fact);
  return { cap, records, samples, payTos, said };
}

async function isListed(reading: Reading, partition: number, cap: string): Promise<boolean> {
  for await (const _ of reading.facts("listings", partition, cap)) return true;
  return false;
}

/**
 * The endpoint that an id or a url names. @throws NotInRecord, BadCorrection when the text is neither, or when several
 * methods of the url are in the record and none was chosen
 */
export async function findEndpoint(reading: Reading, idOrUrl: string, method?: string): Promise<EndpointRecord> {
  if (isId("cap", idOrUrl)) return readEndpoint(reading, idOrUrl);
  const url = normalised(idOrUrl);
  const found: EndpointRecord[] = [];
  for (const one of method === undefined ? METHODS : [method]) {
    const record = await lookFor(reading, capId(one, url));
    if (record) found.push(record);
  }
  if (found.length === 1) return found[0]!;
  if (found.length === 0) throw new NotInRecord(`${url} is not in the record`);
  throw new BadCorrection(`${url} is in the record with several methods: name one of ${found.map((one) => one.cap)}`);
}

function normalised(url: string): string {
  try {
    return normaliseUrl(url);
  } catch (error) {
    if (!(error instanceof BadUrl)) throw error;
    throw new BadCorrection(`${JSON.stringify(url.slice(0, 120))} is neither a capability id nor an http(s) url`);
  }
}
