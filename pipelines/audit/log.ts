import { canonicalText } from "../../infra/canonical.ts";
import { Failure } from "../../infra/errors.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { KeysUnread, parseJson, Unproven } from "../published/errors.ts";
import { fetchNamed } from "../published/files.ts";
import { PublishedFold } from "../published/fold.ts";
import { CardSignatures, type KeyChain, UNREADABLE_KEYS, verifyKeysDocument } from "../published/keys.ts";
import { readProvenLeaves } from "../published/leaves.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { CHECKPOINT, INDEX_HINT, KEYS_HINT } from "../published/objects.ts";
import type { Source } from "../published/source.ts";
import { commitmentHash, publishableAt } from "../record/commitment.ts";
import { type CommitmentLeaf, type EvidenceLeaf, Leaf } from "../record/leaf.ts";
import { ArchiveAudit } from "./archives.ts";
import { Check, canonicalTextIn, type Finding, type Problem, problemOf } from "./findings.ts";

/** Stands for the chain of keys documents when skipped leaves may have named its newest documents. */
const UNSEEN_CHAIN: KeyChain = { jwks: UNREADABLE_KEYS, sha256: "" };

/**
 * Reads the leaves in order and checks each against the rules of the log: positions without gaps, times that never go
 * back, RFC 8785 bytes, a valid chain of keys documents, and the signature of each card under the keys that were
 * valid at its position.
 */
export class LogAudit {
  readonly leaves = new Check("leaves");
  readonly keys = new Check("keys documents");
  readonly cards = new Check("card signatures");
  readonly commitments = new CommitmentAudit();
  readonly fold = new PublishedFold();
  readonly evidence: EvidenceLeaf[] = [];
  readonly archiveAudit = new ArchiveAudit();
  readonly #signatures: CardSignatures;
  /** Number of cards that were read, without those whose signature is wrong or could not be verified. */
  #signedCards = 0;
  #chain: KeyChain | null = null;
  #nextIndex = 0;
  #skipped = 0;
  /** Number of the keys document that has to be named next. */
  #nextKeysNumber = 0;
  #previousAt = "";

  constructor(private readonly source: Source) {
    this.#signatures = new CardSignatures((error) => {
      const problem = problemOf(error);
      if (!problem) throw error;
      this.#signedCards--;
      // A key can be unknown because a skipped leaf named the document that contains it.
      const isUnread = error instanceof KeysUnread || (this.#skipped > 0 && problem.got === "unknown_key");
      if (isUnread) this.cards.countNotRun("the keys document of their position could not be read");
      else this.cards.addProblem(problem);
    });
  }

  /**
   * Reads the next leaf. If it breaks a rule, this becomes a problem of a check, and the audit continues.
   * @returns the leaf, or null when it cannot be used
   */
  async add(bytes: Buffer): Promise<Leaf | null> {
    const index = this.#nextIndex++;
    const commitmentsBefore = this.fold.commitments.size;
    const leaf = this.#parseLeaf(index, bytes);
    if (!leaf) return null;
    if (leaf.kind === "keys") {
      const previousChain = this.#skipped > 0 && leaf.n !== this.#nextKeysNumber ? UNSEEN_CHAIN : this.#chain;
      this.#nextKeysNumber = leaf.n + 1;
      // Even if this document cannot be read, its leaf contains its hash, which the next document must name.
      this.#chain = { jwks: UNREADABLE_KEYS, sha256: leaf.sha256 };
      await this.keys.runStep(async () => {
        const bytes = await fetchNamed(this.source, leaf, "keys");
        if (previousChain === UNSEEN_CHAIN) throw new KeysUnread(`the document before ${leaf.key}`);
        this.#chain = verifyKeysDocument(leaf, bytes, previousChain);
      });
    }
    if (leaf.kind === "grade") {
      this.#signedCards++;
      await this.#signatures.add(leaf, bytes, this.#chain?.jwks ?? null);
    }
    if (leaf.kind === "evidence") this.evidence.push(leaf);
    if (leaf.kind === "commitment") this.commitments.add(leaf, this.fold.commitments.size > commitmentsBefore);
    this.archiveAudit.add(leaf, bytes, this.fold.archive, this.jwks);
    return leaf;
  }

  /** Skips `count` unreadable leaves. The leaves after them are checked. */
  skip(count: number): void {
    this.#nextIndex += count;
    this.#skipped += count;
    this.#chain ??= UNSEEN_CHAIN;
    this.fold.skip(count);
    this.leaves.countNotRun("their entry bundle is broken or gone, and no segment has them", count);
    this.archiveAudit.noteUnreadLeaves();
  }

  /** Called after the last leaf: waits until all signatures are verified, and counts the cards. */
  async end(): Promise<void> {
    await this.#signatures.drain();
    this.cards.countOk(this.#signedCards);
  }

  /** Parses a leaf, checks it against the rules, and applies it to the fold; null when it cannot be used. */
  #parseLeaf(index: number, bytes: Buffer): Leaf | null {
    const key = `leaf ${index}`;
    const text = bytes.toString("utf8");
    const value = parseJson(bytes);
    const { data: leaf, error } = Leaf.safeParse(value);
    if (!leaf) {
      this.leaves.addProblem({
        key,
        expected: "a leaf of a known kind",
        got: error?.issues[0]?.message ?? text.slice(0, 80),
      });
      return null;
    }
    try {
      if (canonicalTextIn(key, value) !== text)
        this.leaves.addProblem({ key, expected: "RFC 8785 bytes", got: text.slice(0, 80) });
    } catch (error) {
      this.leaves.addProblem(problemOf(error)!);
      return null;
    }
    if (leaf.at < this.#previousAt)
      this.leaves.addProblem({ key, expected: `a time not before ${this.#previousAt}`, got: leaf.at });
    this.#previousAt = leaf.at;
    try {
      this.fold.apply(leaf, bytes);
      const otherHash = leaf.kind === "schedule" ? this.#otherHashOf(leaf) : null;
      if (otherHash) this.leaves.addProblem({ key, ...otherHash });
      else this.leaves.countOk();
    } catch (failure) {
      this.leaves.addProblem({
        key,
        expected: "the next place and number of its kind",
        got: (failure as Error).message,
      });
      return null;
    }
    return leaf;
  }

  /** Returns a problem if a schedule leaf names another hash than the first one for its day, which is binding. */
  #otherHashOf({ day, salt_hash: got }: Leaf & { kind: "schedule" }): Omit<Problem, "key"> | null {
    const first = this.fold.schedules.get(day)!.salt_hash;
    return got === first ? null : { expected: `the hash of the salt of ${day}, ${first}`, got };
  }

  /** The keys of the newest keys document, and its hash. The keys are UNREADABLE_KEYS if it could not be proven. */
  get chain(): KeyChain | null {
    return this.#chain;
  }

  get jwks(): Jwks | null {
    return this.#chain?.jwks ?? null;
  }

  get findings(): Finding[] {
    return [this.leaves.finding, this.keys.finding, this.cards.finding, this.commitments.finding];
  }
}

/**
 * Returns the tree size in the checkpoint that the source shows now, without verifying it. The tree may have grown
 * since the audit began.
 */
async function currentSizeOf(source: Source): Promise<number> {
  const note = await source.get(CHECKPOINT, MAX_BYTES.note);
  return Number(
    Buffer.from(note ?? [])
      .toString("utf8")
      .split("\n")[1] ?? 0,
  );
}

/**
 * Checks the hints, the two unsigned objects that name the newest index and the newest keys document. Each must name
 * the newest one in the audited leaves (`fold`), or a later leaf if the tree has grown since the audit began.
 */
export async function auditHints(source: Source, fold: PublishedFold, hasHoles: boolean): Promise<Finding> {
  const check = new Check("hints");
  if (hasHoles) {
    check.countNotRun("leaves are unread that may be what they name", 2);
    return check.finding;
  }
  for (const [key, want] of [
    [INDEX_HINT, fold.index],
    [KEYS_HINT, fold.keys],
  ] as const) {
    await check.runStep(async () => {
      const bytes = await source.get(key, MAX_BYTES.hint);
      if (!bytes && !want) return;
      if (!bytes) throw new MissingObject(key);
      const text = Buffer.from(bytes).toString("utf8");
      const hint = parseJson(bytes) as { leaf?: unknown } | null | undefined;
      const isNewer =
        typeof hint?.leaf === "number" && hint.leaf >= fold.size && hint.leaf < (await currentSizeOf(source));
      if (!isNewer && text !== canonicalText(want)) throw new Unproven(key, canonicalText(want), text.slice(0, 200));
    });
  }
  return check.finding;
}

/**
 * Checks the commitments of a log (hashes of purchases that are not public). Each must be published only once, and only
 * after the hour that it names: an earlier leaf would reveal the time of the purchase more exactly. The hashed bytes
 * are not checked, since only the buyer has them.
 */
export class CommitmentAudit {
  readonly #check = new Check("commitments");

  /** @param isNew true if no earlier leaf contains this commitment */
  add({ index, at, moment, sha256 }: CommitmentLeaf, isNew: boolean): void {
    const key = `leaf ${index}`;
    const publishableTime = publishableAt(moment);
    // The schema of leaves checks the form of the hour, but not that its day exists.
    if (Number.isNaN(publishableTime.getTime())) {
      this.#check.addProblem({ key, expected: "an hour", got: moment });
      return;
    }
    const publishableFrom = publishableTime.toISOString();
    if (!isNew) this.#check.addProblem({ key, expected: "a commitment once", got: `${sha256} again` });
    else if (at < publishableFrom)
      this.#check.addProblem({ key, expected: `a commitment of ${moment} from ${publishableFrom} on`, got: at });
    else this.#check.countOk();
  }

  get finding(): Finding {
    return this.#check.finding;
  }
}

/**
 * Finds the leaf that commits to these bytes under this salt, proven under the checkpoint. A buyer proves a purchase to
 * others with it. Reads the log from its first leaf, with one segment or bundle in memory.
 * @throws Failure `unknown`; RangeError for a salt of another length; Tampered, MissingObject and what a source throws
 */
export async function openCommitment(
  source: Source,
  head: { size: number; root: Buffer },
  salt: Uint8Array,
  bytes: Uint8Array,
  onProgress: (leaves: number) => void = () => undefined,
): Promise<CommitmentLeaf> {
  const sha256 = commitmentHash(salt, bytes);
  for await (const { index, leaf } of readProvenLeaves(source, head)) {
    if (index % 1024 === 0) onProgress(index);
    if (leaf.kind === "commitment" && leaf.sha256 === sha256) return leaf;
  }
  throw new Failure(
    "unknown",
    `none of ${head.size} leaves is the commitment ${sha256}: other bytes, another salt, or its hour is not over and published yet`,
  );
}
