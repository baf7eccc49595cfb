import { S3ServiceException } from "@aws-sdk/client-s3";
import { systemClock } from "../../clock.ts";
import { ObjectTooLarge, StoreDown, StoreFull, StoreRefused, StoreUnfit } from "../store.ts";

/** Largest number of attempts of one request. */
const MAX_ATTEMPTS = 6;
/**
 * Half of the upper bound of the first pause, ms. Pauses are random, and their upper bound doubles with each attempt.
 */
const FIRST_PAUSE_MS = 100;
/** Largest upper bound of a pause, ms. */
const LONGEST_PAUSE_MS = 5_000;

/**
 * Returns the HTTP status of a store's answer; undefined if there was no answer (connection cut or refused, timeout).
 */
export const statusOf = (error: unknown): number | undefined =>
  error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined;

/** One attempt of a request, and whether an earlier attempt may have succeeded. */
export interface Attempt {
  /** Number of the attempt, from 1. */
  n: number;
  /** True when an earlier try of this request may have been executed by the store, though no answer confirmed it. */
  unsure: boolean;
}

/** HTTP statuses after which a request is tried again. S3 answers 409 to one of two simultaneous conditional writes. */
const RETRIED_STATUSES = new Set([408, 409, 425, 429, 500, 502, 503, 504]);

/** Errors that our own code throws; another try would throw them again. */
const FINAL_ERRORS = [ObjectTooLarge, StoreUnfit, StoreDown, StoreFull, RangeError, TypeError];

/**
 * Reports whether the store refused a request because our clock differs from its clock, and the SDK took the store's
 * time from the answer. Then the request is repeated at once, and the SDK signs it with that time. (The SDK's own
 * retries, which would do so, are off.)
 */
const isOtherClock = (error: unknown): boolean =>
  error instanceof S3ServiceException &&
  (error.$metadata as { clockSkewCorrected?: boolean }).clockSkewCorrected === true;

/**
 * Reports whether the store may have done the write although it answered with this status, or with nothing. A store
 * that answers 409, 425 or 429 has refused the request before the write.
 */
const mayHaveWritten = (status: number | undefined): boolean => status === undefined || status === 408 || status >= 500;

/**
 * Runs `work`, and repeats it after a random pause while it fails for a temporary cause. Other errors are thrown
 * unchanged.
 * @throws StoreDown after the last attempt; StoreUnfit when the store refuses our credentials; StoreFull for an
 * exceeded quota
 */
export async function withRetries<T>(action: string, work: (attempt: Attempt) => Promise<T>): Promise<T> {
  let unsure = false;
  for (let n = 1; ; n++) {
    try {
      return await work({ n, unsure });
    } catch (error) {
      const status = statusOf(error);
      if (n < MAX_ATTEMPTS && isOtherClock(error)) continue;
      if (status === 401 || status === 403) {
        const Refusal = status === 403 ? StoreRefused : StoreUnfit;
        throw new Refusal(`${action}: the store refuses us (${(error as Error).name})`, error);
      }
      if (status === 507 || (error as Error).name === "QuotaExceeded") throw new StoreFull(action, error);
      if (status !== undefined && !RETRIED_STATUSES.has(status)) throw error;
      if (FINAL_ERRORS.some((kind) => error instanceof kind)) throw error;
      unsure ||= mayHaveWritten(status);
      if (n === MAX_ATTEMPTS) throw new StoreDown(action, n, error);
      await systemClock.sleep(Math.random() * Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** n));
    }
  }
}
