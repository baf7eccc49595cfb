import { createHash } from "node:crypto";
import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import { type Envelope, envelopeOf } from "./envelope.ts";
import { rfc3339 } from "./time.ts";

/**
 * Salted commitments (orders.md, Publish). If a buyer does not publish its bought call, only the hash of a salt and the
 * bytes is kept, and only the buyer has the salt. Without the salt the hash tells nothing, not even to somebody who
 * guesses the bytes. With the salt the buyer can show to anyone that the record was given these bytes in that hour.
 */

/** All salts have this length, so that no byte of the answer can be taken for one of the salt. */
export const SALT_BYTES = 32;

const HOUR_MS = 3_600_000;

/** sha256 over salt and bytes, hex. @param salt drawn anew for every commitment. @throws RangeError for another length */
export function commitTo(salt: Uint8Array, bytes: Uint8Array): string {
  if (salt.length !== SALT_BYTES) throw new RangeError(`a salt is ${SALT_BYTES} bytes, not ${salt.length}`);
  return createHash("sha256").update(salt).update(bytes).digest("hex");
}

/** The UTC hour of a moment, in the form of a leaf's `moment`. */
export const momentOf = (at: Date): string => rfc3339(new Date(Math.floor(at.getTime() / HOUR_MS) * HOUR_MS));

/**
 * First moment at which a commitment of this hour may be published, so that the leaf's own time tells no more than the
 * hour.
 */
export const publishableAt = (moment: string): Date => new Date(Date.parse(moment) + HOUR_MS);

/**
 * The record of a commitment, for the log topic `observations.paid` (`sealEnvelope`). One commitment has one id.
 * @param sha256 from {@link commitTo}; the caller then drops salt and bytes
 * @param observedAt when the call ended
 */
export function commitmentRecord(
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
 * The record of a receipt that was given for POST /v1/web/evidence, from which the publisher makes a leaf. Its key is the hash,
 * and one receipt has one id.
 * @param sha256 over the RFC 8785 bytes of the signed receipt
 */
export const receiptRecord = (sha256: string, givenAt: Date, producer: string): Envelope<"web.receipt"> =>
  envelopeOf({ type: "web.receipt", key: sha256, slot: sha256, at: givenAt, producer, body: { sha256 } });
