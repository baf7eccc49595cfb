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

/** Which endpoints are audited: one by its id, those at one URL, or all. */
export type Wanted = { cap: string } | { url: string } | "all";

/** The cards of an endpoint that one run published, and the endpoint's letters and corrections in the log before them. */
export interface CardGroup {
  leaves: readonly GradeLeaf[];
  before: Pick<AuditedEndpoint, "letters" | "corrections">;
}

export interface Gathered {
  /** Endpoint id -> its groups of cards in log order; an empty list for a listed endpoint without a card. */
  groups: Map<string, CardGroup[]>;
  /** Endpoint id -> URL in its listing. */
  urls: Map<string, string>;
  evidence: EvidenceFold;
  /** Evidence files of rows by bucket, oldest first; and the files with tables of related parties (payees and domains). */
  rows: Map<number, EvidenceFile[]>;
  tableFiles: EvidenceFile[];
  /** Tables of related parties (payees and domains) that the leaves name, up to the first unreadable leaf. */
  relatedParties: RelatedPartiesFold;
  size: number;
  /** First leaf that could not be read, null when all could. A fault in later leaves proves nothing against the record. */
  hole: number | null;
}

/** The auditor's state of an endpoint, with the leaves of its newest cards. */
type AuditedEndpoint = Endpoint<GradeLeaf, RawLetter>;

const AUDITOR_PROJECTION: Projection<AuditedEndpoint> = {
  createEndpoint: emptyEndpoint,
  card: (leaf) => leaf,
  letters: keepRawLetters,
};

/** The endpoint ids that a URL may have, one for each HTTP method. Endpoints of MCP tools are found by their listing. */
function capsOfUrl(url: string): Set<string> {
  const normal = normaliseUrl(url);
  return new Set(METHODS.map((method) => capId(method, normal)));
}

/**
 * Reads the log once and collects the cards of the wanted endpoints, the letters and corrections before them, and the
 * evidence files. Verifies every signature, and that days are closed in order and each close is complete.
 * @throws BadUrl, Unproven, MissingObject, Tampered, Oversized, SourceDown
 */
export async function gather(source: Source, head: { size: number; root: Buffer }, wanted: Wanted): Promise<Gathered> {
  const gathering = new Gathering(source, wanted, head.size);
  for await (const { leaf } of readProvenLeaves(source, head)) await gathering.add(leaf);
  return gathering.found();
}

/** Does the work of {@link gather} leaf by leaf, for an audit that reads the log for other checks too. */
export class Gathering {
  readonly #found: Gathered;
  readonly #known = new Map<string, AuditedEndpoint>();
  readonly #caps: Set<string>;
  readonly #url: string | null;
  #chain: KeyChain | null = null;
  /** Leaf of the day close that is being read, null after its last part. */
  #open: EvidenceLeaf | null = null;
  /** True after unreadable leaves: the next evidence leaf may be any part of any day's close. */
  #afterHole = false;

  constructor(
    private readonly source: Source,
    private readonly wanted: Wanted,
    size: number,
    /** False when the caller verifies every signature and every keys document itself. */
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
    // The URL of an unlisted endpoint is in no leaf. Here the caller gave the URL.
    if (this.#url) for (const cap of capsOfUrl(this.#url)) this.#found.urls.set(cap, this.#url);
    this.#caps = wanted === "all" ? new Set() : "cap" in wanted ? new Set([wanted.cap]) : capsOfUrl(wanted.url);
  }

  /** Notes that leaves from `index` on cannot be read. */
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
        // Unread leaves may have changed the table; then tables are taken from the evidence only.
        if (this.#found.hole === null) this.#relatedParties(parseLeaf(RelatedPartiesLeaf, leaf));
        return;
      case "evidence":
        this.#evidence(parseLeaf(EvidenceLeaf, leaf));
    }
  }

  #isWanted = (cap: string): boolean => this.wanted === "all" || this.#caps.has(cap);

  /** @returns the endpoint before this leaf, and after it */
  #fold(cap: string, leaf: Leaf): { before: AuditedEndpoint; after: AuditedEndpoint } {
    const before = this.#known.get(cap) ?? AUDITOR_PROJECTION.createEndpoint(cap);
    const after = applyLeafToEndpoint(before, leaf, AUDITOR_PROJECTION);
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
