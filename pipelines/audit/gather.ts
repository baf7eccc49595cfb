import { TextPacker } from "../../infra/zstd.ts";
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
import { CorrectionLeaf, EvidenceLeaf, GradeLeaf, type Leaf, ListingLeaf, RelatedPartiesLeaf } from "../record/leaf.ts";
import { normaliseUrl } from "../record/url.ts";
import { METHODS } from "../record/vocabulary.ts";

/** Selects the endpoints to audit: one by its id, those at one URL, or all. */
export type EndpointSelector = { cap: string } | { url: string } | "all";

const texts = new TextPacker();

/**
 * A card's leaf, kept packed until the card is recomputed, since a market of a million endpoints has millions of cards.
 * Packed, a card takes 1.1 kB of heap instead of 3.4 kB, including everything that is kept of its endpoint.
 */
export class PackedLeaf {
  private readonly packed: string;

  constructor(leaf: GradeLeaf) {
    this.packed = texts.pack(JSON.stringify(leaf));
  }

  unpack(): GradeLeaf {
    return JSON.parse(texts.unpack(this.packed)) as GradeLeaf;
  }
}

/**
 * The cards of an endpoint that one grading run published, and the state of the endpoint before them: its letters and
 * corrections, and the time and the event log positions of the previous cards.
 */
export interface CardGroup {
  leaves: readonly PackedLeaf[];
  before: Pick<AuditedEndpoint, "letters" | "corrections" | "computedAt" | "positions">;
}

export interface GatheredRecord {
  /** Endpoint id -> its groups of cards in log order; an empty list for a listed endpoint without a card. */
  groups: Map<string, CardGroup[]>;
  /** Endpoint id -> URL in the endpoint's listing. */
  urls: Map<string, string>;
  evidence: EvidenceFold;
  /**
   * Evidence files of rows by bucket (a fixed share of the endpoints), oldest first; and the files with tables of
   * related parties (payees and domains that took money).
   */
  rows: Map<number, EvidenceFile[]>;
  tableFiles: EvidenceFile[];
  /** Hashes of the tables of related parties that the cards in `groups` name. */
  tableHashes: Set<string>;
  /** The tables of related parties, computed from the leaves up to the first unreadable one. */
  relatedParties: RelatedPartiesFold;
  size: number;
  /**
   * First leaf that could not be read, null when all could. A difference in a later card proves nothing against the
   * record.
   */
  hole: number | null;
}

/**
 * The auditor's state of an endpoint: `cards` are the packed leaves of its newest cards, `positions` the position up to
 * which their grading run had read the event log, {topic: next offset}.
 */
interface AuditedEndpoint extends Endpoint<PackedLeaf, RawLetter> {
  positions: Readonly<Record<string, number>>;
}

const AUDITOR_PROJECTION: Projection<AuditedEndpoint> = {
  createEndpoint: (cap) => ({ ...emptyEndpoint(cap), positions: {} }),
  card: (leaf) => new PackedLeaf(leaf),
  letters: keepRawLetters,
  run: (_, { inputs }) => ({ positions: inputs.positions }),
};

/** Returns the endpoint ids of a URL, one for each HTTP method. Listings name those of MCP tools. */
function capsOfUrl(url: string): Set<string> {
  const normalisedUrl = normaliseUrl(url);
  return new Set(METHODS.map((method) => capId(method, normalisedUrl)));
}

/**
 * Reads the log once and collects the cards of the wanted endpoints, the letters and corrections before these cards,
 * and the evidence files. Verifies the signatures of these cards and of the keys documents, and that days are closed
 * (their evidence is published) in order and each close is complete.
 * @throws BadUrl, Unproven, MissingObject, Tampered, Oversized, SourceDown
 */
export async function gather(
  source: Source,
  head: { size: number; root: Buffer },
  wanted: EndpointSelector,
): Promise<GatheredRecord> {
  const gatherer = new RecordGatherer(source, wanted, head.size);
  for await (const { leaf } of readProvenLeaves(source, head)) await gatherer.add(leaf);
  return gatherer.finish();
}

/** Collects leaf by leaf what {@link gather} returns, for an audit that reads the log for other checks too. */
export class RecordGatherer {
  readonly #gathered: GatheredRecord;
  readonly #endpoints = new Map<string, AuditedEndpoint>();
  readonly #wantedCaps: Set<string>;
  readonly #url: string | null;
  #chain: KeyChain | null = null;
  /** The newest leaf of an incomplete day close (the evidence leaves of one day); null when no close is incomplete. */
  #openClose: EvidenceLeaf | null = null;
  /** True after unreadable leaves, until the next evidence leaf, which may be any part of any day's close. */
  #isAfterHole = false;

  constructor(
    private readonly source: Source,
    private readonly wanted: EndpointSelector,
    size: number,
    /** False when the caller itself verifies the cards' signatures and the keys documents. */
    private readonly verifiesSignatures = true,
  ) {
    this.#gathered = {
      groups: new Map(),
      urls: new Map(),
      evidence: new EvidenceFold(),
      rows: new Map(),
      tableFiles: [],
      tableHashes: new Set(),
      relatedParties: new RelatedPartiesFold(),
      size,
      hole: null,
    };
    this.#url = wanted !== "all" && "url" in wanted ? normaliseUrl(wanted.url) : null;
    // No leaf contains the URL of an unlisted endpoint, so its domain is taken from the URL that the caller gave.
    if (this.#url) for (const cap of capsOfUrl(this.#url)) this.#gathered.urls.set(cap, this.#url);
    this.#wantedCaps = wanted === "all" ? new Set() : "cap" in wanted ? new Set([wanted.cap]) : capsOfUrl(wanted.url);
  }

  /** Records that leaf `index`, and maybe leaves after it, cannot be read. */
  skip(index: number): void {
    this.#gathered.hole ??= index;
    this.#openClose = null;
    this.#isAfterHole = true;
  }

  /** Called after the last leaf. @throws Unproven when the last day close is incomplete */
  finish(): GatheredRecord {
    if (this.#openClose)
      throw new Unproven(
        `leaf ${this.#openClose.index}`,
        `${this.#openClose.parts} parts`,
        String(this.#openClose.part),
      );
    return this.#gathered;
  }

  async add(leaf: Leaf): Promise<void> {
    switch (leaf.kind) {
      case "keys":
        if (this.verifiesSignatures)
          this.#chain = verifyKeysDocument(leaf, await fetchNamed(this.source, leaf, "keys"), this.#chain);
        return;
      case "listing":
        this.#addListing(parseLeaf(ListingLeaf, leaf));
        return;
      case "correction":
      case "dispute":
      case "reinstated":
        if (this.#isWanted(leaf.capability_id)) this.#applyLeaf(leaf.capability_id, parseLeaf(CorrectionLeaf, leaf));
        return;
      case "grade":
        if (this.#isWanted(leaf.card?.capability_id)) this.#addGrade(parseLeaf(GradeLeaf, leaf));
        return;
      case "kin":
        // Unreadable leaves may have changed the table. After them, tables are taken from the evidence files only.
        if (this.#gathered.hole === null) this.#addRelatedParties(parseLeaf(RelatedPartiesLeaf, leaf));
        return;
      case "evidence":
        this.#addEvidence(parseLeaf(EvidenceLeaf, leaf));
    }
  }

  #isWanted = (cap: string): boolean => this.wanted === "all" || this.#wantedCaps.has(cap);

  /** @returns the endpoint's state before this leaf, and after it */
  #applyLeaf(cap: string, leaf: Leaf): { before: AuditedEndpoint; after: AuditedEndpoint } {
    const endpointBefore = this.#endpoints.get(cap) ?? AUDITOR_PROJECTION.createEndpoint(cap);
    const endpointAfter = applyLeafToEndpoint(endpointBefore, leaf, AUDITOR_PROJECTION);
    this.#endpoints.set(cap, endpointAfter);
    return { before: endpointBefore, after: endpointAfter };
  }

  #addListing({ capability_id: cap, url }: ListingLeaf): void {
    if (url === this.#url) this.#wantedCaps.add(cap);
    if (!this.#isWanted(cap)) return;
    this.#gathered.urls.set(cap, url);
    if (!this.#gathered.groups.has(cap)) this.#gathered.groups.set(cap, []);
  }

  #addGrade(leaf: GradeLeaf): void {
    if (this.verifiesSignatures) verifyCardSignature(leaf, this.#chain?.jwks ?? null);
    const { capability_id: cap } = leaf.card;
    this.#gathered.evidence.apply(leaf);
    this.#gathered.tableHashes.add(leaf.inputs.kin);
    const groups = this.#gathered.groups.get(cap) ?? [];
    this.#gathered.groups.set(cap, groups);
    const { before, after } = this.#applyLeaf(cap, leaf);
    if (after.cards.length === 1) groups.push({ leaves: after.cards, before });
    else groups.at(-1)!.leaves = after.cards;
  }

  /** Applies changes of the table of related parties. @throws Unproven when the leaf names another hash of the table */
  #addRelatedParties(leaf: RelatedPartiesLeaf): void {
    const { relatedParties } = this.#gathered;
    relatedParties.apply(leaf);
    if (leaf.kin === null) return;
    const { sha256 } = new RelatedParties(relatedParties.table);
    if (sha256 !== leaf.kin) throw new Unproven(`leaf ${leaf.index}`, `the table ${leaf.kin}`, sha256);
  }

  /** Checks that an evidence leaf is the next part of its day close, and adds its file. @throws Unproven */
  #addEvidence(leaf: EvidenceLeaf): void {
    const { evidence, rows, tableFiles } = this.#gathered;
    const { index, day, freeze, part, parts } = leaf;
    const previousPart = this.#openClose;
    const isNextPart = previousPart
      ? previousPart.index === index - 1 &&
        previousPart.day === day &&
        previousPart.freeze === freeze &&
        previousPart.parts === parts
      : (evidence.days.get(day)?.closes ?? 0) === freeze && (freeze > 0 || evidence.mayClose(day));
    const mayBeAnyPart = this.#isAfterHole && part <= parts;
    this.#isAfterHole = false;
    if (!mayBeAnyPart && (!isNextPart || part !== (previousPart?.part ?? 0) + 1 || part > parts)) {
      throw new Unproven(
        `leaf ${index}`,
        "the next part of a day close of the next day",
        `${day} ${freeze} ${part}/${parts}`,
      );
    }
    this.#openClose = part < parts ? leaf : null;
    evidence.apply(leaf);
    const file = evidenceFileOf(leaf);
    if (file?.holds === "kin") tableFiles.push(file);
    else if (file) rows.set(file.bucket!, [...(rows.get(file.bucket!) ?? []), file]);
  }
}
