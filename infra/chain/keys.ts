import { checkKey } from "../store/store.ts";

/** The partition of a log that one chain follows. */
export interface ChainPartition {
  /** Id drawn when the log was created. */
  logId: string;
  topic: string;
  partition: number;
}

const COMMIT = /\/commit\/(\d{20})\.json$/;

/** Folder of the chain, without a trailing slash. @throws BadKey when a name cannot be written as a key. */
export function chainFolder({ logId, topic, partition }: ChainPartition): string {
  return checkKey(`lake/${logId}/${topic}/${partition}`);
}

/** Twenty digits, so that the order of the keys is the order of the numbers. */
export function commitKey(folder: string, n: number): string {
  return `${folder}/commit/${String(n).padStart(20, "0")}.json`;
}

/** The number in a commit's key, or null when it is none. */
export function commitNumber(key: string): number | null {
  const found = COMMIT.exec(key);
  return found ? Number(found[1]) : null;
}

/** @param tag 8 hex digits that make the name unlike any other. */
export function dataKey(
  folder: string,
  first: number,
  last: number,
  tag: string,
  kind: "parquet" | "rejected",
): string {
  return `${folder}/data/${first}-${last}-${tag}.${kind}`;
}

/** Is `key` a data file of this range, of this very chain? */
export function isDataKey(
  folder: string,
  key: string,
  first: number,
  last: number,
  kind: "parquet" | "rejected",
): boolean {
  const tag = key.slice(-9 - kind.length, -1 - kind.length);
  return /^[0-9a-f]{8}$/.test(tag) && key === dataKey(folder, first, last, tag, kind);
}
