import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { fromBase64url, type Jwks } from "../../infra/keys/jwk.ts";
import type { Store } from "../../infra/store/store.ts";
import { witnessName } from "../../infra/tree/checkpoint.ts";
import { COSIGNATURE, ED25519, formatVkey, type SignatureType } from "../../infra/tree/note.ts";
import { chainOf, jwksOf, type KeyChain, readKeys, verifyKeysDocument } from "../published/keys.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { keysKey } from "../published/objects.ts";
import type { Source } from "../published/source.ts";
import type { Pins } from "../published/trust.ts";
import type { MirrorState, NewestLeaves } from "./state.ts";

/** Largest number of keys documents newer than the mirror's own that one run reads. */
const MAX_DOCUMENTS_AHEAD = 256;

/**
 * Returns the pins with those keys of the log and of its witness in a keys document that are not retired at `now`,
 * including keys that become valid later. A document lists all keys that were ever used, so it says which keys follow
 * the pinned ones only if it lists these. Returns null when it does not list the pinned log key, or every log key in it
 * is retired. If it does not list the pinned witness key, or every witness key in it is retired, `witnesses` is empty:
 * the pinned one stays required.
 */
export function pinsOfKeys(jwks: Jwks, { log, witness }: Pins, origin: string, now: Date): Pins | null {
  const successorsOf = (pinned: string | null, purpose: string, name: string, type: SignatureType) => {
    const listed = jwks.keys.flatMap((key) => {
      const publicKey = key.purpose === purpose ? fromBase64url(key.x) : null;
      const isRetired = key.retired_at !== undefined && new Date(key.retired_at) <= now;
      return publicKey ? [{ vkey: formatVkey({ name, publicKey }, type), isRetired }] : [];
    });
    if (pinned !== null && !listed.some(({ vkey }) => vkey === pinned)) return [];
    return listed.filter(({ isRetired }) => !isRetired).map(({ vkey }) => vkey);
  };
  const logs = successorsOf(log, "log", origin, ED25519);
  const witnesses = successorsOf(witness, "witness", witnessName(origin), COSIGNATURE);
  return logs.length > 0 ? { log, witness, logs, witnesses } : null;
}

export const areSamePins = (a: Pins, b: Pins): boolean => JSON.stringify(a) === JSON.stringify(b);

/** Called after a run: pins (saves as trusted) the keys of the newest proven keys document that are not retired. */
export async function followKeys(
  state: MirrorState,
  store: Store,
  keys: NewestLeaves["keys"],
  origin: string,
  clock: Clock,
): Promise<void> {
  const pins = await state.readPins();
  const document = keys && (await readKeys(store, keys));
  if (!pins || !document) return;
  const newPins = pinsOfKeys(jwksOf(document), pins, origin, clock.now());
  // The old pins are kept if the document lists no log key, since without one no checkpoint could be verified.
  if (newPins && !areSamePins(pins, newPins)) await state.savePins(newPins);
}

/**
 * Reads the keys documents `first` to `last` of a source, up to the first that it does not have and at most
 * MAX_DOCUMENTS_AHEAD, and verifies that each continues the chain.
 * @returns the chain with the last document that was read
 * @throws Unproven for a document that does not continue the chain
 */
export async function followChain(
  source: Pick<Source, "get">,
  chain: KeyChain,
  first: number,
  last: number,
): Promise<KeyChain> {
  let newest = chain;
  for (let n = first; n <= Math.min(last, first + MAX_DOCUMENTS_AHEAD - 1); n++) {
    const bytes = await source.get(keysKey(n), MAX_BYTES.keys);
    if (!bytes) break;
    newest = verifyKeysDocument({ n, key: keysKey(n), sha256: sha256hex(bytes) }, bytes, newest);
  }
  return newest;
}

/**
 * Finds the keys of the newest checkpoint for a mirror that did not run while old and new keys overlapped. It reads the
 * keys documents after the mirror's newest one. Each must name the document before it, must not have an earlier date,
 * and must be signed by a cards key of the document before it. If there are none, the keys of the mirror's newest
 * document are used: they differ from the pins if the mirror was killed before it saved its pins. The documents prove
 * nothing about the tree: the checkpoint must still extend every head that was proven before.
 * @returns the pins with the keys of the newest document; null when these are equal to `pins`, when that document lists
 * no log key, or when the mirror's own document cannot be read
 * @throws Unproven for a document that does not continue the chain
 */
export async function findLaterKeys(
  source: Pick<Source, "get">,
  store: Pick<Store, "get">,
  pins: Pins,
  pinnedDocument: Pick<NonNullable<NewestLeaves["keys"]>, "key" | "sha256">,
  origin: string,
  clock: Clock,
): Promise<Pins | null> {
  const ownDocument = await readKeys(store, pinnedDocument);
  if (!ownDocument) return null;
  const ownChain = chainOf(ownDocument, pinnedDocument.sha256);
  const { jwks } = await followChain(source, ownChain, ownDocument.n + 1, Number.POSITIVE_INFINITY);
  const laterPins = pinsOfKeys(jwks, pins, origin, clock.now());
  return laterPins && !areSamePins(pins, laterPins) ? laterPins : null;
}
