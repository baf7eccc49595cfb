import { RelatedParties } from "../3-grade/related.ts";
import {
  applyLeafToEndpoint,
  type Endpoint,
  emptyEndpoint,
  keepRawLetters,
  type Projection,
  type RawLetter,
} from "../published/endpoint.ts";
import { parseLeaf, Unproven } from "../published/errors.ts";
import { type EvidenceFile, evidenceFileOf, fetchNamed } from "../published/files.ts";
import { EvidenceFold } from "../published/fold.ts";
import { type KeyChain, verifyCardSignature, verifyKeysDocument } from "../published/keys.ts";
import { readProvenLeaves } from "../published/leaves.ts";
import { RelatedPartiesFold } from "../published/related-parties.ts";
import type { Source } from "../published/source.ts";
import { capId } from "../record/ids.ts";
import { EvidenceLeaf, GradeLeaf, type Leaf, RelatedPartiesLeaf } from "../record/leaf.ts";
import { normaliseUrl } from "../record/url.ts";
import { METHODS } from "../record/vocabulary.ts";

/** Which endpoints are looked at: one by its id, those at one url, or all. */
export type Wanted = { cap: string } | { url: string } | "all";

/** Cards that one run published of an endpoint, and what was in the log of it before them. */
export interface CardGroup {
  leaves: readonly GradeLeaf[];
  before: Pick<Known, "letters" | "corrections">;
}

export interface Gathered {
  /** Capability -> its groups of cards in log order; an endpoint that is listed and has no card yet has none. */
  groups: Map<string, CardGroup[]>;
  /** Where the capabilities live, as their listings say. */
  urls: Map<string, string>;
  evidence: EvidenceFold;
  /** Files by bucket, oldest first, and those with payee and domain tables. */
  rows: Map<number, EvidenceFile[]>;
  tableFiles: EvidenceFile[];
  /** Payee and domain tables that the leaves name; none behind a hole. */
  relatedParties: RelatedPartiesFold;
  size: number;
  /** First leaf that could not be read, null when all could: of what stands behind it nothing bad can be said. */
  hole: number | null;
}

/** An endpoint as the auditor folds it: with the leaves of its newest cards. */
type Known = Endpoint<GradeLeaf, RawLetter>;

const GATHERED: Projection<Known> = { createEndpoint: emptyEndpoint, card: (leaf) => leaf, letters: keepRawLetters };

/** Capability ids that a url may have, whatever its method; those with an MCP tool are found by their listing. */
function capsAt(url: string): Set<string> {
  const normal = normaliseUrl(url);
  return new Set(METHODS.map((method) => capId(method, normal)));
}

/**
 * One pass over the log: the cards of the wanted endpoints with every signature verified, the history that their hold
 * follows from, and the evidence that is named. Days must close in order and each close be there whole.
 * @throws BadUrl, Unproven, MissingObject, Tampered, Oversized, SourceDown
 */
export async function gather(source: Source, head: { size: number; root: Buffer }, wanted: Wanted): Promise<Gathered> {
  const gathering = new Gathering(source, wanted, head.size);
  for await (const { leaf } of readProvenLeaves(source, head)) await gathering.add(leaf);
  return gathering.found();
}

/** What {@link gather} gathers, leaf by leaf; an audit that reads the log for other checks too feeds it itself. */
export class Gathering {
  readonly #found: Gathered;
  readonly #known = new Map<string, Known>();
  readonly #caps: Set<string>;
  readonly #url: string | null;
  #chain: KeyChain | null = null;
  /** Leaf of the day close that was read last, until its last part came. */
  #open: EvidenceLeaf | null = null;
  /** The next leaf of the evidence may be any part of any day's close. */
  #afterHole = false;

  constructor(
    private readonly source: Source,
    private readonly wanted: Wanted,
    size: number,
    /** False where the caller verifies every signature and every key document itself. */
    private readonly verifies = true,
  ) {
    this.#found = {
      groups: new Map(),
      urls: new Map(),
      evidence: new EvidenceFold(),
      rows: new Map(),
      tableFiles: [],
      relatedParties: new RelatedPartiesFold(),
      size,
      hole: null,
    };
    this.#url = wanted !== "all" && "url" in wanted ? normaliseUrl(wanted.url) : null;
    // No leaf has the url of an endpoint that is not listed, and so its domain. Here the caller gave the url.
    if (this.#url) for (const cap of capsAt(this.#url)) this.#found.urls.set(cap, this.#url);
    this.#caps = wanted === "all" ? new Set() : "cap" in wanted ? new Set([wanted.cap]) : capsAt(wanted.url);
  }

  /** Leaves from `index` on cannot be read: what they name is not known. */
  skip(index: number): void {
    this.#found.hole ??= index;
    this.#open = null;
    this.#afterHole = true;
  }

  found(): Gathered {
    if (this.#open)
      throw new Unproven(`leaf ${this.#open.index}`, `${this.#open.parts} parts`, String(this.#open.part));
    return this.#found;
  }

  async add(leaf: Leaf): Promise<void> {
    switch (leaf.kind) {
      case "keys":
        if (this.verifies)
          this.#chain = verifyKeysDocument(leaf, await fetchNamed(this.source, leaf, "keys"), this.#chain);
        return;
      case "listing":
        if (leaf.url === this.#url) this.#caps.add(leaf.capability_id);
        if (this.#isWanted(leaf.capability_id)) this.#listed(leaf.capability_id, leaf.url);
        return;
      case "correction":
      case "dispute":
      case "reinstated":
        if (this.#isWanted(leaf.capability_id)) this.#fold(leaf.capability_id, leaf);
        return;
      case "grade":
        if (this.#isWanted(leaf.card.capability_id)) this.#grade(parseLeaf(GradeLeaf, leaf));
        return;
      case "kin":
        // What the unread leaves changed is not known: tables of cards behind a hole are only in the evidence.
        if (this.#found.hole === null) this.#relatedParties(parseLeaf(RelatedPartiesLeaf, leaf));
        return;
      case "evidence":
        this.#evidence(parseLeaf(EvidenceLeaf, leaf));
    }
  }

  #isWanted = (cap: string): boolean => this.wanted === "all" || this.#caps.has(cap);

  /** @returns the endpoint before this leaf, and after it */
  #fold(cap: string, leaf: Leaf): { before: Known; after: Known } {
    const before = this.#known.get(cap) ?? GATHERED.createEndpoint(cap);
    const after = applyLeafToEndpoint(before, leaf, GATHERED);
    this.#known.set(cap, after);
    return { before, after };
  }

  #listed(cap: string, url: string): void {
    this.#found.urls.set(cap, url);
    if (!this.#found.groups.has(cap)) this.#found.groups.set(cap, []);
  }

  #grade(leaf: GradeLeaf): void {
    if (this.verifies) verifyCardSignature(leaf, this.#chain?.jwks ?? null);
    const { capability_id: cap } = leaf.card;
    this.#found.evidence.apply(leaf);
    const groups = this.#found.groups.get(cap) ?? [];
    this.#found.groups.set(cap, groups);
    const { before, after } = this.#fold(cap, leaf);
    if (after.cards.length === 1) groups.push({ leaves: after.cards, before });
    else groups.at(-1)!.leaves = after.cards;
  }

  #relatedParties(leaf: RelatedPartiesLeaf): void {
    const { relatedParties } = this.#found;
    relatedParties.apply(leaf);
    if (leaf.kin === null) return;
    const { sha256 } = new RelatedParties(relatedParties.table);
    if (sha256 !== leaf.kin) throw new Unproven(`leaf ${leaf.index}`, `the table ${leaf.kin}`, sha256);
  }

  #evidence(leaf: EvidenceLeaf): void {
    const { evidence, rows, tableFiles } = this.#found;
    const { index, day, freeze, part, parts } = leaf;
    const before = this.#open;
    const follows = before
      ? before.index === index - 1 && before.day === day && before.freeze === freeze && before.parts === parts
      : (evidence.days.get(day)?.closes ?? 0) === freeze && (freeze > 0 || evidence.mayClose(day));
    const anywhere = this.#afterHole && part <= parts;
    this.#afterHole = false;
    if (!anywhere && (!follows || part !== (before?.part ?? 0) + 1 || part > parts)) {
      throw new Unproven(
        `leaf ${index}`,
        "the next part of a day close of the next day",
        `${day} ${freeze} ${part}/${parts}`,
      );
    }
    this.#open = part < parts ? leaf : null;
    evidence.apply(leaf);
    const file = evidenceFileOf(leaf);
    if (file?.holds === "kin") tableFiles.push(file);
    else if (file) rows.set(file.bucket!, [...(rows.get(file.bucket!) ?? []), file]);
  }
}
