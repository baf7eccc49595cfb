import type { RetiredKey } from "../../infra/keys/keys.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { witnessName } from "../../infra/tree/checkpoint.ts";
import type { CheckpointKeys } from "./head.ts";
import type { KeysDocument } from "./keys.ts";

/** Keys in use: cards signs cards and index lists, log and witness the checkpoint; and those that they replaced. */
export interface PublisherSigners {
  cards: Signer;
  log: Signer;
  witness: Signer;
  retired?: readonly RetiredKey[];
}

/** The cards key that the newest document names and that we hold: after a rotation that is the one it replaced. */
export function vouching(before: KeysDocument | null, { cards, retired = [] }: PublisherSigners): Signer {
  const held = [cards, ...retired.flatMap(({ signer }) => (signer.purpose === "cards" ? [signer] : []))];
  return held.find(({ kid }) => before?.keys.some((key) => key.kid === kid)) ?? cards;
}

/** The checkpoint's keys under their names: the log's is the origin, the witness's stands below it. */
export function checkpointKeys(
  origin: string,
  signers: { log: Signer; witness: Signer; retired?: readonly RetiredKey[] },
): CheckpointKeys {
  const named = (name: string, signer: Signer) => ({
    name,
    publicKey: signer.publicKey,
    sign: (message: Uint8Array) => signer.sign(message),
  });
  const replaced = (signers.retired ?? []).flatMap(({ signer, until }) => {
    const role = signer.purpose;
    if (role !== "log" && role !== "witness") return [];
    return [{ role, signer: named(role === "log" ? origin : witnessName(origin), signer), until }];
  });
  return { log: named(origin, signers.log), witness: named(witnessName(origin), signers.witness), replaced };
}
