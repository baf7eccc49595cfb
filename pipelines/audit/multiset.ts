import { sha256 } from "../../infra/canonical.ts";

const MODULUS = 1n << 256n;

/**
 * Counts things and adds up their hashes: two with the same count and sum hold the same things, in whatever order they
 * came. Takes no room for them; to make two others come out alike is as hard as finding hashes that add up to a given sum.
 */
export class Multiset {
  n = 0;
  #sum = 0n;

  add(thing: Uint8Array | string): void {
    this.n++;
    this.#sum = (this.#sum + BigInt(`0x${sha256(thing).toString("hex")}`)) % MODULUS;
  }

  /** All of another one. */
  join(other: Multiset): void {
    this.n += other.n;
    this.#sum = (this.#sum + other.#sum) % MODULUS;
  }

  toString(): string {
    return `${this.n} with hashes that add up to ${this.#sum.toString(16).padStart(64, "0").slice(-16)}`;
  }
}
