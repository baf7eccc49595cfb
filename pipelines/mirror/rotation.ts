import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { fromBase64url, type Jwks } from "../../infra/keys/jwk.ts";
import type { Store } from "../../infra/store/store.ts";
import { witnessName } from "../../infra/tree/checkpoint.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../infra/tree/note.ts";
import { jwksOf, type KeyChain, readKeys, verifyKeysDocument } from "../published/keys.ts";
import { MAX } from "../published/limits.ts";
import { keysKey } from "../published/objects.ts";
import type { Source } from "../published/source.ts";
import type { Pins } from "../published/trust.ts";
import type { MirrorState, Newest } from "./state.ts";

/** Most keys documents beyond the tree that one run follows. */
const MAX_AHEAD = 256;

/** The log's and the witness's keys that a document declares valid at `now`, as vkeys. */
function validVkeysOf(jwks: Jwks, origin: string, now: Date): { logs: string[]; witnesses: string[] } {
  const valid = (purpose: string) =>
    jwks.keys.flatMap((key) => {
      const retired = key.retired_at !== undefined && new Date(key.retired_at) <= now;
      const publicKey = key.purpose === purpose && !retired ? fromBase64url(key.x) : null;
      return publicKey ? [publicKey] : [];
    });
  return {
    logs: valid("log").map((publicKey) => formatVkey({ name: origin, publicKey }, ED25519)),
    witnesses: valid("witness").map((publicKey) => formatVkey({ name: witnessName(origin), publicKey }, COSIGNATURE)),
  };
}

const samePins = (a: Pins, b: Pins): boolean => JSON.stringify(a) === JSON.stringify(b);

/** Pins, after a run, the keys that the newest proven document declares valid. */
export async function followKeys(
  state: MirrorState,
  store: Store,
  keys: Newest["keys"],
  origin: string,
  clock: Clock,
): Promise<void> {
  const pins = await state.pins();
  const document = keys && (await readKeys(store, keys));
  if (!pins || !document) return;
  const named = validVkeysOf(jwksOf(document), origin, clock.now());
  // A document without a log key would lock the mirror out, so the old pins are kept.
  if (named.logs.length === 0) return;
  const next = { log: pins.log, witness: pins.witness, ...named };
  if (!samePins(pins, next)) await state.savePins(next);
}

/**
 * Finds the keys of the newest checkpoint for a mirror that did not run while old and new keys overlapped. It follows
 * the keys documents after the mirror's own one; each names the one before it and is signed by a cards key of that one.
 * This alone proves nothing of the tree: the checkpoint must still extend every head that was proven before.
 * @returns the pins with the keys of the newest document, or null when there is none after ours
 * @throws Unproven for a document that does not continue the chain
 */
export async function findLaterKeys(
  source: Pick<Source, "get">,
  store: Pick<Store, "get">,
  pins: Pins,
  known: Pick<NonNullable<Newest["keys"]>, "key" | "sha256">,
  origin: string,
  clock: Clock,
): Promise<Pins | null> {
  const own = await readKeys(store, known);
  if (!own) return null;
  let chain: KeyChain = { jwks: jwksOf(own), sha256: known.sha256 };
  let ahead = 0;
  for (; ahead < MAX_AHEAD; ahead++) {
    const n = own.n + ahead + 1;
    const bytes = await source.get(keysKey(n), MAX.keys);
    if (!bytes) break;
    chain = verifyKeysDocument({ n, key: keysKey(n), sha256: sha256hex(bytes) }, bytes, chain);
  }
  const named = validVkeysOf(chain.jwks, origin, clock.now());
  return ahead > 0 && named.logs.length > 0 ? { log: pins.log, witness: pins.witness, ...named } : null;
}
