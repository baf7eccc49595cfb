/**
 * HTTP headers of a public object, which both the bucket and our own host send. {@link OBJECTS} lists every kind of key
 * that may be written to the public store (publication.md, Objects). A key that matches no kind is never published.
 */
export interface ObjectHeaders {
  contentType: string;
  cacheControl: string;
  /** Only for entry bundles, which are stored and sent gzip-packed (C2SP tlog-tiles, Log entries). */
  contentEncoding?: "gzip";
}

/** Cache-Control of objects whose bytes never change (publication.md, Objects). */
export const IMMUTABLE = "public, max-age=31536000, immutable";
const OCTETS = "application/octet-stream";
const JSON_TYPE = "application/json";
/** Sent without Content-Encoding, so that Range, `bytes` and hashes all refer to the packed bytes. */
const ZSTD = "application/zstd";

/** A tile index in three-digit groups, and the width of a partial tile. */
const TILE_INDEX = String.raw`(?:x\d{3}\/)*\d{3}`;
const PARTIAL_WIDTH = String.raw`(?:\.p\/(?:[1-9]|[1-9]\d|1\d\d|2[0-4]\d|25[0-5]))?`;
const DAY = String.raw`\d{4}-\d{2}-\d{2}`;
const ID = "[0-9A-HJKMNP-TV-Z]{26}";
const SHA16 = "[0-9a-f]{16}";
const SHA256 = "[0-9a-f]{64}";

const defineKind = (pattern: string, contentType: string, cacheControl = IMMUTABLE, contentEncoding?: "gzip") => ({
  pattern: new RegExp(`^${pattern}$`),
  headers: { contentType, cacheControl, ...(contentEncoding ? { contentEncoding } : {}) } satisfies ObjectHeaders,
});

export const OBJECTS = {
  checkpoint: defineKind("checkpoint", "text/plain; charset=utf-8", "no-store"),
  tile: defineKind(String.raw`tile\/\d{1,2}\/${TILE_INDEX}${PARTIAL_WIDTH}`, OCTETS),
  entries: defineKind(String.raw`tile\/entries\/${TILE_INDEX}${PARTIAL_WIDTH}`, OCTETS, IMMUTABLE, "gzip"),
  segment: defineKind(String.raw`segment\/\d+\.ndjson\.zst`, ZSTD),
  archiveFile: defineKind(String.raw`archive\/[a-z_]+\/${DAY}\.${SHA16}\.ndjson\.zst`, ZSTD),
  archiveManifest: defineKind(String.raw`archive\/arc_${ID}\.json`, JSON_TYPE),
  /**
   * Samples of one day and bucket (a fixed share of the endpoints), or the tables of payees and domains that the
   * day's cards name.
   */
  evidence: defineKind(String.raw`evidence\/${DAY}\/(?:\d{1,2}|kin)\.${SHA16}\.ndjson\.zst`, ZSTD),
  call: defineKind(String.raw`call\/${SHA256}\.zst`, ZSTD),
  liveTable: defineKind(String.raw`live\/\d+\.\d+\.arrow`, "application/vnd.apache.arrow.file", "public, max-age=3600"),
  historyTable: defineKind(
    String.raw`live\/history\/\d{1,2}\.\d+\.arrow`,
    "application/vnd.apache.arrow.file",
    "public, max-age=3600",
  ),
  view: defineKind(String.raw`live\/view\.json`, JSON_TYPE, "no-store"),
  indexList: defineKind(String.raw`index\/\d+\.json`, JSON_TYPE),
  indexShard: defineKind(String.raw`index\/shard\/${SHA256}\.ndjson\.zst`, ZSTD),
  indexTable: defineKind(String.raw`index\/table\/\d+\.${SHA16}\.parquet`, "application/vnd.apache.parquet"),
  keys: defineKind(String.raw`keys\/\d+\.json`, JSON_TYPE),
  hint: defineKind(String.raw`hint\/(?:index|keys)\.json`, JSON_TYPE, "public, max-age=10"),
} as const;

export type ObjectKind = keyof typeof OBJECTS;

/** The kind of a public key; null for a key that is not public. */
export function kindOfKey(key: string): ObjectKind | null {
  for (const [kind, { pattern }] of Object.entries(OBJECTS)) if (pattern.test(key)) return kind as ObjectKind;
  return null;
}

/** The headers that the object of a key is served with. @throws Error for a key that is not public */
export function headersOf(key: string): ObjectHeaders {
  const kind = kindOfKey(key);
  if (!kind) throw new Error(`not a public key: ${JSON.stringify(key.slice(0, 120))}`);
  return OBJECTS[kind].headers;
}

/** Keys of single objects, and functions that make keys. Writers and readers use these, so they cannot differ. */
export const CHECKPOINT = "checkpoint";
export const VIEW = "live/view.json";
/** These two name the newest index and the newest keys document. They are not signed: a reader only starts there. */
export const INDEX_HINT = "hint/index.json";
export const KEYS_HINT = "hint/keys.json";
export const segmentKey = (n: number): string => `segment/${n}.ndjson.zst`;
export const keysKey = (n: number): string => `keys/${n}.json`;
export const indexKey = (treeSize: number): string => `index/${treeSize}.json`;
export const shardKey = (sha256: string): string => `index/shard/${sha256}.ndjson.zst`;
/** Prefix of the keys of Parquet files of indexes: `index/table/<tree_size>.<sha16>.parquet`. */
export const INDEX_TABLES = "index/table/";
export const indexTableKey = (treeSize: number, sha256: string): string =>
  `${INDEX_TABLES}${treeSize}.${sha256.slice(0, 16)}.parquet`;
/** Key of an evidence file. It contains the hash of the unpacked bytes, since zstd versions pack differently. */
export const evidenceKey = (day: string, part: number | "kin", unpackedSha256: string): string =>
  `evidence/${day}/${part}.${unpackedSha256.slice(0, 16)}.ndjson.zst`;
/** Key of the request or answer of a call that a buyer published. It contains the hash of the unpacked bytes. */
export const callKey = (sha256: string): string => `call/${sha256}.zst`;
export const liveKey = (partition: number, n: number): string => `live/${partition}.${n}.arrow`;
export const historyKey = (bucket: number, n: number): string => `live/history/${bucket}.${n}.arrow`;
