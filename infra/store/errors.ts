/** The disk (or a quota) is full. Nothing of the object is visible; free space and try again. */
export class StoreFull extends Error {
  constructor(key: string, cause?: unknown) {
    super(`store: no space left for ${key}`, { cause });
    this.name = "StoreFull";
  }
}

/** Another process held the swap lock for longer than we wait. Nothing was done; try again. */
export class StoreBusy extends Error {
  constructor(lock: string, waitedMs: number) {
    super(`store: lock ${lock} was held by others for ${Math.round(waitedMs)} ms`);
    this.name = "StoreBusy";
  }
}

/** The object is larger than the caller is ready to hold in memory. */
export class ObjectTooLarge extends Error {
  constructor(
    readonly key: string,
    readonly size: number,
    readonly maxBytes: number,
  ) {
    super(`store: ${key} has ${size} bytes, more than the ${maxBytes} asked for`);
    this.name = "ObjectTooLarge";
  }
}

/** A folder cannot hold `a` and `a/b` at once: one of them is taken as the other kind. */
export class KeyConflict extends Error {
  constructor(key: string) {
    super(`store: ${key} crosses an object and a folder of the same name`);
    this.name = "KeyConflict";
  }
}

/** True when `error` is a Node system error with one of `codes`. */
export function isErrno(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && "code" in error && typeof error.code === "string" && codes.includes(error.code);
}

/** The store does not do what the contract rests on (create-only, compare-and-swap), or keeps us out: never used. */
export class StoreUnfit extends Error {
  constructor(says: string, cause?: unknown) {
    super(`store: ${says}`, { cause });
    this.name = "StoreUnfit";
  }
}

/** We may not read that key, or there is none and we may not be told so (unlisted.ts). */
export class StoreRefused extends StoreUnfit {}

/** The store did not answer, or not as a store does, after every try. Whether the last write holds is not known. */
export class StoreDown extends Error {
  constructor(doing: string, tries: number, cause?: unknown) {
    super(`store: ${doing} failed ${tries} times: ${(cause as Error | undefined)?.message ?? String(cause)}`, {
      cause,
    });
    this.name = "StoreDown";
  }
}
