const CASTAGNOLI = 0x82f63b78;
const LANES = 8;

/**
 * What a byte adds to the checksum when 0, 1 .. 7 bytes follow it in its group of eight ("slicing-by-8"), 256 numbers each,
 * one table after the other.
 */
const TABLES = new Int32Array(LANES * 256);
for (let byte = 0; byte < 256; byte++) {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ CASTAGNOLI : crc >>> 1;
  TABLES[byte] = crc;
}
for (let i = 256; i < TABLES.length; i++) {
  const before = TABLES[i - 256]!;
  TABLES[i] = (before >>> 8) ^ TABLES[before & 0xff]!;
}

/** CRC-32C (Castagnoli) of bytes, as Kafka's record batches have it: unsigned. Eight bytes a step, four times as quick as one. */
export function crc32c(bytes: Uint8Array): number {
  const end = bytes.length;
  const whole = end - (end % LANES);
  let crc = -1;
  let at = 0;
  for (; at < whole; at += LANES) {
    crc =
      TABLES[0x700 | ((crc ^ bytes[at]!) & 0xff)]! ^
      TABLES[0x600 | (((crc >>> 8) ^ bytes[at + 1]!) & 0xff)]! ^
      TABLES[0x500 | (((crc >>> 16) ^ bytes[at + 2]!) & 0xff)]! ^
      TABLES[0x400 | ((crc >>> 24) ^ bytes[at + 3]!)]! ^
      TABLES[0x300 | bytes[at + 4]!]! ^
      TABLES[0x200 | bytes[at + 5]!]! ^
      TABLES[0x100 | bytes[at + 6]!]! ^
      TABLES[bytes[at + 7]!]!;
  }
  for (; at < end; at++) crc = TABLES[(crc ^ bytes[at]!) & 0xff]! ^ (crc >>> 8);
  return (crc ^ -1) >>> 0;
}
