import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FixedClock } from "../../../infra/clock.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { openCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../../infra/tree/note.ts";
import { writeIndex } from "../../../pipelines/4-publish/index-build.ts";
import { writeKeys } from "../../../pipelines/4-publish/keys.ts";
import { mirrorOnce } from "../../../pipelines/mirror/mirror.ts";
import type { MirrorOptions, MirrorSummary } from "../../../pipelines/mirror/run.ts";
import { DirectorySource, type Source } from "../../../pipelines/published/source.ts";
import { proveRecord, RecordBroken } from "../../helpers/prove-record.ts";
import { cardOf, listingDraft, NOW, type PublicRecord } from "../../helpers/public-record.ts";

export const specOf = (name: string) => ({ url: `https://${name}.example/x` });
export const sourceDir = (record: PublicRecord): string => join(record.dir, "public");

/** Listings under these names, the first few with cards. */
export async function grow(record: PublicRecord, prefix: string, count: number): Promise<void> {
  const specs = Array.from({ length: count }, (_, i) => specOf(`${prefix}${i}`));
  await record.publish(
    ...specs.map((spec) => [listingDraft(spec)]),
    ...specs.slice(0, 5).map((spec) => record.grades([cardOf(spec)], "B.")),
  );
}

export async function publishKeys(record: PublicRecord, jwks = record.jwks): Promise<void> {
  const draft = await writeKeys(record.store, record.committer.fold, jwks, record.keys, new Date(NOW));
  if (draft) await record.publish([draft]);
}

export async function publishIndex(record: PublicRecord): Promise<void> {
  const draft = await writeIndex(record.store, record.committer.fold, record.keys.cards);
  if (draft) await record.publish([draft]);
}

/** A record with everything a mirror copies: keys, listings and cards, an index of them. */
export async function publishAll(record: PublicRecord, prefix: string, count: number): Promise<void> {
  await publishKeys(record);
  await grow(record, prefix, count);
  await publishIndex(record);
}

/** What a mirror that was there before has to follow: another keys document, more endpoints, a newer index. */
export async function publishMore(record: PublicRecord, prefix: string, count: number): Promise<void> {
  const more = { ...record.jwks.keys[0]!, purpose: "answers" as const };
  await publishKeys(record, { keys: [...record.jwks.keys, more] });
  await grow(record, prefix, count);
  await publishIndex(record);
}

export const keysOf = ({ trust }: Pick<PublicRecord, "trust">) => ({
  log: formatVkey(trust.log, ED25519),
  witness: formatVkey(trust.witness!, COSIGNATURE),
});

/** A source that notes what it is asked for, and lets a test change or stop an answer. */
export class WatchedSource implements Source {
  readonly name = "watched";
  readonly asked: string[] = [];
  /** Objects that this source shows instead of its own; null: missing. */
  readonly shown = new Map<string, Uint8Array | null>();
  onGet: (key: string, n: number) => void | Promise<void> = () => undefined;
  readonly #inner: DirectorySource;

  constructor(dir: string) {
    this.#inner = new DirectorySource(dir);
  }

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    const n = this.asked.push(key) - 1;
    await this.onGet(key, n);
    const shown = this.shown.get(key);
    return shown === undefined ? this.#inner.get(key, maxBytes) : shown;
  }

  async close(): Promise<void> {}
}

/** A mirror in a folder of its own. */
export class Mirror {
  readonly clock = new FixedClock(NOW);

  private constructor(
    readonly dir: string,
    readonly publicStore: Store,
    readonly stateStore: Store,
  ) {}

  /** @param like a mirror whose folders are copied. */
  static async open(like?: Mirror): Promise<Mirror> {
    const dir = await mkdtemp(join(tmpdir(), "mirror-"));
    if (like) await cp(like.dir, dir, { recursive: true });
    return new Mirror(dir, await openDirectoryStore(join(dir, "public")), await openDirectoryStore(join(dir, "state")));
  }

  run(source: Source, more: Partial<MirrorOptions> = {}): Promise<MirrorSummary> {
    const { publicStore, stateStore, clock } = this;
    return mirrorOnce({ source, publicStore, stateStore, clock, ...more });
  }

  /**
   * Prove what is exposed.
   * @param missing keys that may be missing, and must be: what does not hold is never there
   * @returns the size that is served, null for none
   */
  async proven(
    record: Pick<PublicRecord, "trust">,
    atRest = false,
    missing: readonly string[] = [],
  ): Promise<number | null> {
    const { trust } = record;
    for (const key of missing) if (await this.publicStore.head(key)) throw new Error(`${key} is missing and is there`);
    try {
      return (await proveRecord(this.publicStore, { trust, atRest })).checkpoint?.size ?? null;
    } catch (error) {
      if (!(error instanceof RecordBroken) || missing.length === 0) throw error;
      const others = error.problems.filter(
        (problem) => !missing.some((key) => problem.includes(key) && problem.includes("missing")),
      );
      if (others.length > 0) throw new RecordBroken(others);
      return openCheckpoint((await this.publicStore.get("checkpoint"))!.bytes, trust).size;
    }
  }

  async close(): Promise<void> {
    await this.publicStore.close();
    await this.stateStore.close();
    await rm(this.dir, { recursive: true, force: true });
  }
}
