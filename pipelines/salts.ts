import { randomBytes } from "node:crypto";
import { sha256hex } from "../infra/canonical.ts";
import type { Store } from "../infra/store/store.ts";

const keyOf = (day: string): string => `salts/${day}`;

/**
 * The salt of a UTC day (grading-method.md section 5): 32 random bytes, drawn once and kept in the private store. Two
 * planners draw; the first one's is everybody's, so a plan can be made again and comes out the same.
 */
export async function saltOf(privateStore: Store, day: string): Promise<Buffer> {
  const known = await privateStore.get(keyOf(day), { maxBytes: 32 });
  if (known) return Buffer.from(known.bytes);
  const drawn = randomBytes(32);
  const { result } = await privateStore.create(keyOf(day), drawn);
  if (result === "created") return drawn;
  const other = await privateStore.get(keyOf(day), { maxBytes: 32 });
  if (!other) throw new Error(`the salt of ${day} is there and cannot be read`);
  return Buffer.from(other.bytes);
}

/** What is published before the day: sha256 of the salt, hex. */
export const saltHash = (salt: Uint8Array): string => sha256hex(salt);

/** The salt of a day that is over, as the next schedule leaf opens it; null when that day was never planned. */
export async function openedSalt(privateStore: Store, day: string): Promise<{ day: string; salt: string } | null> {
  const known = await privateStore.get(keyOf(day), { maxBytes: 32 });
  return known && { day, salt: Buffer.from(known.bytes).toString("hex") };
}
