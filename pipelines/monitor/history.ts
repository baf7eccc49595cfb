import { createHash } from "node:crypto";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { verifyBytes } from "../../infra/keys/verify.ts";
import type { Store } from "../../infra/store/store.ts";
import { type CheckpointTrust, openCheckpoint } from "../../infra/tree/checkpoint.ts";
import { EMPTY_ROOT, sameHash } from "../../infra/tree/hash.ts";
import { BadNote, ED25519, lineOf, type NoteKey, parseNote } from "../../infra/tree/note.ts";
import { prefixProof, provenPrefix } from "../../infra/tree/proof.ts";
import { TileReader } from "../../infra/tree/tiles.ts";
import { headOfNote, makeEquivocation, proveEquivocation } from "../published/equivocation.ts";
import { SourceDown } from "../published/errors.ts";
import { createSourceFetch, type Source } from "../published/source.ts";
import { parseVerifierKey } from "../published/trust.ts";
import { rfc3339 } from "../record/time.ts";
import { type KeptCheckpoint, MAX_UNPROVEN, type MonitorState, UNREACHED_REASON, UNWITNESSED_REASON } from "./state.ts";

/** Largest number of unproven checkpoints that a round tries to prove, besides those that the sources show now. */
const MAX_TRIED_AT_ONCE = 64;
/**
 * Largest number of equivocation files that are written. One file suffices to prove that the holder of the log's key
 * signed two histories.
 */
const MAX_FILES = 16;

/** Two checkpoints that contradict each other. Their equivocation file is on the disk. */
export interface Fork {
  /** Key of the file in the folder of equivocation files; null if there are {@link MAX_FILES} already. */
  file: string | null;
  says: string;
}

export interface HistoryParts {
  state: MonitorState;
  /** Folder of the equivocation files. */
  files: Store;
  clock: Clock;
  /** True if notices are also posted to a webhook. */
  post: boolean;
}

/**
 * The checkpoints that a monitor received, and the verdict on each. A checkpoint is stored before anything is proven,
 * so that none is lost when the process is killed. It becomes proven when tiles of a source show that, of its tree and
 * that of the proven head, the larger begins with the smaller. It becomes forked when tiles show that it does not, or
 * when another checkpoint has an equal size and another root. To become the proven head, a checkpoint must also have
 * enough witnesses; the first head is compared with no other. Otherwise a checkpoint stays unproven.
 */
export class History {
  constructor(private readonly parts: HistoryParts) {}

  /**
   * Stores a checkpoint that a source or a peer (another monitor) showed.
   * @param trust keys of the log under which it has to be signed
   * @param maxUnproven see MonitorState.keep
   * @returns whether it is new
   * @throws BadNote unless the log signed it, Failure if `maxUnproven` unproven checkpoints are stored already
   */
  keepCheckpoint(
    bytes: Uint8Array,
    trust: CheckpointTrust,
    sender: string,
    maxUnproven: number = MAX_UNPROVEN.all,
  ): boolean {
    const { state, clock } = this.parts;
    const { size, root } = openCheckpoint(bytes, trust);
    if (size === 0 && !sameHash(root, EMPTY_ROOT)) throw new BadNote("not the root of an empty tree");
    return state.keep(
      {
        ...{ digest: digestOf(bytes), size, root, note: Buffer.from(bytes), source: sender },
        seenAt: rfc3339(clock.now()),
      },
      maxUnproven,
    );
  }

  /**
   * Tries to prove or to refute unproven checkpoints with the tiles of these sources.
   * @param shownDigests digests of the checkpoints that the sources show now. These are tried in any case, since
   * peers may have sent more checkpoints than are tried in one round
   * @param mayLead returns whether the witnesses of a note suffice for its checkpoint to become the proven head
   * @returns the forks that were found
   * @throws faults of our own disk
   */
  async proveOrRefute(
    sources: readonly Source[],
    shownDigests: readonly Buffer[],
    mayLead: (note: Buffer) => boolean,
  ): Promise<Fork[]> {
    const { state } = this.parts;
    const forks: Fork[] = [];
    // The checkpoint of the largest tree is tried first. If it becomes the head, the others are compared with its tree.
    const rows = [
      ...state.listUnproven(MAX_TRIED_AT_ONCE),
      ...shownDigests.flatMap((digest) => state.findUnproven(digest) ?? []),
    ];
    const undecided = [...new Map(rows.map((one) => [one.n, one])).values()].sort((a, b) => b.size - a.size);
    for (const checkpoint of undecided) {
      const head = state.readHead();
      const fork =
        head && checkpoint.size <= head.size
          ? await this.#tryBelow(checkpoint, head, sources)
          : await this.#tryAbove(checkpoint, head, sources, mayLead);
      if (fork) forks.push(fork);
    }
    // Two checkpoints of one size with different roots contradict each other. No tiles are needed to show this.
    for (const checkpoint of undecided) {
      const twin = state.findConflicting(checkpoint);
      if (twin) forks.push(await this.#fork(checkpoint, [twin, checkpoint], []));
    }
    return forks;
  }

  /**
   * Compares a checkpoint of a larger tree than the head's with the head, using tiles of the larger tree. Without a
   * head only the tiles are checked.
   */
  async #tryAbove(
    checkpoint: KeptCheckpoint,
    head: KeptCheckpoint | null,
    sources: readonly Source[],
    mayLead: (note: Buffer) => boolean,
  ): Promise<Fork | null> {
    const { state } = this.parts;
    const comparison = await this.#compare(head, checkpoint, sources);
    if ("why" in comparison) {
      state.postpone(checkpoint.n, comparison.why);
      return null;
    }
    if (comparison.nodes) return this.#fork(checkpoint, [head!, checkpoint], comparison.nodes);
    if (mayLead(checkpoint.note)) state.prove(checkpoint.n, true);
    else state.postpone(checkpoint.n, UNWITNESSED_REASON);
    return null;
  }

  /**
   * Compares a checkpoint of a tree that is not larger than the head's with the head, using tiles of the head's tree.
   */
  async #tryBelow(checkpoint: KeptCheckpoint, head: KeptCheckpoint, sources: readonly Source[]): Promise<Fork | null> {
    const { state } = this.parts;
    const isSameSize = checkpoint.size === head.size;
    // If the sizes are equal and the roots differ, the caller records the fork. That needs no tiles.
    if (isSameSize && !sameHash(checkpoint.root, head.root)) return null;
    const comparison = isSameSize || checkpoint.size === 0 ? {} : await this.#compare(checkpoint, head, sources);
    if ("why" in comparison) {
      state.postpone(checkpoint.n, comparison.why);
      return null;
    }
    if (comparison.nodes) return this.#fork(checkpoint, [checkpoint, head], comparison.nodes);
    state.prove(checkpoint.n, false);
    return null;
  }

  /**
   * Compares two checkpoints with tiles of the larger tree, which are proven under that tree's root first.
   * @param smaller null: only the tiles at the right edge of the larger tree are proven
   * @returns the nodes that prove a fork; no nodes when the larger tree begins with the smaller; `why` when no source
   * has the tiles
   */
  async #compare(
    smaller: KeptCheckpoint | null,
    larger: KeptCheckpoint,
    sources: readonly Source[],
  ): Promise<{ why: string } | { nodes?: Uint8Array[] }> {
    const reasons: string[] = [];
    let isUnreached = true;
    for (const source of [...sources].sort(
      (a, b) => Number(b.name === larger.source) - Number(a.name === larger.source),
    )) {
      try {
        const reader = await TileReader.open(larger.size, larger.root, createSourceFetch(source));
        if (!smaller || smaller.size === 0) return {};
        const nodes = await prefixProof(smaller.size, larger.size, reader.node);
        const prefix = provenPrefix(smaller.size, larger.size, larger.root, nodes);
        if (!prefix) throw new Error(`tiles of ${source.name} were proven and do not lead to the root`);
        return sameHash(prefix, smaller.root) ? {} : { nodes };
      } catch (error) {
        // The source does not have the tiles, or has others. This proves nothing about the log, so the next is tried.
        if (!(error instanceof Failure)) throw error;
        reasons.push(`${source.name}: ${error.message}`);
        isUnreached &&= error instanceof SourceDown;
      }
    }
    if (isUnreached) reasons.unshift(UNREACHED_REASON);
    return { why: reasons.join("; ").slice(0, 1_000) };
  }

  /**
   * Writes the equivocation file of a fork, then records the verdict `forked`. If the process dies between the two, the
   * next round writes an equal file.
   */
  async #fork(
    checkpoint: KeptCheckpoint,
    [smaller, larger]: readonly [KeptCheckpoint, KeptCheckpoint],
    nodes: readonly Uint8Array[],
  ): Promise<Fork> {
    const { state, files, post, clock } = this.parts;
    const { origin } = headOfNote(checkpoint.note);
    const believedKeys = state.trusted!.ever.map((vkey) => parseVerifierKey(vkey, ED25519));
    const notes = [
      withoutFalseLines(smaller.note, believedKeys),
      withoutFalseLines(larger.note, believedKeys),
    ] as const;
    const keys = believedKeys.filter((key) => notes.some((note) => lineOf(parseNote(note), key, ED25519)));
    const equivocation = makeEquivocation(origin, keys, notes, nodes);
    // Readers of the file verify it with this function too.
    proveEquivocation(equivocation);
    const bytes = canonicalBytes(equivocation);
    const key = `${sha256hex(bytes).slice(0, 16)}.json`;
    const storedFiles = await files.list("");
    const file = storedFiles.length < MAX_FILES || storedFiles.some((object) => object.key === key) ? key : null;
    if (file) await files.create(file, bytes);
    const description =
      smaller.size === larger.size
        ? `two roots for ${larger.size} leaves`
        : `the tree of ${larger.size} leaves does not begin with the tree of ${smaller.size}`;
    const sources = [smaller.source, larger.source];
    const notice = {
      type: "monitor.equivocation",
      log: origin,
      says: description,
      file,
      sources,
      at: rfc3339(clock.now()),
    };
    state.markForked(checkpoint.n, file && JSON.stringify(notice), post);
    return { file, says: `${origin}: ${description}` };
  }
}

/**
 * Returns the note without signature lines that have the id of one of the log's keys but no valid signature of that
 * key. A log could add such a line for a key that it publishes only later. As soon as readers trust that key, they
 * would refuse the note.
 */
function withoutFalseLines(bytes: Buffer, keys: readonly NoteKey[]): Buffer {
  const note = parseNote(bytes);
  const signedText = Buffer.from(note.text);
  const falseSignatures = keys.flatMap((key) => {
    const line = lineOf(note, key, ED25519);
    return line && !verifyBytes(key.publicKey, signedText, line) ? [line] : [];
  });
  if (falseSignatures.length === 0) return bytes;
  const lines = note.signatures
    .filter(({ signature }) => !falseSignatures.includes(signature))
    .map(({ name, id, signature }) => {
      const blob = Buffer.concat([Buffer.from(id, "hex"), signature]).toString("base64");
      return `\u2014 ${name} ${blob}\n`;
    });
  return Buffer.from(`${note.text}\n${lines.join("")}`);
}

/** sha256 of the signed text of a note. @throws BadNote */
export const digestOf = (bytes: Uint8Array): Buffer => createHash("sha256").update(parseNote(bytes).text).digest();
