import { z } from "zod";
import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import type { Checkpoint, CheckpointTrust, TreeHead } from "../../infra/tree/checkpoint.ts";
import { ED25519 } from "../../infra/tree/note.ts";
import { findLaterKeys } from "../mirror/rotation.ts";
import { parseJson, Unproven } from "../published/errors.ts";
import { KeysDocument } from "../published/keys.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { HINT_KEYS, kindOfKey } from "../published/objects.ts";
import { RecordReader } from "../published/reader.ts";
import { createSourceFetch, type Source } from "../published/source.ts";
import {
  findSigningKeys,
  type GivenKeys,
  logOfPolicy,
  openTreeHead,
  type Pins,
  parseVerifierKey,
  trustOfPins,
} from "../published/trust.ts";
import type { MonitorState, TrustedKeys } from "./state.ts";

const HintedKeys = z.looseObject({ key: z.string(), leaf: z.int().min(0) });

/**
 * Finds the keys document that a source names, and proves it by its leaf in the tree of a signed checkpoint. Later
 * rotations are verified from this document on. Returns null when the source does not serve the objects that prove
 * it.
 */
async function findKeysDocument(source: Source, head: TreeHead): Promise<TrustedKeys["keys"]> {
  try {
    const hint = await source.get(HINT_KEYS, MAX_BYTES.hint);
    const { data: hintedKeys } = HintedKeys.safeParse(hint && parseJson(hint));
    if (!hintedKeys || hintedKeys.leaf >= head.size || kindOfKey(hintedKeys.key) !== "keys") return null;
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
    if (error instanceof Failure || error instanceof SyntaxError) return null;
    throw error;
  }
}

/** Returns all log keys that were ever trusted, including those of `pins`. */
const addPins = (pins: Pins, earlier: TrustedKeys | null): string[] => [
  ...new Set([...(earlier?.ever ?? []), pins.log, ...(pins.logs ?? [])]),
];

/**
 * The keys that a monitor trusts: those given, else those pinned at the first start, else those that the source shows
 * now, which are then pinned. Rotations are followed as by a mirror: each keys document names the one before it and
 * is signed by a key of that one.
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
   * Verifies the checkpoint of a source. If no keys are pinned yet, pins those that signed it.
   * @throws Unproven, Unwitnessed, MissingObject, Failure `usage`; what the source throws
   */
  async open(source: Source, bytes: Uint8Array): Promise<Checkpoint> {
    await this.#pin(source, bytes);
    const trust = this.currentTrust!;
    try {
      const checkpoint = openTreeHead(bytes, trust, this.clock);
      await this.#findMissingDocument(source, checkpoint);
      return checkpoint;
    } catch (error) {
      const { trusted } = this.state;
      if (!(error instanceof Unproven) || !trusted?.keys) throw error;
      const { key, sha256, text } = trusted.keys;
      const bytesOfKeys = Buffer.from(text);
      const info = { key, etag: sha256, size: bytesOfKeys.length, modifiedAt: this.clock.now() };
      const pinnedStore = { get: async () => ({ ...info, bytes: bytesOfKeys }) };
      const laterPins = await findLaterKeys(
        source,
        pinnedStore,
        trusted.pins,
        { key, sha256 },
        trust.log.name,
        this.clock,
      );
      if (!laterPins) throw error;
      const checkpoint = openTreeHead(bytes, { ...trustOfPins(laterPins), policy: this.givenKeys.policy }, this.clock);
      this.state.saveTrusted({ ...trusted, pins: laterPins, ever: addPins(laterPins, trusted) });
      this.say("the keys of the checkpoint were rotated: their documents continue the chain from the pinned one");
      return checkpoint;
    }
  }

  /** Pins the keys document in a later round if the source did not give it when the keys were pinned. */
  async #findMissingDocument(source: Source, head: TreeHead): Promise<void> {
    const { trusted } = this.state;
    if (!trusted || trusted.keys) return;
    const keys = await findKeysDocument(source, head);
    if (keys) this.state.saveTrusted({ ...trusted, keys });
  }

  async #pin(source: Source, bytes: Uint8Array): Promise<void> {
    const pinned = this.state.trusted;
    const log = this.givenKeys.log ?? logOfPolicy(this.givenKeys.policy, bytes);
    const isPinned =
      pinned &&
      (log === undefined || pinned.ever.includes(log)) &&
      (!this.givenKeys.witness || pinned.pins.witness === this.givenKeys.witness);
    if (isPinned) return;
    const pins: Pins = log ? { log, witness: this.givenKeys.witness ?? null } : await findSigningKeys(source, bytes);
    // The keys are pinned only if they signed this checkpoint.
    const { log: key } = trustOfPins(pins);
    const head = openTreeHead(bytes, { log: key }, null);
    const keys = pinned?.keys ?? (await findKeysDocument(source, head));
    this.state.saveTrusted({ pins, ever: addPins(pins, pinned), keys });
    const witness = pins.witness ? ` --witness-key ${pins.witness}` : "";
    if (!log) this.say(`trust on first use: pinned --log-key ${pins.log}${witness} as ${source.name} shows them`);
  }
}
