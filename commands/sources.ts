import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import type { Checkpoint } from "../infra/tree/checkpoint.ts";
import { readPolicy } from "../infra/tree/policy.ts";
import { checkAge } from "../pipelines/mirror/state.ts";
import { openSource } from "../pipelines/published/open-source.ts";
import type { Source } from "../pipelines/published/source.ts";
import { type GivenKeys, openSourceTreeHead } from "../pipelines/published/trust.ts";
import { readNamedFile } from "./files.ts";
import { say } from "./printer.ts";

/** Options of every command that reads a public record. */
export interface RecordOptions {
  /** Verifier key of the log (C2SP signed-note). */
  logKey?: string;
  /** Verifier key of the log's own witness (C2SP signed-note). */
  witnessKey?: string;
  /** Path of the file with a witness policy (C2SP tlog-policy): which witnesses must have cosigned a checkpoint. */
  witnessPolicy?: string;
  /** Largest accepted age of the cosignature (with a policy: the quorum's), seconds; absent or 0: any age. */
  maxAge?: number | undefined;
  /** Reads the settings; needed for a record in a bucket, whose credentials they contain. */
  settings?: () => Pick<Config, "stores">;
}

/**
 * Returns the verifier keys and the policy that the options name.
 * @throws Failure `usage`, `unreadable`
 */
export const keysOf = async ({ logKey, witnessKey, witnessPolicy }: RecordOptions): Promise<GivenKeys> => ({
  ...{ log: logKey, witness: witnessKey },
  policy: witnessPolicy === undefined ? undefined : readPolicy(await readNamedFile(witnessPolicy)),
});

/** A public record, and its verified tree head. */
export interface OpenRecord {
  source: Source;
  head: Checkpoint;
  close(): Promise<void>;
}

/**
 * Opens a record by its address, folder or bucket, and verifies its newest checkpoint. Without keys in the options,
 * the source's own keys are trusted and printed.
 * @throws Failure `unreadable`, `usage`, `unwitnessed`; Stale, MissingObject, Unproven, SourceDown
 */
export async function openRecord(name: string, options: RecordOptions): Promise<OpenRecord> {
  const source = await openSource(name, systemClock, options.settings);
  try {
    const head = await openSourceTreeHead(source, await keysOf(options), say, systemClock);
    if (options.maxAge !== undefined) checkAge(head, systemClock, options.maxAge);
    return { source, head, close: () => source.close() };
  } catch (error) {
    await source.close();
    throw error;
  }
}

/**
 * Fetches a url. `text` is null if the response is longer than `maxBytes`.
 * @throws the errors of fetch, also when the response takes longer than `waitMs` (ms)
 */
export async function fetchBounded(
  url: string,
  init: RequestInit,
  { waitMs, maxBytes }: { waitMs: number; maxBytes: number },
): Promise<{ status: number; text: string | null }> {
  const { status, body } = await fetch(url, { ...init, redirect: "error", signal: AbortSignal.timeout(waitMs) });
  const chunks: Uint8Array[] = [];
  let byteCount = 0;
  for await (const chunk of body ?? []) {
    byteCount += chunk.byteLength;
    if (byteCount > maxBytes) return { status, text: null };
    chunks.push(chunk);
  }
  return { status, text: Buffer.concat(chunks).toString("utf8") };
}
