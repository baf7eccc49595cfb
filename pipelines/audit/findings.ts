import { KeysUnread } from "../published/errors.ts";

/** One thing that is wrong: which object or leaf, what was expected and what came. */
export interface Problem {
  key: string;
  expected: string;
  got: string;
}

/** What one check of the audit came to. */
export interface Finding {
  check: string;
  /** `not run`: an earlier check found what this one would stand on to be broken. */
  result: "ok" | "broken" | "not run";
  /** Things that were looked at. */
  checked: number;
  /** Things that nobody can prove yet, and why. */
  open: number;
  /** Things that were not looked at, since what they stand on is broken, gone or unread. */
  not_run: number;
  says?: string;
  problems: Problem[];
}

/** Problems that are kept of one check; the rest is only counted. */
const MAX_PROBLEMS = 100;

/** Gathers what one check finds: it goes on after a problem, so that one flipped byte does not hide the next one. */
export class Check {
  readonly finding: Finding;

  constructor(check: string) {
    this.finding = { check, result: "ok", checked: 0, open: 0, not_run: 0, problems: [] };
  }

  ok(n = 1): void {
    this.finding.checked += n;
  }

  open(says: string): void {
    this.finding.open++;
    this.finding.says = says;
  }

  notRun(says: string, n = 1): void {
    if (n === 0) return;
    this.finding.not_run += n;
    this.finding.says = says;
    if (this.finding.result === "ok") this.finding.result = "not run";
  }

  bad(problem: Problem): void {
    this.finding.checked++;
    this.finding.result = "broken";
    if (this.finding.problems.length < MAX_PROBLEMS) this.finding.problems.push(problem);
  }

  /**
   * What a step throws about an object is a finding; anything else is a fault of ours, or of the way there.
   * @returns did it hold?
   */
  async look(work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
      this.ok();
      return true;
    } catch (error) {
      const problem = problemOf(error);
      if (!problem) throw error;
      if (error instanceof KeysUnread) this.notRun(`${problem.key}: ${problem.got}`);
      else this.bad(problem);
      return false;
    }
  }
}

/** The finding in an error that a reader of the record throws, or null when the error is none. */
export function problemOf(error: unknown): Problem | null {
  const { name, key, expected, got, message } = (error ?? {}) as Partial<Problem> & { name?: string; message?: string };
  const says = message ?? "";
  if (name === "Tampered" || name === "KeysUnread" || name === "Unproven")
    return { key: key!, expected: expected!, got: got! };
  if (name === "MissingObject") return { key: key!, expected: "an object", got: "none" };
  if (name === "Oversized") return { key: says.split(" ")[0]!, expected: "fewer bytes", got: says };
  return null;
}

/** Objects whose packed bytes no leaf names: only what they unpack to stands under the root. */
type PackedKind = "entry bundles" | "segments" | "index shards";

/** `content`: only what objects unpack to is compared, for an auditor whose zlib or zstd is not the publisher's. */
export type PackingMode = "strict" | "content";

/** So many objects in a row that we pack otherwise were packed by another build; fewer were changed since. */
const ANOTHER_BUILD = 8;

/**
 * Some bits of a gzip or zstd stream change nothing of what it unpacks to, so a flipped one is only seen against the bytes
 * that our own packer makes of the same contents, as the publisher's did (docs/audit.md, Packed bytes). Packers differ
 * between versions and processors: a long row of objects that differ is open, not broken.
 */
export class Packing {
  readonly #check = new Check("packed bytes");
  readonly #rows = new Map<PackedKind, string[]>();

  constructor(private readonly mode: PackingMode) {}

  /** The next object of its kind, in log order; its contents were found right. */
  add(kind: PackedKind, key: string, theirs: Uint8Array, ours: Uint8Array): void {
    if (this.mode === "content") return;
    if (Buffer.compare(theirs, ours) === 0) {
      this.#endRow(kind);
      this.#check.ok();
      return;
    }
    const row = this.#rows.get(kind) ?? [];
    this.#rows.set(kind, row);
    if (row.length < ANOTHER_BUILD) row.push(key);
    else this.#open();
  }

  get finding() {
    for (const kind of this.#rows.keys()) this.#endRow(kind);
    return this.#check.finding;
  }

  /** The row of this kind has ended. */
  #endRow(kind: PackedKind): void {
    const row = this.#rows.get(kind) ?? [];
    this.#rows.delete(kind);
    for (const key of row) {
      if (row.length >= ANOTHER_BUILD) this.#open();
      else {
        const got =
          "others that unpack to the same: a changed bit, or another build of zlib or zstd (--packing content)";
        this.#check.bad({ key, expected: "the bytes that our packer makes of its contents", got });
      }
    }
  }

  #open(): void {
    this.#check.open("packed by another build of zlib or zstd, their contents hold");
  }
}
