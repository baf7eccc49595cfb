import { canonicalBytes } from "../../infra/canonical.ts";
import { canonicalHalves, joinHalves } from "../../infra/canonical-text.ts";
import { forEachYielding } from "../../infra/concurrency.ts";
import { Failure } from "../../infra/errors.ts";
import { publishableAt } from "../record/commitment.ts";
import { Leaf, MAX_LEAF_BYTES } from "../record/leaf.ts";

type PositionMember = "index" | "seq" | "at";
/**
 * The known members of a leaf, without its position. (`Omit` would lose them, because leaves have an index signature.)
 */
type WithoutPosition<T> = T extends Leaf
  ? { [K in keyof T as string extends K ? never : K extends PositionMember ? never : K]: T[K] }
  : never;
/**
 * Under this symbol the draft of a grade carries the RFC 8785 text of its card, so that the card need not be serialized
 * twice. It is a symbol, so that serializers do not treat it as a member of the leaf.
 */
export const CARD_TEXT = Symbol("RFC 8785 text of the card");
/** A leaf (entry of the log) before it has its position in the log. */
export type Draft = WithoutPosition<Leaf> & { readonly [CARD_TEXT]?: string };
/**
 * Drafts that are published together or not at all, as neighbours: the cards of one endpoint, a correction and its
 * card.
 */
export type Group = readonly Draft[];

/**
 * The error of a draft that cannot become a leaf: it does not match its schema, has no canonical form, is too long, or
 * is a commitment whose hour is not over.
 */
export class BadLeaf extends Failure {
  constructor(draft: Draft, reason: string) {
    super("failed", `${draft.kind} leaf of ${"capability_id" in draft ? draft.capability_id : "the log"}: ${reason}`);
  }
}

/** A leaf at its position, parsed and as the published bytes. */
export interface Entry {
  leaf: Leaf;
  bytes: Buffer;
}

/** Makes the leaf of a draft: adds position and time, validates it and serializes it. @throws BadLeaf */
export function sealLeaf(draft: Draft, index: number, seq: number, publishedAt: string): Entry {
  const leaf = { ...draft, index, seq, at: publishedAt } as Leaf;
  let bytes: Buffer;
  try {
    const parsed = Leaf.safeParse(leaf);
    if (!parsed.success) {
      const issue = parsed.error.issues[0]!;
      throw new TypeError(`${issue.path.join("/") || "value"}: ${issue.message}`);
    }
    // The machine that made this draft may have a clock ahead of ours. It is left out now; a later run contains it
    // again.
    if (draft.kind === "commitment" && publishedAt < publishableAt(draft.moment).toISOString())
      throw new TypeError(`moment: the hour of ${draft.moment} is not over at ${publishedAt}`);
    bytes = bytesOf(leaf, draft[CARD_TEXT]);
  } catch (error) {
    throw new BadLeaf(draft, (error as Error).message);
  }
  if (bytes.length > MAX_LEAF_BYTES) throw new BadLeaf(draft, `${bytes.length} bytes, at most ${MAX_LEAF_BYTES}`);
  // A grade's draft is not changed after this call, so the leaf may share objects with it. The other drafts may be
  // changed by their callers, so their leaf is a copy, parsed from the bytes.
  return { leaf: leaf.kind === "grade" ? leaf : (JSON.parse(bytes.toString("utf8")) as Leaf), bytes };
}

function bytesOf(leaf: object, cardText: string | undefined): Buffer {
  if (cardText === undefined) return canonicalBytes(leaf, { published: true });
  return Buffer.from(joinHalves(canonicalHalves(leaf, "card", { published: true }), `"card":${cardText}`));
}

/** The leaves that were made from groups, the groups that they were made from, and the errors of invalid drafts. */
export interface SealedGroups {
  entries: Entry[];
  kept: Group[];
  refused: BadLeaf[];
}

/** Number of groups that are turned into leaves before other work of the process gets its turn: a few milliseconds. */
const GROUPS_PER_TURN = 32;

/**
 * Makes the leaves that follow a log of `size` leaves. `nextSeq` maps each kind of leaf to its next sequence number
 * (0 when missing). A group with a bad draft is left out whole and its error returned; the groups after it take its
 * positions.
 */
export async function sealGroups(
  groups: readonly Group[],
  size: number,
  nextSeq: ReadonlyMap<string, number>,
  publishedAt: string,
): Promise<SealedGroups> {
  const sealed: SealedGroups = { entries: [], kept: [], refused: [] };
  const seqs = new Map(nextSeq);
  const seal = (group: Group): void => {
    const nextSeqs = new Map(seqs);
    try {
      const entries = group.map((draft, i) => {
        const seq = nextSeqs.get(draft.kind) ?? 0;
        nextSeqs.set(draft.kind, seq + 1);
        return sealLeaf(draft, size + sealed.entries.length + i, seq, publishedAt);
      });
      sealed.entries.push(...entries);
      sealed.kept.push(group);
      for (const [kind, seq] of nextSeqs) seqs.set(kind, seq);
    } catch (error) {
      if (!(error instanceof BadLeaf)) throw error;
      sealed.refused.push(error);
    }
  };
  await forEachYielding(groups, GROUPS_PER_TURN, seal);
  return sealed;
}
