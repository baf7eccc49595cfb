import { z } from "zod";

/** A sha256 as every object of ours writes it: 64 hexadecimal digits, lower case. */
export const SHA256_HEX = /^[0-9a-f]{64}$/;

export const Sha256Hex = z.string().regex(SHA256_HEX);
