import { S3ServiceException } from "@aws-sdk/client-s3";
import { systemClock } from "../../clock.ts";
import { ObjectTooLarge, StoreDown, StoreFull, StoreRefused, StoreUnfit } from "../store.ts";

/** Tries of one request. The pause between two tries is random; its bound doubles from the first to the longest, ms. */
const TRIES = 6;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** HTTP status of a store's answer; undefined when no answer came (connection cut or refused, timeout). */
export const statusOf = (error: unknown): number | undefined =>
  error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined;

/** One try of a request, and what is known of the tries before it. */
export interface Attempt {
  n: number;
  /** True when an earlier try of this request may have been executed by the store, though no answer confirmed it. */
  unsure: boolean;
}

/** Statuses after which a request is tried again. S3 answers 409 to two conditional writes at one moment. */
const AGAIN = new Set([408, 409, 425, 429, 500, 502, 503, 504]);

/** Errors that our own code throws; another try would throw them again. */
const NOT_RETRIED = [ObjectTooLarge, StoreUnfit, StoreDown, StoreFull, RangeError, TypeError];

/**
 * True when the store refused a request because our clock differs from its clock, and the SDK has read the store's time from
 * the answer. The SDK signs the next try with that time. The SDK's own retries would do this, but they are off.
 */
const isOtherClock = (error: unknown): boolean =>
  error instanceof S3ServiceException &&
  (error.$metadata as { clockSkewCorrected?: boolean }).clockSkewCorrected === true;

/** May the store have done the write in spite of this status? A 409, 425 or 429 is refused before the write. */
const leavesOpen = (status: number | undefined): boolean => status === undefined || status === 408 || status >= 500;

/**
 * Runs `work`, and again after a random pause when it failed for a passing cause. Other errors are thrown unchanged.
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
      if (NOT_RETRIED.some((kind) => error instanceof kind)) throw error;
      unsure ||= leavesOpen(status);
      if (n === TRIES) throw new StoreDown(doing, n, error);
      await systemClock.sleep(Math.random() * Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** n));
    }
  }
}
