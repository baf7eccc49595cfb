import { verifyBytes } from "../keys/verify.ts";
import { BadNote, COSIGNATURE, lineOf, type Note, type NoteKey, type NoteSigner, signatureLine } from "./note.ts";

/** Timestamped cosignatures with Ed25519 (c2sp.org/tlog-cosignature, cosignature/v1). */

/**
 * Most that a cosignature may lie ahead of the verifier's clock. Its time shows freshness, so a time in the future would make
 * a frozen log look fresh for that long. Clocks of machines without good time differ by five minutes (Kerberos allows as
 * much), which is half of the ten minutes in which a log promises a new checkpoint.
 */
export const MAX_SKEW_MS = 5 * 60_000;

/** Last moment of a Date; the eight bytes of seconds in a cosignature can be later. */
const MAX_DATE_MS = 8.64e15;

/** Message of a timestamped cosignature: two lines before the note's text. */
const cosigned = (text: string, seconds: number | bigint): Buffer =>
  Buffer.from(`cosignature/v1\ntime ${seconds}\n${text}`);

/** The line with which `signer` cosigns a note's text at `at` (whole seconds). */
export function cosignatureLine(text: string, signer: NoteSigner, at: Date): string {
  const seconds = Math.floor(at.getTime() / 1000);
  const stamp = Buffer.alloc(8);
  stamp.writeBigUInt64BE(BigInt(seconds));
  return signatureLine(signer, COSIGNATURE, Buffer.concat([stamp, signer.sign(cosigned(text, seconds))]));
}

/**
 * When `witness` cosigned the note, ms since 1970; null when the note has no line of this key.
 * @throws BadNote when there is a line of this key that does not hold
 */
export function cosignatureTime(note: Note, witness: NoteKey): number | null {
  const line = lineOf(note, witness, COSIGNATURE);
  if (!line) return null;
  if (line.length !== 72) throw new BadNote(`not cosigned by ${witness.name}`);
  const seconds = line.readBigUInt64BE(0);
  if (!verifyBytes(witness.publicKey, cosigned(note.text, seconds), line.subarray(8))) {
    throw new BadNote(`the cosignature of ${witness.name} does not hold`);
  }
  const ms = Number(seconds) * 1000;
  if (ms > MAX_DATE_MS) throw new BadNote(`cosigned by ${witness.name} at second ${seconds}, which is no date`);
  return ms;
}
