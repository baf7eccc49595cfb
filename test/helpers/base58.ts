const ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/** The base58 text of some bytes. */
export function toBase58(bytes: Uint8Array): string {
  let text = "";
  let value = BigInt(`0x0${Buffer.from(bytes).toString("hex")}`);
  for (; value > 0n; value /= 58n) text = ALPHABET[Number(value % 58n)] + text;
  const zeros = bytes.findIndex((byte) => byte !== 0);
  return "1".repeat(zeros < 0 ? bytes.length : zeros) + text;
}
