import { z } from "zod";

/** Matches a sha256 in the form of the record: 64 lower-case hexadecimal digits. */
export const SHA256_HEX = /^[0-9a-f]{64}$/;

/** Schema of such a sha256. */
export const Sha256Hex = z.string().regex(SHA256_HEX);
