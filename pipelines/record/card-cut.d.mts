/** One signature to verify: Ed25519 over `bytes` under 32 bytes of a stranger's, which may be no key at all. */
export interface SignedBytes {
  publicKey: Uint8Array;
  bytes: Uint8Array;
  signature: Uint8Array;
}

/** A judged cards key and its validity; milliseconds since 1970, `until` exclusive. */
export interface Vouching {
  publicKey: Uint8Array;
  from: number;
  until: number;
}

export function cardSpan(entry: Buffer): { start: number; end: number } | null;
export function cardTextOf(entry: Buffer): string | null;
export function signedBytesOf(
  entry: Buffer,
  card: unknown,
  keyOf: (kid: string) => Vouching | null,
): SignedBytes | null;
