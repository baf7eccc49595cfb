import { FixedClock } from "../../../../infra/clock.ts";
import { openDirectoryStore } from "../../../../infra/store/directory.ts";
import type { Store } from "../../../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../../../infra/telemetry.ts";
import { openCheckpoint } from "../../../../infra/tree/checkpoint.ts";
import { createPublisher, type Publisher } from "../../../../pipelines/4-publish/publisher.ts";
import { CHECKPOINT, VIEW } from "../../../../pipelines/published/objects.ts";
import type { View } from "../../../../pipelines/record/volatile.ts";
import { proveRecord, RecordBroken } from "../../../helpers/prove-record.ts";
import { RecordingFs } from "../../../infra/store/recording-fs.ts";
import { ORIGIN, PARTITIONS, SIGNERS, TRUST } from "../world.ts";
import { type Around, Calls } from "./calls.ts";
import { proveGenerations } from "./prove-generations.ts";

/** Moment of every record here; later than the disks' own time, so that garbage collection finds everything old. */
const NOW = new Date(Date.now() + 60 * 86_400_000).toISOString();

/** What a record is held against after a disaster. */
export type Proof = (machine: Machine, putIn?: readonly string[]) => Promise<void>;

/**
 * A machine with two disks that remember what was synced, the real directory store on each, and every checkpoint that
 * anybody could have read of it. Copies of it are cheap: each row of the table ruins its own.
 */
export class Machine {
  readonly clock = new FixedClock(NOW);

  private constructor(
    readonly disks: { private: RecordingFs; public: RecordingFs },
    readonly privateStore: Store,
    readonly publicStore: Store,
    /** Bytes of every checkpoint and every view that was ever in force, in order. */
    readonly served: { checkpoint: Uint8Array[]; view: Uint8Array[] },
    private readonly proof: Proof,
  ) {}

  static async open(
    disks = { private: new RecordingFs(), public: new RecordingFs() },
    served: Machine["served"] = { checkpoint: [], view: [] },
    proof: Proof = proveWhole,
  ): Promise<Machine> {
    const [privateStore, publicStore] = await Promise.all(
      [disks.private, disks.public].map((fs) => openDirectoryStore("/store", { fs })),
    );
    const own = { checkpoint: [...served.checkpoint], view: [...served.view] };
    return new Machine(disks, privateStore!, publicStore!, own, proof);
  }

  /** The machine as it is found when the power went: `keeps` is asked of everything that was not synced. */
  afterPowerLoss(keeps: () => boolean): Promise<Machine> {
    const { disks, served, proof } = this;
    return Machine.open(
      { private: disks.private.afterPowerLoss(keeps), public: disks.public.afterPowerLoss(keeps) },
      served,
      proof,
    );
  }

  /** Another machine with the same disks. */
  copy(): Promise<Machine> {
    return this.afterPowerLoss(() => true);
  }

  /** Another process: its own stores on the same disks, each of its calls inside `around`. */
  publisher(writer: string, around?: Around): { publisher: Publisher; calls: Calls } {
    const calls = new Calls(around);
    const publisher = createPublisher({
      privateStore: calls.wrap(this.privateStore, "private"),
      publicStore: calls.wrap(this.#noting(this.publicStore), "public"),
      signers: SIGNERS,
      clock: this.clock,
      origin: ORIGIN,
      partitions: PARTITIONS,
      logger: createLogger("silent"),
      metrics: createMetrics(),
      writer,
    });
    return { publisher, calls };
  }

  /** The whole record again, from both disks. With `putIn` nobody writes any more: all of it is there, and nothing else. */
  async prove(putIn?: readonly string[]): Promise<void> {
    await this.proof(this, putIn);
    const { checkpoint, view } = this.served;
    expectForward(
      "checkpoint",
      checkpoint.map((bytes) => openCheckpoint(bytes, TRUST).size),
    );
    expectForward(
      "live/view.json",
      view.map((bytes) => (JSON.parse(Buffer.from(bytes).toString()) as View).tree_size),
    );
  }

  #noting(store: Store): Store {
    return {
      ...bound(store),
      swap: async (key, bytes, expected, meta) => {
        const result = await store.swap(key, bytes, expected, meta);
        if (result.result === "swapped" && key === CHECKPOINT) this.served.checkpoint.push(bytes);
        if (result.result === "swapped" && key === VIEW) this.served.view.push(bytes);
        return result;
      },
    };
  }
}

/** The tree made again from its entries, and everything else that two disks hold of a record. */
export const proveWhole: Proof = async ({ privateStore, publicStore, served }, putIn) => {
  const settled = putIn ? { settled: true, expected: putIn, nothingElse: true } : {};
  const { checkpoint } = await proveRecord(publicStore, { trust: TRUST, served: served.checkpoint, ...settled });
  await proveGenerations(privateStore, checkpoint, putIn !== undefined);
};

/** Nobody who followed it was ever taken back. @throws RecordBroken */
function expectForward(key: string, sizes: readonly number[]): void {
  const back = sizes.findIndex((size, i) => size < (sizes[i - 1] ?? 0));
  if (back > 0) throw new RecordBroken([`${key} went back from ${sizes[back - 1]} leaves to ${sizes[back]}`]);
}

const bound = (store: Store): Store => ({
  get: (key, options) => store.get(key, options),
  getRange: (key, start, end) => store.getRange(key, start, end),
  head: (key) => store.head(key),
  list: (prefix, options) => store.list(prefix, options),
  create: (key, bytes, meta) => store.create(key, bytes, meta),
  swap: (key, bytes, expected, meta) => store.swap(key, bytes, expected, meta),
  delete: (key) => store.delete(key),
  close: () => store.close(),
});
