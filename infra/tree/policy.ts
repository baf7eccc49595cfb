import { cosignatureTime, MAX_SKEW_MS } from "./cosignature.ts";
import { BadNote, COSIGNATURE, ED25519, type Note, type NoteKey, parseVkey } from "./note.ts";
import { type PolicyText, quorumAt, readPolicyText } from "./policy-text.ts";

export { Unwitnessed } from "./policy-text.ts";

/**
 * A trust policy (c2sp.org/tlog-policy), the text format that Go's torchwood and Sigsum's tools read: known logs, known
 * witnesses, and the quorum of these that must have cosigned a checkpoint.
 */
export type WitnessPolicy = PolicyText<NoteKey>;

/** The signature type of the key in each kind of line, and its description for error messages. */
const KEY_KINDS = {
  log: { type: ED25519, says: "of a log with type 1" },
  witness: { type: COSIGNATURE, says: "of a witness with type 4" },
} as const;

/** Reads a policy. Only its ASCII characters have a meaning. @throws Failure `usage` naming the line */
export const readPolicy = (bytes: Uint8Array): WitnessPolicy =>
  readPolicyText(bytes, (vkey, kind, wrong) => {
    try {
      return parseVkey(vkey, KEY_KINDS[kind].type);
    } catch (error) {
      if (!(error instanceof BadNote)) throw error;
      throw wrong(`${error.message}; only Ed25519 keys are read: ${KEY_KINDS[kind].says}`);
    }
  });

/**
 * Returns the time since which the quorum has cosigned this note: every witness that the rule needs cosigned then or
 * later. Null when the policy requires no cosignature. A cosignature more than MAX_SKEW_MS ahead of `now` does not
 * count.
 * @param now time of the verifier's clock; when absent, no time is checked
 * @throws Unwitnessed below the quorum; BadNote when the line of one of the policy's witnesses does not verify
 */
export function witnessedAt(note: Note, policy: WitnessPolicy, now?: Date): Date | null {
  if (!policy.rule) return null;
  const times = new Map<NoteKey, number>();
  for (const key of policy.witnesses.values()) {
    const at = cosignatureTime(note, key);
    if (at !== null) times.set(key, at);
  }
  return quorumAt(policy, times, now && now.getTime() + MAX_SKEW_MS);
}
