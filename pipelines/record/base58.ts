const ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/**
 * Decodes base58 in Bitcoin's alphabet, which Solana uses for addresses and signatures; null when the text does not
 * decode to exactly `length` bytes. Each leading 1 is a zero byte. The time is quadratic in the length, so longer
 * texts are refused at once.
 */
export function fromBase58(text: string, length: number): Uint8Array | null {
  // Base58 needs at most 1.37 characters a byte.
  if (text.length > Math.ceil(length * 1.37)) return null;
  let value = 0n;
  for (const letter of text) {
    const digit = ALPHABET.indexOf(letter);
    if (digit < 0) return null;
    value = value * 58n + BigInt(digit);
  }
  const zeros = /^1*/.exec(text)![0].length;
  const hex = value === 0n ? "" : value.toString(16);
  const size = Math.ceil(hex.length / 2);
  if (zeros + size !== length) return null;
  const padded = hex.padStart(2 * length, "0");
  return Uint8Array.from({ length }, (_, i) => Number.parseInt(padded.slice(2 * i, 2 * i + 2), 16));
}
