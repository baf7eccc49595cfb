/** A file of the archive that is not what it has to be: read back from the store, or as its leaf names it. Nothing was deleted. */
export class ArchiveUnproven extends Error {
  constructor(
    readonly key: string,
    readonly expected: string,
    readonly got: string,
  ) {
    super(`${key}: expected ${expected}, got ${got}`);
    this.name = "ArchiveUnproven";
  }
}

/** The rows of a published file are not the ones in the lake: nothing was deleted, an operator has to look. */
export class ArchiveMismatch extends Error {
  constructor(id: string, says: string) {
    super(`${id}: ${says}`);
    this.name = "ArchiveMismatch";
  }
}

/** A file that cannot be replaced, and why. */
export class CannotSupersede extends Error {
  constructor(says: string) {
    super(says);
    this.name = "CannotSupersede";
  }
}
