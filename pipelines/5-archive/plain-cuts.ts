import { CUT } from "./probe-records.ts";

const bytes = (text: string): Uint8Array => Buffer.from(text, "latin1");
const [NULL, LATENCY, BLOCK, MINUTE, CLOSE] = ["null", ',"latency_ms":', '{"block":', ',"minute":', "}"].map(bytes);
const [ZERO, NINE, POINT] = [0x30, 0x39, 0x2e];
const [LETTER_A, LETTER_F] = [0x61, 0x66];
/** A number of fifteen digits at most is its own shortest print. */
const MOST_WHOLE = 9;
const MOST_DECIMALS = 6;
const NOT = -1;

/**
 * Are the times of a record plainly what they were taken for: numbers that RFC 8785 prints as they stand there, and then a
 * slot of two rows of digits? Whatever is not goes the long way.
 * @param at of what was measured @param end of the slot
 * @param isTool probes of MCP tools have two measured times, one behind the other
 * @returns the end of what was measured, or -1
 */
export function plainEnd(record: Uint8Array, at: number, end: number, isTool: boolean): number {
  const measured = measuredEnd(record, at, isTool);
  if (measured === NOT || record[measured] !== CUT) return NOT;
  const block = digitsEnd(record, after(record, measured + 1, BLOCK!));
  const slot = after(record, digitsEnd(record, after(record, block, MINUTE!)), CLOSE!);
  return slot === end ? measured : NOT;
}

/** Behind the measured time or times that stand here as RFC 8785 prints them, or -1. See {@link plainEnd}. */
export function measuredEnd(record: Uint8Array, at: number, isTool: boolean): number {
  const first = numberEnd(record, at);
  return isTool ? numberEnd(record, after(record, first, LATENCY!)) : first;
}

/** Behind this text, when it stands here. */
function after(record: Uint8Array, at: number, text: Uint8Array): number {
  if (at === NOT) return NOT;
  for (let i = 0; i < text.length; i++) if (record[at + i] !== text[i]) return NOT;
  return at + text.length;
}

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= ZERO && byte <= NINE;

function digitsEnd(record: Uint8Array, at: number): number {
  if (at === NOT) return NOT;
  let end = at;
  while (isDigit(record[end])) end++;
  return end === at ? NOT : end;
}

/** `null`, or digits without a zero too many in front or behind. */
function numberEnd(record: Uint8Array, at: number): number {
  if (at === NOT) return NOT;
  if (record[at] === NULL![0]) return after(record, at, NULL!);
  const whole = digitsEnd(record, at);
  if (whole === NOT || whole - at > MOST_WHOLE || (record[at] === ZERO && whole - at > 1)) return NOT;
  if (record[whole] !== POINT) return whole;
  const end = digitsEnd(record, whole + 1);
  return end === NOT || end - whole - 1 > MOST_DECIMALS || record[end - 1] === ZERO ? NOT : end;
}

/** A hash, or a part of one? */
export function isHex(record: Uint8Array, at: number, end: number): boolean {
  for (let i = at; i < end; i++) {
    const byte = record[i]!;
    if (!isDigit(byte) && (byte < LETTER_A || byte > LETTER_F)) return false;
  }
  return true;
}
