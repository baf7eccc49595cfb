import { createPrivateKey } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sha256hex } from "../../../infra/canonical.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { type Jwks, PURPOSES, type Purpose } from "../../../infra/keys/jwk.ts";
import { type Signer, signerOf } from "../../../infra/keys/signer.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createLogger, createMetrics, type Metrics } from "../../../infra/telemetry.ts";
import { NO_RELATED_PARTIES_SHA256 } from "../../../pipelines/3-grade/related.ts";
import { createPublisher, type Publisher, type PublisherOptions } from "../../../pipelines/4-publish/publisher.ts";
import type { CorrectionDraft } from "../../../pipelines/4-publish/take-lines.ts";
import { checkpointKeys } from "../../../pipelines/4-publish/tree-head.ts";
import type { ListingFacts } from "../../../pipelines/published/endpoint.ts";
import type { RunCard, RunHeader, RunLine } from "../../../pipelines/record/card.ts";
import { capId, partitionOf } from "../../../pipelines/record/ids.ts";
import { type Band, COMPONENTS, type Flag, TIERS, type Tier } from "../../../pipelines/record/vocabulary.ts";

export const ORIGIN = "record.example/tree";
export const PARTITIONS = 4;
export const LOG_ID = "log-1";

/** Fixed keys: Ed25519 is deterministic, so files signed with them never change. */
function fixedSigner(purpose: Purpose, seed: number): Signer {
  const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.alloc(32, seed)]);
  return signerOf(createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" }), purpose);
}
export const SIGNERS = Object.fromEntries(
  PURPOSES.map((purpose, i) => [purpose, fixedSigner(purpose, i + 1)]),
) as Record<Purpose, Signer>;
export const NEXT_CARDS = fixedSigner("cards", 77);
export const TRUST = checkpointKeys(ORIGIN, SIGNERS);

const jwk = (signer: Signer, from: string, retired?: string): Jwks["keys"][number] => ({
  kty: "OKP",
  crv: "Ed25519",
  x: Buffer.from(signer.publicKey).toString("base64url"),
  kid: signer.kid,
  use: "sig",
  alg: "Ed25519",
  purpose: signer.purpose,
  valid_from: from,
  ...(retired ? { retired_at: retired } : {}),
});
const BEGINNING = "2026-01-01T00:00:00.000Z";
export const JWKS: Jwks = { keys: PURPOSES.map((purpose) => jwk(SIGNERS[purpose], BEGINNING)) };
/** The cards key retired at `at`, another in its place. */
export const rotated = (at: string): Jwks => ({
  keys: [...JWKS.keys.map((key) => (key.purpose === "cards" ? { ...key, retired_at: at } : key)), jwk(NEXT_CARDS, at)],
});

export const urlOf = (name: string): string => `https://${name}.example/v1`;
export const capOf = (name: string): string => capId("GET", urlOf(name));

export const listing = (name: string, more: Partial<ListingFacts> = {}): ListingFacts => ({
  capability_id: capOf(name),
  url: urlOf(name),
  method: "GET",
  tool: null,
  class: "any",
  description: `What ${name} sells`,
  seller_controlled: true,
  defects: [],
  offers: [],
  ...more,
});

export interface CardSpec {
  tier?: Tier;
  band: Band;
  headline?: boolean;
  flags?: Flag[];
  lower?: number;
  caps?: Record<string, number>;
}

/** One endpoint's line of a run; the headline comes first unless told. `digest` stands for the rows behind it. */
export function line(name: string, now: string, specs: readonly (CardSpec | Band)[], digest = "rows"): RunLine {
  const cards = specs.map((spec, i) => runCard(name, now, typeof spec === "string" ? { band: spec } : spec, i === 0));
  return { cap: capOf(name), cards, inputs_digest: sha256hex(digest), due_at: null };
}

function runCard(name: string, now: string, spec: CardSpec, first: boolean): RunCard {
  const lower = spec.lower ?? 0.9;
  const component = { point: 0.98, lower, upper: 1, n_eff: 40, method: "lines4/1;a=0.05;block=6h;W=40;deff=1" };
  const rated = spec.band !== "UNRATED";
  return {
    card: {
      schema: "svc.scorecard.v2",
      capability_id: capOf(name),
      tier: spec.tier ?? TIERS[2]!,
      band: spec.band,
      composite: rated ? 0.912345 : 0,
      components: Object.fromEntries(COMPONENTS.map((part) => [part, component])) as RunCard["card"]["components"],
      weights_applied: { correctness: 0.4 },
      weights_version: "w-2026.11.1",
      sample_count: 40,
      window_days: 84,
      window_start: BEGINNING,
      computed_at: now,
      flags: spec.flags ?? [],
      evidence_sample: [],
      method: "svc-grade-1",
      verifier_version: "touchstone-verifier-1",
    },
    raw_band: spec.band,
    headline: spec.headline ?? first,
    why: { causes: [], figures: [], unrated: rated ? null : "12 of 30 paid calls so far; unknown, not bad" },
    caps: spec.caps ?? {},
    progress: rated ? 30 : 12,
  };
}

/** Header of a run that had read the first `next` records of every partition of both observation topics. */
export function header(now: string, next: number, more: Partial<RunHeader> = {}): RunHeader {
  const offsets = Object.fromEntries(Array.from({ length: PARTITIONS }, (_, p) => [String(p), next]));
  return {
    v: 2,
    n: next,
    log: LOG_ID,
    now,
    params_sha256: sha256hex("params"),
    positions: { "observations.free": offsets, "observations.paid": offsets },
    kin_sha256: NO_RELATED_PARTIES_SHA256,
    thieves: [],
    changed: 1,
    ...more,
  };
}

export const correction = (name: string, id: string, more: Record<string, unknown> = {}): CorrectionDraft => ({
  kind: "correction",
  capability_id: capOf(name),
  body: {
    id,
    record_id: null,
    grade_at: null,
    fault: "ours",
    says: "our checker was wrong",
    issued_at: BEGINNING,
    ...more,
  },
});

export const cardToken = (name: string, now: string, tier: Tier = TIERS[2]!): string =>
  `grade ${capOf(name)} ${tier} ${now}`;
export { partitionOf };

/** Two stores in a folder of their own, a clock that stands still, and publishers on them. */
export class World {
  readonly metrics: Metrics = createMetrics();
  readonly clock = new FixedClock("2026-11-21T04:00:00.000Z");

  private constructor(
    readonly dir: string,
    readonly privateStore: Store,
    readonly publicStore: Store,
  ) {}

  static async open(): Promise<World> {
    const dir = await mkdtemp(join(tmpdir(), "publish-"));
    const privateStore = await openDirectoryStore(join(dir, "private"));
    return new World(dir, privateStore, await openDirectoryStore(join(dir, "public")));
  }

  /** A world whose log begins on this day: with its keys. */
  static async begun(day: string): Promise<{ world: World; publisher: Publisher }> {
    const world = await World.open();
    world.clock.set(`${day}T00:00:00.000Z`);
    const publisher = world.publisher();
    await publisher.publishKeys(JWKS);
    return { world, publisher };
  }

  publisher(more: Partial<PublisherOptions> = {}): Publisher {
    return createPublisher({
      privateStore: this.privateStore,
      publicStore: this.publicStore,
      signers: SIGNERS,
      clock: this.clock,
      origin: ORIGIN,
      partitions: PARTITIONS,
      logger: createLogger("silent"),
      metrics: this.metrics,
      ...more,
    });
  }

  async close(): Promise<void> {
    await this.privateStore.close();
    await this.publicStore.close();
    await rm(this.dir, { recursive: true, force: true });
  }
}
