import { S3ServiceException } from "@aws-sdk/client-s3";
import { systemClock } from "../../clock.ts";
import { ObjectTooLarge, StoreDown, StoreFull, StoreRefused, StoreUnfit } from "../store.ts";

/** Tries of one request, and the longest pause before the next, ms (full jitter, doubling from the first). */
const TRIES = 6;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** HTTP status of a store's answer; undefined when none came (cut, timeout, refused). */
export const statusOf = (error: unknown): number | undefined =>
  error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined;

/** What an attempt was before: nothing, or lost in a way that may have reached the store. */
export interface Attempt {
  n: number;
  /** An earlier try of the same request ended without an answer that says what was done. */
  unsure: boolean;
}

/** Answers that ask for the same request again; 409 is S3's word for two conditional writes at the same moment. */
const AGAIN = new Set([408, 409, 425, 429, 500, 502, 503, 504]);

/** What no second try changes: our own word on an object or a store, and faults of our own code. */
const OURS = [ObjectTooLarge, StoreUnfit, StoreDown, StoreFull, RangeError, TypeError];

/**
 * Did the store refuse the time of a signature, and has the SDK measured the difference of both clocks by that answer? It
 * signs by the store's clock from then on, so the next try is another request; its own retries, which are off, do this.
 */
const isOtherClock = (error: unknown): boolean =>
  error instanceof S3ServiceException &&
  (error.$metadata as { clockSkewCorrected?: boolean }).clockSkewCorrected === true;

/** Does this end leave open whether the write was done? A 409, 425 or 429 was refused before. */
const leavesOpen = (status: number | undefined): boolean => status === undefined || status === 408 || status >= 500;

/**
 * Try, and try again with jitter. Everything that is no passing fault is thrown as it is, for the caller to read.
 * @throws StoreDown after the last try; StoreUnfit when we are kept out; StoreFull for a quota
 */
export async function retrying<T>(doing: string, work: (attempt: Attempt) => Promise<T>): Promise<T> {
  let unsure = false;
  for (let n = 1; ; n++) {
    try {
      return await work({ n, unsure });
    } catch (error) {
      const status = statusOf(error);
      if (n < TRIES && isOtherClock(error)) continue;
      if (status === 401 || status === 403) {
        const Refusal = status === 403 ? StoreRefused : StoreUnfit;
        throw new Refusal(`${doing}: the store refuses us (${(error as Error).name})`, error);
      }
      if (status === 507 || (error as Error).name === "QuotaExceeded") throw new StoreFull(doing, error);
      if (status !== undefined && !AGAIN.has(status)) throw error;
      if (OURS.some((kind) => error instanceof kind)) throw error;
      unsure ||= leavesOpen(status);
      if (n === TRIES) throw new StoreDown(doing, n, error);
      await systemClock.sleep(Math.random() * Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** n));
    }
  }
}
