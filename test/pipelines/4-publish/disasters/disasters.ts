import type { Store, StoredObject } from "../../../../infra/store/store.ts";
import { drawn } from "../../../helpers/drawn.ts";
import type { Fault, Step } from "../../../infra/store/recording-fs.ts";
import { type Around, idOf, type StoreCall } from "./calls.ts";
import type { Machine } from "./machine.ts";
import type { Scene } from "./scenes.ts";

/** One row: this write of the scene goes wrong, on this machine. */
export interface Row {
  machine: Machine;
  scene: Scene;
  write: string;
  /** Drawn from the row's name: which bit, and what a disk keeps of what was not synced. */
  seed: number;
}

/**
 * Plays a row until whoever was hit has gone, or has found its way by itself; gives the machine that is left. After it a
 * publisher that knows of nothing must be able to go on.
 */
export type Disaster = (row: Row) => Promise<Machine>;

export class Dead extends Error {}
export class Broken extends Error {}

/** A row whose write never came: the table and the scene do not fit, and nothing was tried. */
class NothingStruck extends Error {}

/** Let `strike` stand around this one write; everything else passes, or fails once the process is dead. */
function around(row: Row, strike: (work: () => Promise<unknown>, die: () => void) => Promise<unknown>) {
  const state = { struck: false, dead: false };
  const die = () => {
    state.dead = true;
  };
  const passing: Around = async (call, work) => {
    if (state.dead) throw new Dead(idOf(call));
    if (state.struck || idOf(call) !== row.write) return work();
    state.struck = true;
    return strike(work, die) as ReturnType<typeof work>;
  };
  return { passing, state };
}

const fails = (work: Promise<unknown>): Promise<boolean> =>
  work.then(
    () => false,
    () => true,
  );

const mustHaveStruck = (row: Row, struck: boolean): void => {
  if (!struck) throw new NothingStruck(row.write);
};

/** The process dies there. One that waited since before goes on in its place, knowing only what was then. */
const killed =
  (stored: boolean): Disaster =>
  async (row) => {
    const waiting = row.machine.publisher("waiting").publisher;
    await waiting.start();
    const { passing, state } = around(row, async (work, die) => {
      if (stored) await work();
      die();
      throw new Dead(row.write);
    });
    await fails(row.scene.work(row.machine.publisher("first", passing).publisher));
    mustHaveStruck(row, state.struck);
    await row.machine.prove();
    await row.scene.work(waiting);
    await row.machine.prove(row.scene.putIn);
    return row.machine;
  };

/** The write fails once, and the same process does all of it again. */
const failing =
  (stored: boolean): Disaster =>
  async (row) => {
    const { passing, state } = around(row, async (work) => {
      if (stored) await work();
      throw new Broken(row.write);
    });
    const { publisher } = row.machine.publisher("first", passing);
    await fails(row.scene.work(publisher));
    mustHaveStruck(row, state.struck);
    await row.machine.prove();
    await row.scene.work(publisher);
    return row.machine;
  };

const onBothDisks = ({ disks }: Machine, fault: ((step: Step) => Fault | undefined) | null): void => {
  for (const disk of [disks.private, disks.public]) disk.fault = fault ?? (() => undefined);
};

/** Not a byte fits on either disk from this write on, until somebody frees some. */
const diskFull: Disaster = async (row) => {
  const { passing, state } = around(row, (work) => {
    onBothDisks(row.machine, ({ op }) =>
      op === "openNew" || op === "write" ? { fail: "ENOSPC", torn: op === "write" } : undefined,
    );
    return work();
  });
  const { publisher } = row.machine.publisher("first", passing);
  await fails(row.scene.work(publisher));
  mustHaveStruck(row, state.struck);
  await fails(row.scene.work(publisher));
  onBothDisks(row.machine, null);
  await row.machine.prove();
  await row.scene.work(publisher);
  return row.machine;
};

/** The power goes in this write, at the first step that `when` picks, and each disk keeps what `keeps` lets it. */
const powerLost =
  (when: (ops: readonly Step["op"][]) => boolean, keeps: (row: Row) => () => boolean): Disaster =>
  async (row) => {
    const { passing, state } = around(row, (work, die) => {
      const ops: Step["op"][] = [];
      onBothDisks(row.machine, ({ op }) => {
        ops.push(op);
        return when(ops) ? "power" : undefined;
      });
      return work().finally(die);
    });
    await fails(row.scene.work(row.machine.publisher("first", passing).publisher));
    mustHaveStruck(row, state.struck);
    const left = await row.machine.afterPowerLoss(keeps(row));
    await left.prove();
    return left;
  };

const NAMES = new Set<Step["op"]>(["link", "rename", "unlink"]);

/** What a reader is told of the written object instead of what is there. Lists of keys only serve garbage collection: they stay true. */
type Telling = (row: Row, before: StoredObject | null) => <T>(call: StoreCall, truth: T) => T;

const stale: Telling =
  (_, before) =>
  <T>({ op }: StoreCall, truth: T): T =>
    (op === "head" || op === "get" ? before : truth) as T;

/** One bit of the object, always the same one; what is listed and asked of its head is right. */
const flipped: Telling =
  ({ seed }) =>
  <T>({ op }: StoreCall, truth: T): T => {
    if (op !== "get" || truth === null) return truth;
    const object = truth as StoredObject;
    const bytes = Buffer.from(object.bytes);
    const bit = Math.floor(drawn(seed)() * bytes.length * 8);
    bytes[bit >> 3]! ^= 1 << (bit & 7);
    return { ...object, bytes } as T;
  };

/**
 * From this write on its own process is told something else of the object, and then another one that starts. Either may
 * stop, but neither may harm the record.
 */
const told =
  (telling: Telling): Disaster =>
  async (row) => {
    const { machine, scene, write } = row;
    let tell: ReturnType<Telling> | null = null;
    let target: StoreCall | null = null;
    const telltale: Around = async (call, work) => {
      if (!target && idOf(call) === write) {
        const store: Store = call.store === "private" ? machine.privateStore : machine.publicStore;
        const before = await store.get(call.key);
        const result = await work();
        [tell, target] = [telling(row, before), call];
        return result;
      }
      const truth = await work();
      return tell && target?.store === call.store && target.key === call.key ? tell(call, truth) : truth;
    };
    await fails(scene.work(machine.publisher("first", telltale).publisher));
    mustHaveStruck(row, target !== null);
    await machine.prove();
    await fails(scene.work(machine.publisher("second", telltale).publisher));
    await machine.prove();
    return machine;
  };

/** By name. Each is tried at every write that a recorded run makes. */
export const DISASTERS: Readonly<Record<string, Disaster>> = {
  "killed before": killed(false),
  "killed after": killed(true),
  throws: failing(false),
  "answer lost": failing(true),
  "disk full": diskFull,
  torn: powerLost(
    (ops) => ops.at(-1) === "write" || ops.at(-1) === "unlink",
    ({ seed }) => {
      const draw = drawn(seed);
      return () => draw() < 0.5;
    },
  ),
  "folder not synced": powerLost(
    (ops) => ops.at(-1) === "sync" && ops.some((op) => NAMES.has(op)),
    () => () => false,
  ),
  "power lost after": powerLost(
    () => false,
    () => () => false,
  ),
  "stale read": told(stale),
  "flipped bit": told(flipped),
};
