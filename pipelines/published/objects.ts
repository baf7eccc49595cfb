/**
 * The public keys (publication.md, Objects): every key that may ever be written to the public store, and the headers
 * that it is served with, by the bucket and by our own host alike. What matches no line is never published.
 */
export interface ObjectHeaders {
  contentType: string;
  cacheControl: string;
  /** Stored packed and announced so, without negotiation (C2SP tlog-tiles, Log entries). Only entry bundles. */
  contentEncoding?: "gzip";
}

/** What never changes under its key (publication.md, Objects). */
export const IMMUTABLE = "public, max-age=31536000, immutable";
const OCTETS = "application/octet-stream";
const JSON_TYPE = "application/json";
/** Without Content-Encoding: Range, `bytes` and hashes speak of one byte string. */
const ZSTD = "application/zstd";

/** A tile index in three-digit groups, and the width of a partial tile. */
const N = String.raw`(?:x\d{3}\/)*\d{3}`;
const PARTIAL = String.raw`(?:\.p\/(?:[1-9]|[1-9]\d|1\d\d|2[0-4]\d|25[0-5]))?`;
const DAY = String.raw`\d{4}-\d{2}-\d{2}`;
const ID = "[0-9A-HJKMNP-TV-Z]{26}";
const SHA16 = "[0-9a-f]{16}";
const SHA256 = "[0-9a-f]{64}";

const line = (pattern: string, contentType: string, cacheControl = IMMUTABLE, contentEncoding?: "gzip") => ({
  pattern: new RegExp(`^${pattern}$`),
  headers: { contentType, cacheControl, ...(contentEncoding ? { contentEncoding } : {}) } satisfies ObjectHeaders,
});

export const OBJECTS = {
  checkpoint: line("checkpoint", "text/plain; charset=utf-8", "no-store"),
  tile: line(String.raw`tile\/\d{1,2}\/${N}${PARTIAL}`, OCTETS),
  entries: line(String.raw`tile\/entries\/${N}${PARTIAL}`, OCTETS, IMMUTABLE, "gzip"),
  segment: line(String.raw`segment\/\d+\.ndjson\.zst`, ZSTD),
  archiveFile: line(String.raw`archive\/[a-z_]+\/${DAY}\.${SHA16}\.ndjson\.zst`, ZSTD),
  archiveManifest: line(String.raw`archive\/arc_${ID}\.json`, JSON_TYPE),
  /** A bucket's samples of a day, or the payee and domain tables that its cards name. */
  evidence: line(String.raw`evidence\/${DAY}\/(?:\d{1,2}|kin)\.${SHA16}\.ndjson\.zst`, ZSTD),
  call: line(String.raw`call\/${SHA256}\.zst`, ZSTD),
  liveTable: line(String.raw`live\/\d+\.\d+\.arrow`, "application/vnd.apache.arrow.file", "public, max-age=3600"),
  historyTable: line(
    String.raw`live\/history\/\d{1,2}\.\d+\.arrow`,
    "application/vnd.apache.arrow.file",
    "public, max-age=3600",
  ),
  view: line(String.raw`live\/view\.json`, JSON_TYPE, "no-store"),
  indexList: line(String.raw`index\/\d+\.json`, JSON_TYPE),
  indexShard: line(String.raw`index\/shard\/${SHA256}\.ndjson\.zst`, ZSTD),
  indexTable: line(String.raw`index\/table\/\d+\.${SHA16}\.parquet`, "application/vnd.apache.parquet"),
  keys: line(String.raw`keys\/\d+\.json`, JSON_TYPE),
  hint: line(String.raw`hint\/(?:index|keys)\.json`, JSON_TYPE, "public, max-age=10"),
} as const;

export type ObjectKind = keyof typeof OBJECTS;

/** Which line of the table a key belongs to, or null: such a key is not public. */
export function kindOfKey(key: string): ObjectKind | null {
  for (const [kind, { pattern }] of Object.entries(OBJECTS)) if (pattern.test(key)) return kind as ObjectKind;
  return null;
}

/** @throws Error for one that is not public */
export function headersOf(key: string): ObjectHeaders {
  const kind = kindOfKey(key);
  if (!kind) throw new Error(`not a public key: ${JSON.stringify(key.slice(0, 120))}`);
  return OBJECTS[kind].headers;
}

/** First and last bytes of names, in one place, so that writers and readers cannot differ. */
export const CHECKPOINT = "checkpoint";
export const VIEW = "live/view.json";
export const HINT_INDEX = "hint/index.json";
export const HINT_KEYS = "hint/keys.json";
export const segmentKey = (n: number): string => `segment/${n}.ndjson.zst`;
export const keysKey = (n: number): string => `keys/${n}.json`;
export const indexKey = (treeSize: number): string => `index/${treeSize}.json`;
export const shardKey = (sha256: string): string => `index/shard/${sha256}.ndjson.zst`;
/** Parquet files of indexes: `index/table/<tree_size>.<sha16>.parquet`. */
export const INDEX_TABLES = "index/table/";
export const indexTableKey = (treeSize: number, sha256: string): string =>
  `${INDEX_TABLES}${treeSize}.${sha256.slice(0, 16)}.parquet`;
/** Named by the unpacked bytes, since compressors differ between versions. */
export const evidenceKey = (day: string, part: number | "kin", unpackedSha256: string): string =>
  `evidence/${day}/${part}.${unpackedSha256.slice(0, 16)}.ndjson.zst`;
/** Bytes of a bought call that its buyer published, named by what they unpack to. */
export const callKey = (sha256: string): string => `call/${sha256}.zst`;
export const liveKey = (partition: number, n: number): string => `live/${partition}.${n}.arrow`;
export const historyKey = (bucket: number, n: number): string => `live/history/${bucket}.${n}.arrow`;
