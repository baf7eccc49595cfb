import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { canonicalBytes, canonicalText, sha256hex } from "../../../infra/canonical.ts";
import { signObject } from "../../../infra/keys/signer.ts";
import { packBundle } from "../../../infra/tree/bundle.ts";
import { openCheckpoint, signCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { entriesPath, tilePath } from "../../../infra/tree/path.ts";
import { ZstdPacking } from "../../../infra/zstd.ts";
import { gradeRows } from "../../../pipelines/3-grade/pure.ts";
import { NO_RELATED_PARTIES_SHA256, RelatedParties } from "../../../pipelines/3-grade/related.ts";
import { EMPTY_TREE, growTree } from "../../../pipelines/4-publish/live.ts";
import { nextCardsOf } from "../../../pipelines/4-publish/take-lines.ts";
import { checkpointKeys } from "../../../pipelines/4-publish/tree-head.ts";
import { EndpointEvidence } from "../../../pipelines/audit/as-of.ts";
import { type AuditReport, audit } from "../../../pipelines/audit/audit.ts";
import {
  applyLeafToEndpoint,
  type Endpoint,
  emptyEndpoint,
  keepRawLetters,
} from "../../../pipelines/published/endpoint.ts";
import { evidenceKey } from "../../../pipelines/published/objects.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import type { SampleLine } from "../../../pipelines/record/evidence.ts";
import { bucketOf } from "../../../pipelines/record/ids.ts";
import type { Leaf } from "../../../pipelines/record/leaf.ts";
import { blockOf } from "../../../pipelines/record/time.ts";
import { capOf } from "../2-ingest/records.ts";
import { JWKS, ORIGIN, SIGNERS, TRUST } from "../4-publish/world.ts";

export const CAP = capOf("a");
export const PAID = "observations.paid";
const VERIFIER_VERSION = "touchstone-verifier-1";

/** The paid call number `n` of an endpoint, half an hour after the one before it. */
export const paidLine = (n: number, more: Partial<SampleLine> = {}): SampleLine => ({
  ...{ obs_id: `rec_${String(n).padStart(6, "0")}`, capability_id: CAP, topic: PAID, position: n, first: n },
  ...{ t: new Date(Date.UTC(2026, 9, 5) + n * 1_800_000).toISOString(), kind: 1, payer: `w${n}`, w: 1, fault: null },
  ...{ live: true, honest: true, settled: true, delivered: true, refunded: false, delivery: 1, outcome: 1 },
  ...{ schema_ok: true, latency_ms: 100, response_sha256: null, price: 0.02, input: "a", pay_to: "0x1" },
  slot: `${blockOf(new Date(Date.UTC(2026, 9, 5))) + Math.floor(n / 12)}/${(n % 12) * 30}`,
  ...more,
});

/** Members of a leaf; a test may give any of them another form than the schema has. */
export type LeafMembers = { kind: string; at: string } & Record<string, unknown>;

/** A record in memory, of any leaves, signed with all keys of the log: what a publisher could do that wants to cheat. */
export class ForgedRecord {
  readonly objects = new Map<string, Uint8Array>();
  readonly leaves: LeafMembers[] = [];
  readonly #seqs = new Map<string, number>();
  readonly #endpoints = new Map<string, Endpoint>();

  constructor() {
    const document = { schema: "svc.keys.v1", n: 0, previous: null, computed_at: "2026-09-01T00:00:00.000Z" };
    const bytes = canonicalBytes(signObject(SIGNERS.cards, { ...document, keys: JWKS.keys }), { published: true });
    const named = { n: 0, key: "keys/0.json", sha256: sha256hex(bytes) };
    this.objects.set(named.key, bytes);
    this.objects.set("hint/keys.json", canonicalBytes({ ...named, leaf: 0 }));
    this.add({ kind: "keys", at: "2026-09-01T00:00:00.000Z", ...named, bytes: bytes.length });
  }

  add(leaf: LeafMembers): void {
    const seq = this.#seqs.get(leaf.kind) ?? 0;
    this.#seqs.set(leaf.kind, seq + 1);
    this.leaves.push({ seq, ...leaf, index: this.leaves.length });
  }

  /** Adds the cards that the grader computes of these lines of one endpoint at `now`, as `change` makes them. */
  grade(
    lines: readonly SampleLine[],
    now: string,
    positions: Record<string, number>,
    change: (card: Record<string, unknown>) => object = (card) => card,
    at = now,
  ): void {
    const cap = lines[0]!.capability_id;
    const evidence = new EndpointEvidence();
    for (const line of lines) evidence.add(line);
    const rows = evidence.endpointAsOf(cap, positions, null);
    const line = gradeRows(rows, new RelatedParties([]), new Date(now), VERIFIER_VERSION);
    for (const { runCard, card, why } of nextCardsOf(this.#endpoints.get(cap) as never, { now }, line, [])) {
      const signed = signObject(SIGNERS.cards, change({ ...card, verifier_version: VERIFIER_VERSION }));
      this.add({
        ...{ kind: "grade", at, day: now.slice(0, 10), raw_band: runCard.raw_band, headline: runCard.headline, why },
        inputs: { positions, digest: line.inputs_digest, kin: NO_RELATED_PARTIES_SHA256 },
        card: signed,
      });
      const projection = { createEndpoint: emptyEndpoint, card: () => null, letters: keepRawLetters };
      const before = this.#endpoints.get(cap) ?? emptyEndpoint(cap);
      this.#endpoints.set(cap, applyLeafToEndpoint(before, this.leaves.at(-1) as Leaf, projection as never));
    }
  }

  /** Closes a day with a file of these lines, which may be JSON of any form, or without one. */
  async close(day: string, at: string, lines: readonly (object | string)[] = []): Promise<void> {
    if (lines.length === 0) return this.closeWith(day, at, 0, null);
    const packing = new ZstdPacking(true);
    const textOf = (line: object | string) => (typeof line === "string" ? line : canonicalText(line));
    for (const line of lines) await packing.add(Buffer.from(`${textOf(line)}\n`));
    this.closeWith(day, at, lines.length, await packing.end());
  }

  closeWith(day: string, at: string, rows: number, file: Awaited<ReturnType<ZstdPacking["end"]>> | null): void {
    const bucket = file ? bucketOf(CAP) : null;
    const key = file && evidenceKey(day, bucket!, file.sha256);
    if (file) this.objects.set(key!, file.packed);
    this.add({
      ...{ kind: "evidence", at, day, freeze: 0, part: 1, parts: 1, holds: file ? "rows" : "nothing", bucket, rows },
      ...{ positions: file ? { [PAID]: rows } : {}, below: null, key, sha256: file && sha256hex(file.packed) },
      ...{ bytes: file?.packed.length ?? 0, unpacked_sha256: file?.sha256 ?? null, unpacked_bytes: file?.bytes ?? 0 },
    });
  }

  /**
   * Its objects under a signed checkpoint, as a source shows them.
   * @param entries bytes of the leaves, which need not be JSON
   */
  async open(entries: readonly Uint8Array[] = this.leaves.map((leaf) => canonicalBytes(leaf))) {
    const { live, tiles, bundles } = growTree(
      EMPTY_TREE,
      entries.map((entry) => Buffer.from(entry)),
    );
    const objects = new Map(this.objects);
    for (const { level, n, width, bytes } of tiles) objects.set(tilePath(level, n, width), Buffer.from(bytes));
    for (const { n, entries } of bundles) objects.set(entriesPath(n, entries.length), await packBundle(entries));
    const keys = checkpointKeys(ORIGIN, SIGNERS);
    const head = { origin: ORIGIN, size: entries.length, root: live.tree.root() };
    const note = signCheckpoint(head, keys.log, keys.witness, new Date());
    objects.set("checkpoint", note);
    const source: Source = {
      name: "memory",
      get: async (key) => objects.get(key) ?? null,
      close: async () => undefined,
    };
    return { objects, source, head: openCheckpoint(note, TRUST) };
  }

  /** Writes its objects to a folder, for another process. */
  async write(dir: string): Promise<void> {
    for (const [key, bytes] of (await this.open()).objects) {
      await mkdir(dirname(join(dir, key)), { recursive: true });
      await writeFile(join(dir, key), bytes);
    }
  }

  async audit(): Promise<AuditReport> {
    return audit(await this.open());
  }
}

export const findingOf = ({ findings }: AuditReport, check: string) => findings.find((one) => one.check === check)!;
