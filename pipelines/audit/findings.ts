import { canonicalText } from "../../infra/canonical.ts";
import { KeysUnread, Unproven } from "../published/errors.ts";

/** One fault: the object or leaf, what was expected and what was found. */
export interface Problem {
  key: string;
  expected: string;
  got: string;
}

/** The result of one check of the audit. */
export interface Finding {
  check: string;
  /**
   * `not run`: nothing was found broken, but something could not be checked, since an object or leaf that it depends on
   * is broken or unread.
   */
  result: "ok" | "broken" | "not run";
  /** Number of objects, leaves or cards that were checked. */
  checked: number;
  /** Number of objects, leaves or cards that cannot be proven yet; `says` has the reason. */
  open: number;
  /** Number of those that were not checked, since something that they depend on is broken, missing or unread. */
  not_run: number;
  says?: string;
  problems: Problem[];
}

/** Largest number of problems that are kept for one check. Further ones are only counted. */
const MAX_PROBLEMS = 100;

/**
 * Collects the results of one check. The check continues after a problem, so that one flipped byte does not hide
 * another.
 */
export class Check {
  readonly finding: Finding;

  constructor(check: string) {
    this.finding = { check, result: "ok", checked: 0, open: 0, not_run: 0, problems: [] };
  }

  countOk(n = 1): void {
    this.finding.checked += n;
  }

  countOpen(says: string): void {
    this.finding.open++;
    this.finding.says = says;
  }

  countNotRun(says: string, n = 1): void {
    if (n === 0) return;
    this.finding.not_run += n;
    this.finding.says = says;
    if (this.finding.result === "ok") this.finding.result = "not run";
  }

  addProblem(problem: Problem): void {
    this.finding.checked++;
    this.finding.result = "broken";
    if (this.finding.problems.length < MAX_PROBLEMS) this.finding.problems.push(problem);
  }

  /**
   * Runs one step of the check. An error about an object of the record becomes a problem; any other error is thrown.
   * @returns whether the step succeeded
   */
  async runStep(work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
      this.countOk();
      return true;
    } catch (error) {
      const problem = problemOf(error);
      if (!problem) throw error;
      if (error instanceof KeysUnread) this.countNotRun(`${problem.key}: ${problem.got}`);
      else this.addProblem(problem);
      return false;
    }
  }
}

/** Returns the problem that an error about an object of the record describes; null for any other error. */
export function problemOf(error: unknown): Problem | null {
  const { name, key, expected, got, message } = (error ?? {}) as Partial<Problem> & { name?: string; message?: string };
  const messageText = message ?? "";
  if (name === "Tampered" || name === "KeysUnread" || name === "Unproven")
    return { key: key!, expected: expected!, got: got! };
  if (name === "MissingObject") return { key: key!, expected: "an object", got: "none" };
  if (name === "Oversized") return { key: messageText.split(" ")[0]!, expected: "fewer bytes", got: messageText };
  return null;
}

/**
 * Returns the RFC 8785 text of a value from the object `key` of the record.
 * @throws Unproven for a value that has no such text: it has a lone surrogate, or is nested deeper than 64 levels
 */
export function canonicalTextIn(key: string, value: unknown): string {
  try {
    return canonicalText(value);
  } catch (error) {
    throw new Unproven(key, "a value with RFC 8785 bytes", (error as Error).message.slice(0, 120));
  }
}

/** Kinds of objects of which the record proves only the unpacked bytes: no leaf has the hash of the packed bytes. */
type PackedKind = "entry bundles" | "segments" | "index shards";

/**
 * `strict`: compressed bytes are compared with those that our packer makes. `content`: they are not compared, for an
 * auditor whose zlib or zstd is another build than the publisher's.
 */
export type PackingMode = "strict" | "content";

/**
 * If at least this many consecutive objects of a kind differ from our compressed bytes, they count as compressed by
 * another build of zlib or zstd. If fewer differ, they count as altered.
 */
const OBJECTS_TO_ASSUME_ANOTHER_BUILD = 8;

/**
 * Compares compressed bytes. Some bits of a gzip or zstd stream do not change the content. A flip of such a bit is
 * found only by compressing the content again with the publisher's packer (docs/audit.md, Packed bytes). The packer's
 * output differs between builds of zlib and zstd and between processors, so a long series of objects that differ counts
 * as open, not as broken.
 */
export class PackedBytesCheck {
  readonly #check = new Check("packed bytes");
  /** For each kind, the keys of the current series of objects that differ, at most the number that makes a long one. */
  readonly #differingKeys = new Map<PackedKind, string[]>();

  constructor(private readonly mode: PackingMode) {}

  /**
   * Adds the next object of its kind, in log order (the shards of one index in any order). The caller has proven its
   * content.
   */
  add(kind: PackedKind, key: string, storedBytes: Uint8Array, repackedBytes: Uint8Array): void {
    if (this.mode === "content") return;
    if (Buffer.compare(storedBytes, repackedBytes) === 0) {
      this.#endSeries(kind);
      this.#check.countOk();
      return;
    }
    const series = this.#differingKeys.get(kind) ?? [];
    this.#differingKeys.set(kind, series);
    if (series.length < OBJECTS_TO_ASSUME_ANOTHER_BUILD) series.push(key);
    else this.#countOpen();
  }

  get finding() {
    for (const kind of this.#differingKeys.keys()) this.#endSeries(kind);
    return this.#check.finding;
  }

  /**
   * Ends the series of differing objects of this kind: a long one counts as open, the objects of a short one become
   * problems.
   */
  #endSeries(kind: PackedKind): void {
    const series = this.#differingKeys.get(kind) ?? [];
    this.#differingKeys.delete(kind);
    for (const key of series) {
      if (series.length >= OBJECTS_TO_ASSUME_ANOTHER_BUILD) this.#countOpen();
      else {
        const got =
          "others that unpack to the same: a changed bit, or another build of zlib or zstd (--packing content)";
        this.#check.addProblem({ key, expected: "the bytes that our packer makes of its contents", got });
      }
    }
  }

  #countOpen(): void {
    this.#check.countOpen("packed by another build of zlib or zstd, their contents hold");
  }
}
