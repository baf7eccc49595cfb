import { z } from "zod";

/** Matches a sha256 in the form in which this service records it: 64 lower-case hexadecimal digits. */
export const SHA256_HEX = /^[0-9a-f]{64}$/;

/** Schema of a sha256 in that form. */
export const Sha256Hex = z.string().regex(SHA256_HEX);
