import type { VerifyPool } from "../../infra/keys/verify-pool.ts";
import { provenLeaves } from "../published/leaves.ts";
import type { Source } from "../published/source.ts";
import { type Finding, problemOf } from "./findings.ts";
import { type Gathered, Gathering } from "./gather.ts";
import { IndexAudit } from "./indexes.ts";
import { LogAudit } from "./log.ts";
import type { Packing } from "./packing.ts";

/** What one reading of the log is good for: its rules, its indexes, and what the cards are recomputed from. */
export class LogReading {
  readonly rules: LogAudit;
  readonly #indexes: IndexAudit;
  readonly #gathering: Gathering;
  /** Set by the first leaf that nothing further can stand on. */
  #unreadable = false;
  /** Leaves were left out that nothing proves any more. */
  hasHoles = false;
  #fault: { error: unknown } | null = null;

  constructor(
    private readonly source: Source,
    size: number,
    pool: VerifyPool,
    private readonly packing: Packing,
    private readonly maxHeld?: number,
  ) {
    this.rules = new LogAudit(source, pool);
    this.#indexes = new IndexAudit(source, packing, maxHeld);
    this.#gathering = new Gathering(source, "all", size, false);
  }

  /** The next entry. */
  async add(entry: Buffer): Promise<void> {
    const leaf = await this.rules.add(entry);
    if (!leaf) this.#unreadable = true;
    if (!leaf || this.#unreadable) return;
    // An index is made of every leaf below it.
    if (!this.hasHoles) await this.#indexes.add(leaf, this.rules.jwks, entry);
    else if (leaf.kind === "index") this.#indexes.check.notRun("leaves below them are unread");
    if (this.#fault) return;
    await this.#gathering.add(leaf).catch((error: unknown) => {
      this.#fault = { error };
    });
  }

  /** So many leaves cannot be read. */
  skip(index: number, count: number): void {
    this.hasHoles = true;
    this.rules.skip(count);
    this.#gathering.skip(index);
  }

  /** The root over all entries was the signed one. */
  async end(head: { size: number; root: Buffer }, onProgress: (text: string) => void): Promise<void> {
    await this.rules.end();
    if (this.#indexes.late.length > 0 && this.#sound) await this.#again(head, onProgress);
  }

  /** Indexes that were published further behind their leaves than were held: read once more, now in order of their sizes. */
  async #again(head: { size: number; root: Buffer }, onProgress: (text: string) => void): Promise<void> {
    const again = new IndexAudit(this.source, this.packing, this.maxHeld, this.#indexes);
    const late = this.#indexes.late.sort((a, b) => a.leaf.tree_size - b.leaf.tree_size);
    try {
      for await (const { index, leaf, bytes } of provenLeaves(this.source, head)) {
        while (late[0] && late[0].leaf.tree_size <= index) await again.named(late.shift()!);
        if (late.length === 0) return;
        again.hold(leaf, bytes);
        onProgress(`indexes, once more: ${index} of ${head.size} leaves`);
      }
    } catch (error) {
      // A tile or segment, and the check of those has told of it.
      if (!problemOf(error)) throw error;
      this.#indexes.check.notRun("the leaves below them cannot be read once more", late.length);
    }
  }

  get #sound(): boolean {
    return !this.#unreadable && !this.hasHoles && this.rules.leaves.finding.result === "ok";
  }

  /** Endpoints with their cards and evidence. @throws Unproven for leaves that do not go together */
  gathered(): Gathered {
    if (this.#fault) throw this.#fault.error;
    return this.#gathering.found();
  }

  /** A log with holes has no index to rebuild. */
  get findings(): Finding[] {
    return [...this.rules.findings, ...(this.#sound || this.hasHoles ? this.#indexes.findings : [])];
  }
}
