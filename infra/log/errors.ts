/** The disk, or the size the log was given, is full. Nothing of the append was stored; free space and append again. */
export class LogFull extends Error {
  constructor(path: string, cause?: unknown) {
    super(`log ${path}: no space left, nothing was stored`, { cause });
    this.name = "LogFull";
  }
}

/** Too much is under way already, here or in another process that holds the file. Nothing was stored; append again. */
export class LogBusy extends Error {
  constructor(what: string, cause?: unknown) {
    super(`log is busy: ${what}`, { cause });
    this.name = "LogBusy";
  }
}

/** The log was closed under the call. An append that gets this was not stored. */
export class LogClosed extends Error {
  constructor() {
    super("log is closed");
    this.name = "LogClosed";
  }
}

/** A record, partition or option that no log takes. Nothing was stored. */
export class BadRecord extends Error {
  constructor(why: string) {
    super(`log: ${why}`);
    this.name = "BadRecord";
  }
}

/** The log cannot be opened as asked: another partition count, a file of a newer make, a library that loses data. */
export class LogRefused extends Error {
  constructor(why: string, cause?: unknown) {
    super(why, { cause });
    this.name = "LogRefused";
  }
}

/** The brokers did not do it after every try. Of an append any prefix may have been stored; append again. */
export class LogDown extends Error {
  constructor(doing: string, cause?: unknown) {
    super(`log: ${doing} failed: ${(cause as Error | undefined)?.message ?? String(cause)}`, { cause });
    this.name = "LogDown";
  }
}
