import { canonicalText } from "../../infra/canonical.ts";
import { cardTextOf } from "../record/card-cut.mjs";
import { type CommitmentLeaf, cardMoment, type GradeLeaf, type Leaf } from "../record/leaf.ts";
import { addDays, dayOf } from "../record/time.ts";
import { ArchiveFold } from "./archive-fold.ts";
import { headlineOf, lastCounted, listingFacts, type PublishedCap, type RawLetter } from "./caps.ts";
import { EvidenceFold } from "./evidence-fold.ts";
import type { RecordReader } from "./reader.ts";

/** Days of letters kept: the hold's 14 and one to spare. The newest letter before them is kept too, it runs on. */
const RAW_DAYS = 15;

/**
 * What is published, as a fold of the leaves in order: nothing in it comes from anywhere else, so a publisher that
 * starts, a mirror and an auditor arrive at the same. Pure; kept in memory by whoever follows the log.
 */
export class PublishedFold {
  /** Leaves folded: the next one expected. */
  size = 0;
  /** Next `seq` of each kind. */
  readonly nextSeq = new Map<string, number>();
  readonly caps = new Map<string, PublishedCap>();
  /** Hash of each day's salt, and the salt once it was opened. */
  readonly schedules = new Map<string, { salt_hash: string; salt: string | null }>();
  keys: { n: number; key: string; sha256: string; leaf: number } | null = null;
  index: { tree_size: number; key: string; leaf: number } | null = null;
  readonly evidence = new EvidenceFold();
  readonly archive = new ArchiveFold();
  readonly commitments = new CommitmentFold();
  /** `at` of the newest leaf, "" before the first. */
  newest = "";
  readonly #listeners = new Set<(cap: string) => void>();
  /** Leaves that were left out, and how many had been when a kind was last seen. */
  #skipped = 0;
  readonly #skippedAt = new Map<string, number>();

  /** Be told of each endpoint that a leaf changes, before it does. @returns what ends it */
  onChange(listener: (cap: string) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * @param entry the leaf's bytes, where the caller has them: the card is cut out of them then, not printed again
   * @throws Error when a leaf is not the next one: its index or its seq leaves a gap.
   */
  apply(leaf: Leaf, entry?: Buffer): void {
    const seq = this.nextSeq.get(leaf.kind) ?? 0;
    const unseen = this.#skipped - (this.#skippedAt.get(leaf.kind) ?? 0);
    if (leaf.index !== this.size || !(leaf.seq >= seq && leaf.seq <= seq + unseen)) {
      throw new Error(`leaf ${leaf.kind} ${leaf.index}/${leaf.seq} is not the next one (${this.size}/${seq})`);
    }
    this.size++;
    this.nextSeq.set(leaf.kind, leaf.seq + 1);
    this.#skippedAt.set(leaf.kind, this.#skipped);
    this.newest = leaf.at;
    switch (leaf.kind) {
      case "grade":
        this.#grade(leaf, entry);
        return;
      case "listing":
        this.archive.listing(leaf);
        this.#cap(leaf.capability_id).listing = listingFacts(leaf);
        return;
      case "delisting":
        this.#cap(leaf.capability_id).listing = null;
        return;
      case "correction":
      case "dispute":
      case "reinstated":
        this.#cap(leaf.capability_id).corrections.push({
          leaf: leaf.index,
          kind: leaf.kind,
          position: leaf.position ?? null,
          body: leaf.body,
        });
        return;
      case "schedule":
        this.schedules.set(leaf.day, { salt_hash: leaf.salt_hash, salt: null });
        if (leaf.opens) this.#open(leaf.opens);
        return;
      case "keys":
        this.keys = { n: leaf.n, key: leaf.key, sha256: leaf.sha256, leaf: leaf.index };
        return;
      case "index":
        this.index = { tree_size: leaf.tree_size, key: leaf.key, leaf: leaf.index };
        return;
      case "evidence":
        this.evidence.evidence(leaf);
        return;
      case "commitment":
        this.commitments.add(leaf);
        return;
      case "archive":
        this.archive.archive(leaf);
    }
  }

  /** Leave out leaves that nobody can read any more. Only an auditor goes on after that: what it has then has a hole. */
  skip(count: number): void {
    this.size += count;
    this.#skipped += count;
  }

  /** Apply what the reader has beyond this. A call that ends early leaves a fold of fewer leaves. @throws as the reader does */
  async readOn(reader: Pick<RecordReader, "leaves">): Promise<void> {
    for await (const { leaf, bytes } of reader.leaves(this.size)) this.apply(leaf, bytes);
  }

  #cap(cap: string): PublishedCap {
    for (const listener of this.#listeners) listener(cap);
    let known = this.caps.get(cap);
    if (!known) {
      known = {
        cap,
        listing: null,
        cards: [],
        before: [],
        beforeLeaf: -1,
        countedBefore: "",
        computedAt: "",
        day: "",
        positions: {},
        raw: [],
        corrections: [],
      };
      this.caps.set(cap, known);
    }
    return known;
  }

  #grade(leaf: GradeLeaf, entry: Buffer | undefined): void {
    this.evidence.grade(leaf);
    this.archive.grade(leaf);
    const cap = this.#cap(leaf.card.capability_id);
    const last = cap.cards.at(-1);
    const computedAt = cardMoment(leaf);
    // Cards of one endpoint in one run are neighbours; anything else begins a new group.
    const sameGroup = last?.leaf === leaf.index - 1 && cap.computedAt === computedAt;
    if (!sameGroup) {
      cap.countedBefore = lastCounted(cap);
      cap.before = cap.cards.map(({ tier, band }) => ({ tier, band }));
      cap.beforeLeaf = last?.leaf ?? -1;
      cap.cards = [];
    }
    cap.cards.push({
      leaf: leaf.index,
      tier: leaf.card.tier,
      band: leaf.card.band,
      raw_band: leaf.raw_band,
      headline: leaf.headline,
      why: leaf.why,
      sample_count: leaf.card.sample_count ?? null,
      measured: leaf.card.components !== null,
      text: (entry && cardTextOf(entry)) ?? canonicalText(leaf.card),
    });
    cap.computedAt = computedAt;
    cap.day = leaf.day;
    cap.positions = leaf.inputs.positions;
    if (leaf.headline) {
      const { window_start: windowStart = "" } = leaf.card;
      cap.raw.push({ leaf: leaf.index, day: leaf.day, band: leaf.raw_band, windowStart, computedAt });
      cap.raw = recent(cap.raw, leaf.day);
    }
  }

  #open(opens: { day: string; salt: string }): void {
    const schedule = this.schedules.get(opens.day);
    if (schedule) schedule.salt = opens.salt;
  }
}

function recent(raw: readonly RawLetter[], day: string): RawLetter[] {
  const first = addDays(day, -RAW_DAYS);
  const from = raw.findIndex((letter) => letter.day >= first);
  return raw.slice(Math.max(0, from - 1));
}

/** UTC day of the newest leaf of a fold, or "" for an empty one. */
export const newestDay = (fold: PublishedFold): string => (fold.newest ? dayOf(new Date(fold.newest)) : "");

/** What a published headline stood on: the moment of its run (RFC 3339), and {topic: next offset} of what that had read. */
export interface Standing {
  at: string;
  read: Readonly<Record<string, number>>;
}

/** What the published headline of an endpoint stood on; undefined without one. */
export function standingOf(fold: PublishedFold, cap: string): Standing | undefined {
  const known = fold.caps.get(cap);
  return known && headlineOf(known) ? { at: known.computedAt, read: known.positions } : undefined;
}

/**
 * Commitments that the tree holds: each is published once, whoever says it again. About 80 bytes of memory a commitment,
 * as short strings of their 32 bytes; nothing is dropped with time, since a record may reach the log late.
 */
export class CommitmentFold {
  readonly #known = new Set<string>();

  /** @returns false when it was there already */
  add({ sha256 }: Pick<CommitmentLeaf, "sha256">): boolean {
    const before = this.#known.size;
    return this.#known.add(packed(sha256)).size > before;
  }

  has(sha256: string): boolean {
    return this.#known.has(packed(sha256));
  }

  get size(): number {
    return this.#known.size;
  }
}

const packed = (sha256: string): string => Buffer.from(sha256, "hex").toString("latin1");
