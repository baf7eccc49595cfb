import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { volatileRows } from "../../../pipelines/2-ingest/volatile.ts";
import { collectLiveFiles, writeLiveTable, writeView } from "../../../pipelines/4-publish/view.ts";
import { readUnpublishedCorrections } from "../../../pipelines/corrections/endpoint-record.ts";
import { headlineBasisOf } from "../../../pipelines/published/fold.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { LiveTables } from "../../../pipelines/roles/protocol/live-tables.ts";
import { NO_VOLATILE_ROWS, type VolatileRows } from "../../../serving/tables/view.ts";
import { loadVolatile } from "../../../serving/tables/volatile.ts";
import { fc } from "../../helpers/histories.ts";
import { cardOf, PublicRecord } from "../../helpers/public-record.ts";
import {
  ask,
  at,
  capOf,
  correction,
  delisting,
  handshake,
  intent,
  later,
  listing,
  reinstated,
  result,
  SHA,
  urlOf,
} from "../2-ingest/records.ts";
import { openTestWorld, PARTITIONS, type World } from "../2-ingest/world.ts";

const TABLES = [0, 1];
const tableOf = (cap: string) => partitionOf(cap, PARTITIONS);

/** Counts that only ever grow. */
const COUNTS = ["probes", "answered", "asked_for_payment", "paid_calls", "distinct_prices"] as const;

/** A reader that follows: what it has folded so far, and that no count of it ever goes back. */
class Reader {
  volatile: VolatileRows = NO_VOLATILE_ROWS;
  reads = 0;

  constructor(private readonly record: PublicRecord) {}

  async look(): Promise<void> {
    const before = this.volatile;
    const get = (...args: Parameters<PublicRecord["store"]["get"]>) => {
      if (args[0].endsWith(".arrow")) this.reads++;
      return this.record.store.get(...args);
    };
    const { volatile, newRows } = await loadVolatile({ get }, before);
    this.volatile = volatile;
    for (const row of newRows) expect(volatile.rows.get(row.capability_id)).toBe(row);
    for (const old of before.rows.values()) {
      const now = volatile.rows.get(old.capability_id);
      for (const count of COUNTS) expect(now?.[count] ?? -1).toBeGreaterThanOrEqual(old[count]);
    }
  }

  rows(): Map<string, unknown> {
    return new Map([...this.volatile.rows.values()].map(({ file: _, ...row }) => [row.capability_id, row]));
  }
}

const KINDS = [
  "handshake",
  "paid",
  "listing",
  "moved",
  "delisting",
  "ask",
  "correction",
  "of one",
  "reinstated",
] as const;

const act = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("record" as const),
      kind: fc.constantFrom(...KINDS),
      who: fc.nat(4),
      back: fc.nat(40),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("card" as const), who: fc.nat(4), reads: fc.boolean() }) },
  { weight: 1, arbitrary: fc.constant({ do: "leaves" as const }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("turn" as const), fails: fc.option(fc.nat(3), { freq: 5 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("hold" as const), tables: fc.subarray(TABLES) }) },
  { weight: 1, arbitrary: fc.constant({ do: "restart" as const }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("collect" as const), minutes: fc.constantFrom(1, 20, 120) }) },
  { weight: 1, arbitrary: fc.constant({ do: "look" as const }) },
);
type Act = typeof act extends fc.Arbitrary<infer T> ? T : never;

let world: World;
let record: PublicRecord;
let histories = 0;
beforeAll(async () => {
  world = await openTestWorld();
  record = await PublicRecord.open();
});
afterAll(async () => {
  await world.close();
  await record.close();
});

/** One owner's tables over a real lake, the real fold of a real tree, and a store that can fail; and two readers. */
class History {
  readonly #names = Array.from({ length: 5 }, (_, i) => `h${histories}x${i}`);
  readonly #follows = new Reader(record);
  readonly #seldom = new Reader(record);
  /** Files of each table as they were named last, by whoever held it. */
  readonly #named = new Map<number, string[]>();
  #held: readonly number[] = TABLES;
  #failAfter = Number.POSITIVE_INFINITY;
  #live = this.#open();
  #minute = 0;

  #open(): LiveTables {
    const write = async (table: number, bytes: Uint8Array) => {
      if (this.#failAfter-- <= 0) throw new Error("disk full");
      return writeLiveTable(record.store, world.clock, table, bytes);
    };
    return new LiveTables({
      ...{ lake: world.lake, now: () => world.clock.now(), tableOf, write },
      fileRows: 2,
      queryCaps: 3,
    });
  }

  async does(what: Act): Promise<void> {
    switch (what.do) {
      case "record":
        return this.#record(what);
      case "card":
        return this.#card(this.#names[what.who]!, what.reads);
      case "leaves":
        return this.#leaves();
      case "turn":
        return this.#turn(what.fails);
      case "hold":
        this.#held = what.tables;
        return;
      case "restart":
        this.#live = this.#open();
        return;
      case "collect":
        world.clock.set(new Date(world.clock.now().getTime() + what.minutes * 60_000));
        await collectLiveFiles(record.store, world.clock, [...this.#named.values()].flat());
        return;
      case "look":
        return this.#seldom.look();
    }
  }

  async #record({ kind, who, back }: Extract<Act, { do: "record" }>): Promise<void> {
    const name = this.#names[who]!;
    const time = later(at("00:00:00"), (this.#minute++ + 60 - back) * 60_000);
    const sent = intent(name, time);
    const id = `c${this.#minute}`;
    const own = { seller_controlled: true, source_id: name };
    const made = {
      handshake: () => [handshake(name, time, { price: `0.0${10 + (this.#minute % 5)}000` })],
      paid: () => [sent, result(name, sent.eventId, later(time, 1_000))],
      listing: () => [listing(name, time, own)],
      moved: () => [listing(this.#names[(who + 1) % 5]!, time, own)],
      delisting: () => [delisting(name, time)],
      ask: () => [ask(name, time)],
      correction: () => [correction(name, time, { id })],
      "of one": () => [handshake(name, time), correction(name, time, { id, record_id: handshake(name, time).eventId })],
      reinstated: () => [reinstated(name, time, `c${this.#minute - 1 - (back % 5)}`)],
    }[kind]();
    await world.append(...made);
  }

  /** A new headline; `reads`: its run had read everything that the lake has. */
  async #card(name: string, reads: boolean): Promise<void> {
    const positions = await world.ingest.positions();
    const part = String(tableOf(capOf(name)));
    const read = Object.fromEntries(TOPICS.map((topic) => [topic, reads ? (positions[topic]?.[part] ?? 0) : 0]));
    const card = cardOf({ url: urlOf(name) }, { computed_at: later(at("00:30:00"), this.#minute * 60_000) });
    const group = record.grades([card], "B.");
    await record.publish(group.map((draft) => ({ ...draft, inputs: { digest: SHA, kin: SHA, positions: read } })));
  }

  /** What was said comes into the tree. */
  async #leaves(): Promise<void> {
    const said = await readUnpublishedCorrections(world.lake, record.committer.fold);
    for (const [capability_id, sayings] of said)
      await record.publish(sayings.map(({ kind, body }) => ({ kind, capability_id, body, position: 1 })));
  }

  async #turn(fails: number | null): Promise<void> {
    world.clock.set(new Date(world.clock.now().getTime() + 10_000));
    await world.ingest.pass();
    const positions = await world.ingest.positions();
    const { fold } = record.committer;
    this.#failAfter = fails ?? Number.POSITIVE_INFINITY;
    try {
      await this.#live.writeChanges(fold, this.#held);
    } catch (error) {
      expect(String(error)).toContain("disk full");
      return;
    }
    this.#live.markNamed();
    for (const table of this.#held) this.#named.set(table, this.#live.keysOf(table));
    const live = [...this.#named.values()].flat();
    const view = {
      v: 1 as const,
      at: world.clock.now().toISOString(),
      index: null,
      tree_size: fold.size,
      live,
      positions,
    };
    await writeView(record.store, view);
    await this.#follows.look();
    const all = await this.#all();
    for (const [cap, row] of all)
      if (this.#held.includes(tableOf(cap))) expect(this.#follows.rows().get(cap)).toEqual(row);
  }

  /** Every row, as the query says it of the whole lake. */
  async #all(): Promise<Map<string, unknown>> {
    const { fold } = record.committer;
    const published = { get: (cap: string) => headlineBasisOf(fold, cap) };
    const rows = await volatileRows(world.lake, published, await readUnpublishedCorrections(world.lake, fold));
    return new Map(rows.map((row) => [row.capability_id, row]));
  }

  /** All is held, and nothing fails any more: whoever followed, or looked now and then, or comes only now has the same. */
  async ends(): Promise<void> {
    this.#held = TABLES;
    await this.#turn(null);
    const all = await this.#all();
    const newcomer = new Reader(record);
    for (const reader of [this.#follows, this.#seldom, newcomer]) {
      await reader.look();
      expect(reader.rows()).toEqual(all);
    }
    // Nothing is news any more: nothing is written and nothing read.
    for (let i = 0; i < 8; i++) await this.#turn(null);
    const { reads } = this.#follows;
    const keys = TABLES.flatMap((table) => this.#live.keysOf(table));
    await this.#turn(null);
    expect([this.#follows.reads, TABLES.flatMap((table) => this.#live.keysOf(table))]).toEqual([reads, keys]);
    expect(keys.length).toBeGreaterThan(0);
  }
}

describe("histories of records, cards, corrections, take-overs, restarts and full disks", () => {
  test("after every turn readers have what the whole query says, and no count goes back", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(act, { minLength: 10, maxLength: 40 }), async (acts) => {
        histories++;
        const history = new History();
        await history.does({ do: "record", kind: "listing", who: 0, back: 0 });
        await history.does({ do: "record", kind: "handshake", who: 4, back: 0 });
        await history.does({ do: "turn", fails: null });
        for (const one of acts) await history.does(one);
        await history.ends();
      }),
      { numRuns: 5 },
    );
  });
});
