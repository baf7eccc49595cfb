import { verifyBytes } from "../keys/verify.ts";
import { BadNote, COSIGNATURE, lineOf, type Note, type NoteKey, type NoteSigner, signatureLine } from "./note.ts";

/** Timestamped cosignatures with Ed25519 (c2sp.org/tlog-cosignature, cosignature/v1). */

/**
 * Largest time by which a cosignature may be ahead of the verifier's clock, ms. A cosignature's time shows freshness,
 * so one from the future would make a log that no longer grows look fresh until that time has passed. Clocks of badly
 * synchronised machines differ by five minutes (Kerberos allows as much), which is half of the ten minutes within which
 * this service promises a new checkpoint.
 */
export const MAX_SKEW_MS = 5 * 60_000;

/** Largest time of a Date, ms; the eight bytes of seconds in a cosignature can exceed it. */
const MAX_DATE_MS = 8.64e15;

/** Returns the message that a timestamped cosignature signs: two lines, then the note's text. */
const cosignedMessage = (text: string, seconds: number | bigint): Buffer =>
  Buffer.from(`cosignature/v1\ntime ${seconds}\n${text}`);

/** Returns the line with which `signer` cosigns a note's text at `at` (in whole seconds). */
export function cosignatureLine(text: string, signer: NoteSigner, at: Date): string {
  const seconds = Math.floor(at.getTime() / 1000);
  const stamp = Buffer.alloc(8);
  stamp.writeBigUInt64BE(BigInt(seconds));
  return signatureLine(signer, COSIGNATURE, Buffer.concat([stamp, signer.sign(cosignedMessage(text, seconds))]));
}

/**
 * Returns the time at which `witness` cosigned the note, in ms since 1970; null when the note has no line of this key.
 * @throws BadNote when the note has a line of this key that does not verify
 */
export function cosignatureTime(note: Note, witness: NoteKey): number | null {
  // Eight bytes of seconds, then the 64 bytes of the signature.
  const stamped = lineOf(note, witness, COSIGNATURE);
  if (!stamped) return null;
  if (stamped.length !== 72) throw new BadNote(`not cosigned by ${witness.name}`);
  const seconds = stamped.readBigUInt64BE(0);
  if (!verifyBytes(witness.publicKey, cosignedMessage(note.text, seconds), stamped.subarray(8))) {
    throw new BadNote(`the cosignature of ${witness.name} does not hold`);
  }
  const ms = Number(seconds) * 1000;
  if (ms > MAX_DATE_MS) throw new BadNote(`cosigned by ${witness.name} at second ${seconds}, which is no date`);
  return ms;
}
