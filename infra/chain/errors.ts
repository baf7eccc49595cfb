/** A commit or a data file is missing, torn, altered or contradicts its neighbours. Nothing may be built on it. */
export class DamagedChain extends Error {
  constructor(
    readonly key: string,
    why: string,
    cause?: unknown,
  ) {
    super(`chain: ${key} ${why}`, { cause });
    this.name = "DamagedChain";
  }
}

/** The chain was made from another log than the one at hand: going on would mix two histories. */
export class NotOurLog extends Error {
  constructor(partition: string, why: string) {
    super(`log ${partition} is not the one that was read so far: ${why}`);
    this.name = "NotOurLog";
  }
}

/** The log no longer keeps records that were never read: [first, next). Accept the gap to go on without them. */
export class RecordsLost extends Error {
  constructor(
    partition: string,
    readonly first: number,
    readonly next: number,
  ) {
    super(`log ${partition} lost the records ${first} to ${next - 1} before they were read; accept the gap to go on`);
    this.name = "RecordsLost";
  }
}

/** A commit that would break the chain: a mistake of the caller, not a lost race. */
export class BadProposal extends Error {
  constructor(why: string) {
    super(`chain: ${why}`);
    this.name = "BadProposal";
  }
}
