import { createHash } from "node:crypto";
import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import { type Envelope, envelopeOf } from "./envelope.ts";
import { rfc3339 } from "./time.ts";

/**
 * Salted commitments (orders.md, Publish). If a buyer does not publish a call that it bought through us, the public log
 * gets only a hash over a salt and the call's bytes. We give the salt to nobody but the buyer. Without the salt the
 * hash reveals nothing, even to somebody who guesses the bytes. With the salt the buyer can prove to anyone that these
 * bytes were sent or received in that hour.
 */

/** Every salt has this length, so that the boundary between salt and bytes is unambiguous. */
export const SALT_BYTES = 32;

const HOUR_MS = 3_600_000;

/**
 * Computes the sha256 over salt and bytes, hex.
 * @param salt random, new for every commitment
 * @throws RangeError for a salt of another length
 */
export function commitmentHash(salt: Uint8Array, bytes: Uint8Array): string {
  if (salt.length !== SALT_BYTES) throw new RangeError(`a salt is ${SALT_BYTES} bytes, not ${salt.length}`);
  return createHash("sha256").update(salt).update(bytes).digest("hex");
}

/** Returns the start of the UTC hour of a time, RFC 3339, as the member `moment` of a published commitment holds it. */
export const utcHourOf = (at: Date): string => rfc3339(new Date(Math.floor(at.getTime() / HOUR_MS) * HOUR_MS));

/**
 * Returns the time from which a commitment of this hour may be published: the end of the hour. Published earlier, the
 * commitment's own time would reveal more than the hour.
 */
export const publishableAt = (moment: string): Date => new Date(Date.parse(moment) + HOUR_MS);

/**
 * Makes the record of a commitment, for the log topic `observations.paid`. The record's id follows from the hash, so
 * that a repeated append adds no second record.
 * @param sha256 from {@link commitmentHash}
 * @param observedAt when the call ended
 */
export function createCommitmentRecord(
  cap: string,
  sha256: string,
  observedAt: Date,
  producer: string,
): Envelope<"paid.commitment"> {
  const body = { sha256 };
  const slot = sha256hex(canonicalText(body));
  return envelopeOf({ type: "paid.commitment", cap, key: cap, slot, at: observedAt, producer, body });
}

/**
 * Makes the record of a receipt that POST /v1/web/evidence returned. The publisher puts the receipt's hash into the
 * public Merkle log. The record's key is that hash, and its id follows from it.
 * @param sha256 over the RFC 8785 bytes of the signed receipt
 */
export const createReceiptRecord = (sha256: string, givenAt: Date, producer: string): Envelope<"web.receipt"> =>
  envelopeOf({ type: "web.receipt", key: sha256, slot: sha256, at: givenAt, producer, body: { sha256 } });
