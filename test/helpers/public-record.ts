import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { canonicalBytes } from "../../infra/canonical.ts";
import { FixedClock } from "../../infra/clock.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { createKeyring, type Keys, keysDocument, loadKeys } from "../../infra/keys/keys.ts";
import { signObject } from "../../infra/keys/signer.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import type { Store } from "../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { type CheckpointTrust, signCheckpoint, witnessName } from "../../infra/tree/checkpoint.ts";
import { Committer } from "../../pipelines/4-publish/committer.ts";
import type { Draft, Group } from "../../pipelines/4-publish/leaves.ts";
import { headlineBasisOf } from "../../pipelines/published/fold.ts";
import { liveKey, VIEW } from "../../pipelines/published/objects.ts";
import type { Component, Components, SignedCard, UnsignedCard } from "../../pipelines/record/card.ts";
import { capId } from "../../pipelines/record/ids.ts";
import { normaliseUrl } from "../../pipelines/record/url.ts";
import { COMPONENTS, type Defect } from "../../pipelines/record/vocabulary.ts";
import type { View, VolatileRow } from "../../pipelines/record/volatile.ts";
import { encodeVolatile } from "../../pipelines/record/volatile-arrow.ts";

/** A small public record on disk, written by the real publisher, for tests of everything that reads one. */
export const NOW = "2026-11-21T12:00:00.000Z";
export const ORIGIN = "touchstone.test";

export interface EndpointSpec {
  url: string;
  method?: "GET" | "POST" | "PUT";
  tool?: string;
  class?: string;
  description?: string | null;
  defects?: Defect[];
}

export const capOf = ({ url, method = "GET", tool = "" }: EndpointSpec): string =>
  capId(method, normaliseUrl(url), tool);

export function listingDraft(spec: EndpointSpec): Draft {
  return {
    kind: "listing",
    capability_id: capOf(spec),
    url: normaliseUrl(spec.url),
    method: spec.method ?? "GET",
    tool: spec.tool ?? null,
    class: spec.class ?? "any",
    description: spec.description ?? null,
    seller_controlled: true,
    defects: (spec.defects ?? []).map((defect) => ({ ...defect })),
  };
}

const component = (point: number, n_eff: number, w = 43, deff = 1): Component => ({
  point,
  lower: Math.round(point * 930_000) / 1_000_000,
  upper: Math.min(1, Math.round(point * 1_050_000) / 1_000_000),
  n_eff,
  method: `lines4/1;a=0.05;block=6h;W=${w};deff=${deff};x=outcome`,
});

/** Six components that look like a good seller's; `paid` blocks of correctness, `effective` of them in a streaky spell. */
export function componentsOf(paid: number, effective = paid): Components {
  const made = Object.fromEntries(COMPONENTS.map((name) => [name, component(0.98, 60)])) as Components;
  return { ...made, correctness: component(0.97, effective, paid, paid === effective ? 1 : paid / effective) };
}

export const cardOf = (spec: EndpointSpec, card: Partial<UnsignedCard> = {}): UnsignedCard => ({
  schema: "svc.scorecard.v2",
  capability_id: capOf(spec),
  tier: "OUTCOME_VERIFIED",
  band: "B",
  composite: 0.871204,
  components: componentsOf(43),
  weights_applied: { correctness: 0.4, honesty: 0.2, liveness: 0.15, schema_conformance: 0.1, price_stability: 0.1 },
  weights_version: "w-2026.11.1",
  sample_count: 120,
  window_days: 86,
  window_start: "2026-08-27T00:00:00.000Z",
  computed_at: "2026-11-21T06:00:00.000Z",
  flags: [],
  evidence_sample: ["ab".repeat(32)],
  method: "svc-grade-1",
  verifier_version: "touchstone-verifier-1",
  ...card,
});

export const PAYEE = "0x1111111111111111111111111111111111111111";

/** Rows as the lake's owner writes them, from what a test cares about. */
export const rowOf = (
  spec: EndpointSpec,
  row: Partial<VolatileRow> = {},
  pay_to: string | null = row.pay_to === undefined ? PAYEE : row.pay_to,
): VolatileRow => ({
  capability_id: capOf(spec),
  url: normaliseUrl(spec.url),
  method: spec.method ?? "GET",
  probes: 100,
  answered: 99,
  asked_for_payment: 98,
  last_state: null,
  last_status: null,
  first_seen: Date.parse("2026-09-01T00:00:00.000Z"),
  last_seen: Date.parse("2026-11-21T11:55:00.000Z"),
  price: "0.020000",
  // As a row of the market has it: the contract that the 402 named, and whether a unit of it is a dollar.
  asset: "0x036cbd53842c5426634e7929541ec2318f3dcf7e",
  networks: ["eip155:84532"],
  unit: "USD",
  asked_pay_to: pay_to,
  pay_to,
  pay_tos: pay_to === null ? [] : [pay_to],
  pay_tos_before: [],
  pay_tos_listed: [],
  protocols: ["x402"],
  networks_listed: ["eip155:84532"],
  distinct_prices: 1,
  paid_calls: 43,
  unserved: 0,
  unserved_since: null,
  thefts: null,
  retried: null,
  retried_at: null,
  payments: null,
  observations_since: 3,
  withdrawn_since: 0,
  defects: JSON.stringify(spec.defects ?? []),
  corrected: "[]",
  request: null,
  ...row,
});

export class PublicRecord {
  readonly clock = new FixedClock(NOW);
  readonly logger = createLogger("silent");
  readonly metrics = createMetrics();
  #views = 0;

  private constructor(
    readonly dir: string,
    readonly store: Store,
    private readonly privateStore: Store,
    readonly keys: Keys,
    readonly committer: Committer,
    readonly trust: CheckpointTrust,
  ) {}

  /** @param theirs keys of another record, to make a second history under the same names. */
  static async open(theirs?: Keys): Promise<PublicRecord> {
    const dir = await mkdtemp(join(tmpdir(), "public-record-"));
    if (!theirs) createKeyring(join(dir, "keys"), new Date("2026-01-01T00:00:00.000Z"));
    const keys = theirs ?? loadKeys(join(dir, "keys"));
    const store = await openDirectoryStore(join(dir, "public"));
    const privateStore = await openDirectoryStore(join(dir, "private"));
    const trust = {
      log: { name: ORIGIN, publicKey: keys.log.publicKey },
      witness: { name: witnessName(ORIGIN), publicKey: keys.witness.publicKey },
    };
    const committer = new Committer({
      privateStore,
      publicStore: store,
      keys: { log: { ...trust.log, sign: keys.log.sign }, witness: { ...trust.witness, sign: keys.witness.sign } },
      origin: ORIGIN,
      clock: new FixedClock(NOW),
      logger: createLogger("silent"),
      metrics: createMetrics(),
      writer: "test",
    });
    return new PublicRecord(dir, store, privateStore, keys, committer, trust);
  }

  get jwks(): Jwks {
    return keysDocument(this.keys.ring);
  }

  /** Publish groups of leaves in one generation, as the publisher does. */
  async publish(...groups: Group[]): Promise<void> {
    const { refused } = await this.committer.commit(() => ({ groups }));
    if (refused.length > 0) throw refused[0]!;
  }

  /** A checkpoint under this record's own keys, of whatever tree. */
  note(head: { size: number; root: Buffer }, at: string = NOW): Buffer {
    const { trust, keys } = this;
    const [log, witness] = [
      { ...trust.log, sign: keys.log.sign },
      { ...trust.witness!, sign: keys.witness.sign },
    ];
    return signCheckpoint({ origin: ORIGIN, ...head }, log, witness, new Date(at));
  }

  sign(card: UnsignedCard): SignedCard {
    return signObject(this.keys.cards, card);
  }

  /** Leaves of one run's cards of an endpoint, deepest first; the first is the headline unless told. */
  grades(cards: readonly UnsignedCard[], why: string, headline = 0): Group {
    return cards.map((card, i) => ({
      kind: "grade" as const,
      day: card.computed_at.slice(0, 10),
      raw_band: card.band,
      headline: i === headline,
      why,
      inputs: { positions: { "observations.free": 10 }, digest: "00".repeat(32), kin: "11".repeat(32) },
      card: this.sign(card),
    }));
  }

  /**
   * Write a volatile table and the view that names it. Rows that do not say so count from the card that the record
   * shows now, as an owner's do.
   */
  async live(rows: readonly VolatileRow[], view: Partial<View> = {}): Promise<void> {
    const key = liveKey(0, this.#views);
    const leafOf = (cap: string) => headlineBasisOf(this.committer.fold, cap)?.leaf ?? null;
    const made = rows.map((row) => ({ card_leaf: leafOf(row.capability_id), ...row }));
    await this.store.create(key, await encodeVolatile(made));
    await this.name([key], view);
  }

  /** Write a view that names these tables. */
  async name(live: string[], view: Partial<View> = {}): Promise<void> {
    const n = this.#views++;
    const held = await this.store.head(VIEW);
    const next: View = {
      v: 1,
      at: new Date(Date.parse(NOW) + n).toISOString(),
      index: null,
      tree_size: this.committer.fold.size,
      live,
      positions: { "observations.free": { "0": n } },
      ...view,
    };
    await this.store.swap(VIEW, canonicalBytes(next), held?.etag ?? null);
  }

  async close(): Promise<void> {
    await this.store.close();
    await this.privateStore.close();
    await rm(this.dir, { recursive: true, force: true });
  }
}
