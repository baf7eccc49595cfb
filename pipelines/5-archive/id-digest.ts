import { hash } from "node:crypto";

/** Digests of sets that share no member, as that of all of them. */
export const xorOf = (digests: readonly string[]): string =>
  digests.reduce((all, digest) => all ^ BigInt(digest), 0n).toString();

/** {@link xorOf} ids one after the other, as the engine's bit_xor(md5_number(..)) makes it of a table. */
export class IdDigest {
  readonly #sum = Buffer.alloc(16);

  add(id: string): void {
    const one = hash("md5", id, "buffer");
    for (let i = 0; i < 16; i++) this.#sum[i]! ^= one[i]!;
  }

  value(): string {
    return ((this.#sum.readBigUInt64LE(8) << 64n) | this.#sum.readBigUInt64LE(0)).toString();
  }
}
