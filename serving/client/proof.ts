import canonicalize from "canonicalize";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { verifyBytes, verifyObject } from "../../infra/keys/portable.ts";
import { type PolicyText, quorumAt, readPolicyText, Unwitnessed } from "../../infra/tree/policy-text.ts";
import type { CheckAnswer } from "./answers.ts";
import { base64, bytesOf, fromBase64, hex, sha256 } from "./bytes.ts";

/**
 * Proves a card bundle (docs/card-bundle.md) under a witness policy, in any runtime with WebCrypto. A card is a signed
 * grade of an endpoint. The bundle shows that the card is a leaf of the service's public log: a Merkle tree whose size
 * and root hash the service signs as a checkpoint, which independent witnesses cosign. The formats are those of
 * c2sp.org: signed-note, tlog-checkpoint, tlog-cosignature, tlog-policy; the inclusion proof is RFC 9162 section
 * 2.1.3.2.
 */

/**
 * Why a card is not proven. tampered: a part of the proof is invalid. unwitnessed: no log of the policy signed, or too
 * few witnesses cosigned. stale: the witnesses cosigned too long ago.
 */
export type ProofFault = "tampered" | "unwitnessed" | "stale";

/** Parts of a proof, in the order in which they are checked. */
export type ProofPart = "checkpoint" | "witnesses" | "inclusion" | "card";

/** Thrown when a card is not proven. */
export class NotProven extends Error {
  constructor(
    readonly reason: ProofFault,
    readonly says: string,
    /** The part that is invalid. The parts before it are valid, those after it were not checked. */
    readonly part: ProofPart,
  ) {
    super(`${reason}: ${says}`);
    this.name = "NotProven";
  }
}

export interface WitnessPolicyOptions {
  /** Largest age of the cosignatures that the quorum needs, seconds. Default: a day, as in `touchstone mirror`. */
  maxAge_s?: number;
  /** The verifier's clock, unix ms. Default: that of the runtime. */
  now?: () => number;
}

/** A card that a quorum of witnesses has seen in the log. */
export interface ProvenCard {
  /** Name of the log. */
  origin: string;
  /** Number of leaves of the tree that the witnesses cosigned. */
  treeSize: number;
  /** Position of the card's leaf in the log, from 0. */
  index: number;
  card: Record<string, unknown>;
  /** Every witness that the quorum needs cosigned at this time or later; null if the policy requires no witness. */
  cosignedAt: Date | null;
}

/** The public key of a log or of a witness. */
interface Key {
  name: string;
  publicKey: Uint8Array;
  /** Key id of a signed note: four bytes in hex. */
  id: string;
}

/** Key type of a log, in the key ids of signed notes. */
const LOG = 0x01;
/** Key type of a witness. */
const COSIGNATURE = 0x04;
/**
 * Furthest that a cosignature may lie ahead of the verifier's clock. This limit and the next four follow those of the
 * command `touchstone`; lengths are counted in characters here, and in bytes there.
 */
const MAX_SKEW_MS = 5 * 60_000;
const MAX_NOTE = 64 * 1024;
const MAX_SIGNATURES = 64;
const MAX_LEAF = 64 * 1024;
const MAX_AGE_S = 86_400;
const NAME = /^[^\s\p{Z}+]+$/u;
/** Largest time that a Date can hold, unix ms. */
const MAX_DATE_MS = 8.64e15;

const tampered = (part: ProofPart, says: string): NotProven => new NotProven("tampered", says, part);

const idOf = async ({ name, publicKey }: Pick<Key, "name" | "publicKey">, type: number): Promise<string> =>
  hex(await sha256(bytesOf(`${name}\n`), [type], publicKey)).slice(0, 8);

/** Reads a verifier key; the caller checks the key id. @throws the error that `wrong` creates for a reason */
function readKey(vkey: string, kind: "log" | "witness", wrong: (says: string) => Error): Key {
  const [name = "", id = "", ...rest] = vkey.split("+");
  const bytes = fromBase64(rest.join("+"));
  if (bytes && bytes[0] === 6 && bytes.length > 33) throw wrong(`${name} is an ML-DSA-44 key, which is not read here`);
  const type = kind === "log" ? LOG : COSIGNATURE;
  if (!NAME.test(name) || bytes?.length !== 33 || bytes[0] !== type || !/^[0-9a-f]{8}$/.test(id)) {
    throw wrong(`not a verifier key of type ${type}: ${JSON.stringify(vkey.slice(0, 120))}`);
  }
  return { name, publicKey: bytes.subarray(1), id };
}

/** A signed note: its text, and its signature lines. */
interface Note {
  text: string;
  lines: { name: string; id: string; signature: Uint8Array }[];
}

/** Splits a checkpoint into its text and its signature lines. @throws NotProven */
function readNote(note: unknown): Note {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a note with one is no note.
  if (typeof note !== "string" || note.length > MAX_NOTE || /[\x00-\x09\x0b-\x1f]/.test(note)) {
    throw tampered("checkpoint", "the checkpoint is no signed note");
  }
  const split = note.lastIndexOf("\n\n");
  const lines = note.slice(split + 2, -1).split("\n");
  if (split < 0 || !note.endsWith("\n") || lines.length > MAX_SIGNATURES) {
    throw tampered("checkpoint", "the checkpoint is no signed note");
  }
  return {
    text: note.slice(0, split + 1),
    lines: lines.map((line) => {
      const [, name = "", text] = /^\u2014 (\S+) ([A-Za-z0-9+/]+={0,2})$/.exec(line) ?? [];
      const bytes = fromBase64(text);
      if (!bytes || bytes.length < 5 || !NAME.test(name))
        throw tampered("checkpoint", "a line of the checkpoint is no signature");
      return { name, id: hex(bytes.subarray(0, 4)), signature: bytes.subarray(4) };
    }),
  };
}

/** Parses the JSON object in a leaf. Returns an empty object if there is none. */
function objectIn(text: string): Record<string, unknown> {
  try {
    return (JSON.parse(text) ?? {}) as Record<string, unknown>;
  } catch {
    return {};
  }
}

const lineOf = ({ lines }: Note, key: Key): Uint8Array | undefined =>
  lines.find(({ name, id }) => name === key.name && id === key.id)?.signature;

/**
 * Returns when this witness cosigned a note, unix ms; null if it did not.
 * @throws NotProven for an invalid cosignature
 */
async function cosignedAt(note: Note, witness: Key): Promise<number | null> {
  const line = lineOf(note, witness);
  if (!line) return null;
  const seconds = line.length === 72 ? new DataView(line.buffer, line.byteOffset, 8).getBigUint64(0) : 0n;
  const said = bytesOf(`cosignature/v1\ntime ${seconds}\n${note.text}`);
  const at = Number(seconds) * 1000;
  if (line.length !== 72 || at > MAX_DATE_MS || !(await verifyBytes(witness.publicKey, said, line.subarray(8)))) {
    throw tampered("witnesses", `the cosignature of ${witness.name} does not hold`);
  }
  return at;
}

/** Does the inclusion proof lead from this leaf to the root hash? (RFC 9162 section 2.1.3.2) */
async function isIncluded(index: number, size: number, leaf: string, proof: unknown, root: string): Promise<boolean> {
  if (!Number.isSafeInteger(index) || index < 0 || index >= size || !Array.isArray(proof) || proof.length > 64)
    return false;
  let [hash, at, last] = [await sha256([0], bytesOf(leaf)), BigInt(index), BigInt(size - 1)];
  for (const text of proof) {
    const sibling = fromBase64(text);
    if (last === 0n || sibling?.length !== 32) return false;
    if ((at & 1n) === 1n || at === last) {
      hash = await sha256([1], sibling, hash);
      for (; (at & 1n) === 0n && at !== 0n; at >>= 1n) last >>= 1n;
    } else hash = await sha256([1], hash, sibling);
    [at, last] = [at >> 1n, last >> 1n];
  }
  return last === 0n && base64(hash) === root;
}

/**
 * Did a cards key of the keys document that was valid at the time `at` sign the card? Older cards do not name their
 * key: then every cards key is tried.
 */
async function isCardSigned(jwks: unknown, card: Record<string, unknown>, at: string): Promise<boolean> {
  const keys = (jwks as Jwks | null)?.keys;
  if (!Array.isArray(keys) || keys.length > 1024) return false;
  const named = keys.filter((key) => key?.purpose === "cards" && key.kid === (card.signing_key_id ?? key.kid));
  for (const { kid } of named) {
    const defaults = { kid };
    if ((await verifyObject({ keys }, card, { purpose: "cards", at, defaults })).ok) return true;
  }
  return false;
}

/** A witness policy, which names the accepted logs and the witnesses that must cosign. It proves card bundles. */
export class WitnessPolicy {
  readonly #maxAge_ms: number;
  readonly #now: () => number;

  constructor(
    private readonly policy: PolicyText<Key>,
    { maxAge_s = MAX_AGE_S, now = Date.now }: WitnessPolicyOptions,
  ) {
    this.#maxAge_ms = maxAge_s * 1000;
    this.#now = now;
  }

  /**
   * Proves a card bundle: a log of the policy signed the checkpoint, the policy's quorum of witnesses cosigned it
   * recently enough, the leaf is in the checkpoint's tree, and the card in the leaf is signed by the service.
   * @param now_ms the verifier's clock, unix ms
   * @throws NotProven
   */
  async prove(bundle: unknown, now_ms: number = this.#now()): Promise<ProvenCard> {
    const { checkpoint, leaf, index, proof, capability_id, keys } = (bundle ?? {}) as Record<string, unknown>;
    const note = readNote(checkpoint);
    const [origin = "", sizeText = "", root = ""] = note.text.split("\n");
    const treeSize = /^(0|[1-9]\d{0,15})$/.test(sizeText) ? Number(sizeText) : Number.NaN;
    if (!Number.isSafeInteger(treeSize)) throw tampered("checkpoint", "the checkpoint has no size");
    await this.#refuseUnsigned(note, origin);
    const seenAt = await this.#seenAt(note, now_ms);
    if (
      typeof leaf !== "string" ||
      leaf.length > MAX_LEAF ||
      !(await isIncluded(index as number, treeSize, leaf, proof, root))
    ) {
      throw tampered("inclusion", `the leaf is not in the tree of ${treeSize} leaves`);
    }
    const { kind, at, card } = objectIn(leaf);
    const of = (card as Record<string, unknown> | undefined)?.capability_id;
    if (kind !== "grade" || typeof of !== "string" || of !== capability_id) {
      throw tampered("card", `the leaf is no grade of ${String(capability_id)}`);
    }
    const signed = card as Record<string, unknown>;
    if (!(await isCardSigned(keys, signed, String(signed.computed_at ?? at)))) {
      throw tampered("card", "the card is not signed");
    }
    return { origin, treeSize, index: index as number, card: signed, cosignedAt: seenAt };
  }

  /**
   * Proves the card behind a check answer, and that the answer shows that card and its letter. An answer with neither a
   * letter nor a card is refused, since it has no card to prove.
   * @throws NotProven
   */
  async proveAnswer(answer: CheckAnswer, bundle: unknown, now_ms: number = this.#now()): Promise<ProvenCard> {
    const proven = await this.prove(bundle, now_ms);
    // The answer must contain the proven card as RFC 8785 text.
    if (answer.scorecard !== canonicalize(proven.card) || answer.capabilityId !== proven.card.capability_id) {
      throw tampered("card", "the answer shows another card than the one that is proven; ask again in a minute");
    }
    if (answer.band !== "UNRATED" && answer.band !== proven.card.band) {
      throw tampered("card", `the answer says ${answer.band}, and the card ${String(proven.card.band)}`);
    }
    return proven;
  }

  /**
   * Verifies the log's signature of the checkpoint.
   * @throws NotProven if no log of the policy signed, or a signature is invalid
   */
  async #refuseUnsigned(note: Note, origin: string): Promise<void> {
    const logs = this.policy.logs.filter(({ name }) => name === origin);
    const lines = logs.flatMap((log) => {
      const line = lineOf(note, log);
      return line ? [{ log, line }] : [];
    });
    if (lines.length === 0) {
      throw new NotProven("unwitnessed", `no log of the policy signed for ${origin}`, "checkpoint");
    }
    for (const { log, line } of lines) {
      const holds = await verifyBytes(log.publicKey, bytesOf(note.text), line);
      if (!holds) throw tampered("checkpoint", `the signature of ${origin} does not hold`);
    }
  }

  /**
   * Verifies the cosignatures. Returns the time at or after which every witness that the quorum needs cosigned; null if
   * the policy requires no witness.
   * @throws NotProven
   */
  async #seenAt(note: Note, now_ms: number): Promise<Date | null> {
    if (!this.policy.rule) return null;
    const times = new Map<Key, number>();
    for (const witness of this.policy.witnesses.values()) {
      const at = await cosignedAt(note, witness);
      if (at !== null) times.set(witness, at);
    }
    const seen = this.#quorumAt(times, now_ms)!;
    if (now_ms - seen.getTime() <= this.#maxAge_ms) return seen;
    throw new NotProven(
      "stale",
      `the quorum cosigned at ${seen.toISOString()}, more than ${this.#maxAge_ms / 1000} s ago`,
      "witnesses",
    );
  }

  #quorumAt(times: ReadonlyMap<Key, number>, now_ms: number): Date | null {
    try {
      return quorumAt(this.policy, times, now_ms + MAX_SKEW_MS);
    } catch (error) {
      if (error instanceof Unwitnessed) throw new NotProven("unwitnessed", error.message, "witnesses");
      throw error;
    }
  }
}

/**
 * Reads a witness policy, the text that the command line takes with `--witness-policy`. The text must name the log.
 * @throws Error that names an invalid line; TypeError for a policy without a log, or for a key whose id is wrong
 */
export async function witnessPolicy(
  text: string | Uint8Array,
  options: WitnessPolicyOptions = {},
): Promise<WitnessPolicy> {
  const policy = readPolicyText(typeof text === "string" ? bytesOf(text) : text, readKey);
  if (policy.logs.length === 0) throw new TypeError("witness policy: no log line, and nothing else names the log");
  for (const [keys, type] of [
    [policy.logs, LOG],
    [[...policy.witnesses.values()], COSIGNATURE],
  ] as const) {
    for (const key of keys) {
      if ((await idOf(key, type)) !== key.id) throw new TypeError(`witness policy: ${key.name} has another key id`);
    }
  }
  return new WitnessPolicy(policy, options);
}
