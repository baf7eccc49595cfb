import { z } from "zod";
import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import type { Checkpoint, CheckpointTrust, TreeHead } from "../../infra/tree/checkpoint.ts";
import { ED25519 } from "../../infra/tree/note.ts";
import { areSamePins, followChain, pinsOfKeys } from "../mirror/rotation.ts";
import { headOfNote } from "../published/equivocation.ts";
import { parseJson, Unproven } from "../published/errors.ts";
import { chainOf, jwksOf, KeysDocument } from "../published/keys.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { CHECKPOINT, KEYS_HINT, kindOfKey } from "../published/objects.ts";
import { RecordReader } from "../published/reader.ts";
import { createSourceFetch, type Source } from "../published/source.ts";
import {
  findSigningKeys,
  type GivenKeys,
  logOfPolicy,
  mergePins,
  openTreeHead,
  type Pins,
  parseVerifierKey,
  trustOfPins,
} from "../published/trust.ts";
import type { MonitorState, TrustedKeys } from "./state.ts";

const HintedKeys = z.looseObject({ key: z.string(), leaf: z.int().min(0) });

/** A keys document that a leaf of a tree names. */
type LoggedKeys = NonNullable<TrustedKeys["keys"]>;

/**
 * Finds the keys document that a source's hint names, and proves it by its leaf in a tree. Returns null when the source
 * does not serve the objects that prove it, or the hint names the document with the key `knownKey`.
 */
async function findKeysDocument(
  source: Source,
  head: { size: number; root: Buffer },
  knownKey?: string,
): Promise<LoggedKeys | null> {
  try {
    const hint = await source.get(KEYS_HINT, MAX_BYTES.hint);
    const { data: hintedKeys } = HintedKeys.safeParse(hint && parseJson(hint));
    if (!hintedKeys || hintedKeys.leaf >= head.size || kindOfKey(hintedKeys.key) !== "keys") return null;
    if (hintedKeys.key === knownKey) return null;
    const reader = await RecordReader.openWithFetch(createSourceFetch(source), head);
    for await (const { leaf } of reader.leaves(hintedKeys.leaf, hintedKeys.leaf + 1)) {
      const bytes =
        leaf.kind === "keys" && leaf.key === hintedKeys.key ? await source.get(hintedKeys.key, MAX_BYTES.keys) : null;
      const { data } = KeysDocument.safeParse(bytes && parseJson(bytes));
      if (!bytes || !data || leaf.kind !== "keys" || sha256hex(bytes) !== leaf.sha256) return null;
      return { n: data.n, key: leaf.key, sha256: leaf.sha256, text: Buffer.from(bytes).toString("utf8") };
    }
    return null;
  } catch (error) {
    if (error instanceof Failure) return null;
    throw error;
  }
}

/**
 * Finds the keys document as {@link findKeysDocument} does, and verifies that it continues the chain from the pinned
 * one. Returns null for a document that is older than the pinned one, or to which the source's chain does not lead.
 * @throws Unproven when a document does not continue the chain from the pinned one, SourceDown, Oversized
 */
async function findLaterDocument(
  source: Source,
  head: { size: number; root: Buffer },
  pinned: LoggedKeys,
  knownKey?: string,
): Promise<LoggedKeys | null> {
  const found = await findKeysDocument(source, head, knownKey);
  if (!found || found.n < pinned.n) return null;
  const chain = await followChain(source, chainOf(documentOf(pinned), pinned.sha256), pinned.n + 1, found.n);
  return chain.sha256 === found.sha256 ? found : null;
}

const documentOf = ({ text }: LoggedKeys): KeysDocument => KeysDocument.parse(JSON.parse(text));

/** Returns all log keys that were ever trusted, including those of `pins`. */
const everTrustedLogKeys = (pins: Pins, earlier: TrustedKeys | null): string[] => [
  ...new Set([...(earlier?.ever ?? []), pins.log, ...(pins.logs ?? [])]),
];

/**
 * The keys that a monitor trusts: those given, else those pinned at the first start, else those that the source shows
 * now, which are then pinned. A monitor follows rotations as a mirror does: each keys document must name the document
 * before it, must not have an earlier date, and must be signed by a key of the document before it.
 */
export class MonitorTrust {
  constructor(
    private readonly state: MonitorState,
    private readonly givenKeys: GivenKeys,
    private readonly clock: Clock,
    private readonly say: (text: string) => void,
  ) {
    if (givenKeys.witness && !givenKeys.log) throw new Failure("usage", "a witness key needs the log key beside it");
    const { trusted } = state;
    if (givenKeys.log) {
      const { name } = parseVerifierKey(givenKeys.log, ED25519);
      const pinnedOrigin = trusted && trustOfPins(trusted.pins).log.name;
      if (pinnedOrigin && pinnedOrigin !== name)
        throw new Failure("usage", `this folder follows ${pinnedOrigin}, not ${name}`);
    }
  }

  /** The keys that verify checkpoints that sources show now; null until keys were pinned. */
  get currentTrust(): CheckpointTrust | null {
    const { trusted } = this.state;
    return trusted && { ...trustOfPins(trusted.pins), policy: this.givenKeys.policy };
  }

  /**
   * The keys that verify stored checkpoints and those of peers: all log keys ever trusted, even retired ones, and no
   * witness.
   */
  get anyKeyTrust(): CheckpointTrust | null {
    const { trusted } = this.state;
    if (!trusted) return null;
    const [log, ...logs] = trusted.ever.map((vkey) => parseVerifierKey(vkey, ED25519));
    return { log: log!, logs };
  }

  /**
   * Verifies the checkpoint of a source. If no keys are pinned yet, or others than the given ones, pins keys first.
   * @throws Unproven, Unwitnessed, MissingObject, Failure `usage`; what the source throws
   */
  async open(source: Source, bytes: Uint8Array): Promise<Checkpoint> {
    await this.#pin(source, bytes);
    try {
      const checkpoint = openTreeHead(bytes, this.currentTrust!, this.clock);
      await this.#findMissingDocument(source, checkpoint);
      return checkpoint;
    } catch (error) {
      const checkpoint = error instanceof Unproven ? await this.#openRotated(source, bytes) : null;
      if (!checkpoint) throw error;
      return checkpoint;
    }
  }

  /**
   * Verifies a checkpoint under the keys of the keys document that the source names and the checkpoint's tree contains,
   * if that is the pinned document or continues the chain from it. These keys are pinned only if the tree begins with
   * the proven head: a stolen cards key suffices to sign a keys document with new log keys, but not to replace the
   * history that was proven.
   * @returns null when the source shows no such document, or its keys are those pinned
   * @throws Unproven, BadNote, Unwitnessed, what the source throws
   */
  async #openRotated(source: Source, bytes: Uint8Array): Promise<Checkpoint | null> {
    const { trusted } = this.state;
    if (!trusted?.keys) return null;
    const keys = await findLaterDocument(source, headOfNote(bytes), trusted.keys);
    const { name: origin } = this.currentTrust!.log;
    const pins = keys && pinsOfKeys(jwksOf(documentOf(keys)), trusted.pins, origin, this.clock.now());
    if (!pins || areSamePins(pins, trusted.pins)) return null;
    const checkpoint = openTreeHead(bytes, { ...trustOfPins(pins), policy: this.givenKeys.policy }, this.clock);
    const head = this.state.readHead();
    const reader = await RecordReader.openWithFetch(createSourceFetch(source), checkpoint);
    if (head && !(await reader.extends(head))) {
      const shown = `${checkpoint.size} leaves with the root ${checkpoint.root.toString("hex")}, under keys not pinned yet`;
      throw new Unproven(CHECKPOINT, `a tree that begins with the ${head.size} leaves proven here`, shown);
    }
    this.state.saveTrusted({ pins, ever: everTrustedLogKeys(pins, trusted), keys });
    this.say("the keys of the checkpoint were rotated: their documents continue the chain from the pinned one");
    return checkpoint;
  }

  /**
   * Pins the newest keys document in the tree of the proven head, so that this monitor accepts no further document that
   * is signed by a cards key that this document declares retired. Called when the head has grown. A source without the
   * document, or with one that does not continue the chain, changes nothing.
   * @throws faults of our own disk
   */
  async followDocuments(sources: readonly Source[], head: { size: number; root: Buffer }): Promise<void> {
    for (const source of sources) {
      const { trusted } = this.state;
      if (!trusted?.keys) return;
      try {
        const keys = await findLaterDocument(source, head, trusted.keys, trusted.keys.key);
        if (keys) this.state.saveTrusted({ ...trusted, keys });
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
      }
    }
  }

  /** Pins the newest keys document if none was pinned with the keys, since no source served one then. */
  async #findMissingDocument(source: Source, head: TreeHead): Promise<void> {
    const { trusted } = this.state;
    if (!trusted || trusted.keys) return;
    const keys = await findKeysDocument(source, head);
    if (keys) this.state.saveTrusted({ ...trusted, keys });
  }

  /** Pins the given keys, or else those that the source shows, unless they are pinned already. */
  async #pin(source: Source, bytes: Uint8Array): Promise<void> {
    const pinned = this.state.trusted;
    const log = this.givenKeys.log ?? logOfPolicy(this.givenKeys.policy, bytes);
    const isPinned =
      pinned &&
      (log === undefined || pinned.ever.includes(log)) &&
      (!this.givenKeys.witness || pinned.pins.witness === this.givenKeys.witness);
    if (isPinned) return;
    const pins = log
      ? mergePins(log, this.givenKeys.witness, pinned?.pins ?? null)
      : await findSigningKeys(source, bytes);
    // The keys are pinned only if the log's key signed this checkpoint. The caller verifies the witness's cosignature.
    const { log: key } = trustOfPins(pins);
    const head = openTreeHead(bytes, { log: key }, null);
    const keys = pinned?.keys ?? (await findKeysDocument(source, head));
    this.state.saveTrusted({ pins, ever: everTrustedLogKeys(pins, pinned), keys });
    const witness = pins.witness ? ` --witness-key ${pins.witness}` : "";
    if (!log) this.say(`trust on first use: pinned --log-key ${pins.log}${witness} as ${source.name} shows them`);
  }
}
