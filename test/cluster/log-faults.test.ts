import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DOORS, type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { startTcpProxy, type TcpProxy } from "../../fixtures/faults/tcp-proxy.ts";
import { parseKafkaAddress } from "../../infra/log/kafka/address.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import { joinGroup } from "../../infra/log/kafka/members.ts";
import type { AppendedRecord, Log, LogRecord } from "../../infra/log/log.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { LOG_TOPIC_OPTIONS, OWNER_GROUP } from "../../pipelines/record/topics.ts";
import { record } from "../infra/log/contract.ts";
import { compressByGzip } from "./gzip-topics.ts";

const logger = createLogger("silent");
const TOPIC = "observations.free";
const PARTITIONS = 4;

const addressOf = (brokers: readonly string[], prefix: string) =>
  parseKafkaAddress(`kafka://${brokers.join(",")}/${prefix}`);

/** Everything of one topic, by partition, in order. */
async function everything(log: Log): Promise<LogRecord[][]> {
  const all: LogRecord[][] = [];
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const found: LogRecord[] = [];
    const { start, end } = await log.bounds(TOPIC, partition);
    for (let from = start; from < end; ) {
      const read = await log.read(TOPIC, partition, from, { maxRecords: 10_000, waitMs: 120_000 });
      found.push(...read);
      from = read.at(-1)!.offset + 1;
    }
    all.push(found);
  }
  return all;
}

/**
 * A writer that appends until told to stop, as observers do: what was not acknowledged is appended again under the same
 * ids. @returns what was acknowledged, in order, and how many appends failed on the way
 */
async function appending(
  log: Log,
  until: (acked: number) => boolean,
): Promise<{ acked: AppendedRecord[]; failures: number }> {
  const acked: AppendedRecord[] = [];
  let failures = 0;
  for (let n = 0; !until(acked.length); n++) {
    const batch = Array.from({ length: 40 }, (_, i) => record(TOPIC, (n + i) % PARTITIONS));
    for (;;) {
      try {
        acked.push(...(await log.append(batch)));
        break;
      } catch {
        failures++;
      }
    }
  }
  return { acked, failures };
}

/**
 * The oracle: every acknowledged record stands at the offset that was named, offsets are dense, copies carry the id of
 * what they copy, and without copies each partition's order is the order of the appends.
 */
async function prove(log: Log, acked: readonly AppendedRecord[]): Promise<void> {
  const all = await everything(log);
  const ids = new Set(acked.map(({ eventId }) => eventId));
  for (const [partition, records] of all.entries()) {
    expect(records.map(({ offset }) => offset)).toEqual(records.map((_, i) => i));
    const own = acked.filter((one) => one.partition === partition);
    for (const { offset, eventId } of own) expect([offset, records[offset]?.eventId]).toEqual([offset, eventId]);
    const first = new Map<string, number>();
    for (const { eventId, offset } of records) {
      expect(ids.has(eventId)).toBe(true);
      if (!first.has(eventId)) first.set(eventId, offset);
    }
    const order = own.map(({ eventId }) => first.get(eventId)!);
    expect(order).toEqual([...order].sort((a, b) => a - b));
  }
}

async function hasCopies(log: Log): Promise<boolean> {
  const ids = (await everything(log)).flat().map(({ eventId }) => eventId);
  return new Set(ids).size < ids.length;
}

/** Waits for a hand-out after this one that gives it everything; only a hang reaches the bound of the test. */
async function holdsAll(member: Ownership, generation: number): Promise<void> {
  while (member.generation <= generation || member.held().length < PARTITIONS) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

describe.concurrent("three brokers, one of them killed and started again, twice", () => {
  let kafka: KafkaCluster;
  beforeAll(async () => {
    kafka = await startKafka({ count: 3 });
  });
  afterAll(() => kafka.stop());

  it("lose nothing that was acknowledged", async () => {
    // What the second holds is decoded by kafkajs.
    const places = ["killed", "gzip"].map((prefix) => addressOf(kafka.brokers, prefix));
    const create = { partitions: PARTITIONS, replicas: 3, minInSync: 2 };
    const logs = await Promise.all(
      places.map((place) => openKafkaLog(place, { ...LOG_TOPIC_OPTIONS, logger, create })),
    );
    await compressByGzip(kafka.brokers, "gzip");
    let over = false;
    // However busy the machine is: with fewer, little was at stake.
    const writing = logs.map((log) => appending(log, (acked) => over && acked > 1_000));
    for (const node of [0, 1]) {
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      await kafka.kill(node);
      await new Promise((resolve) => setTimeout(resolve, 4_000));
      await kafka.start(node);
    }
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    over = true;
    for (const [n, { acked }] of (await Promise.all(writing)).entries()) {
      // A client that knows nothing of what happened.
      const fresh = await openKafkaLog(places[n]!, { ...LOG_TOPIC_OPTIONS, logger });
      expect(fresh.id).toBe(logs[n]!.id);
      await prove(fresh, acked);
      await fresh.close();
      await logs[n]!.close();
    }
  });
});

/** A door of the broker, and the network in front of it. */
interface Network {
  proxy: TcpProxy;
  brokers: readonly string[];
}

// At the same moment, each through a door of its own: what takes the time are pauses between tries.
describe.concurrent("a network between client and broker", () => {
  let kafka: KafkaCluster;
  const free: Network[] = [];
  const proxies: TcpProxy[] = [];
  beforeAll(async () => {
    const inFront = async (port: number) => {
      const proxy = await startTcpProxy(() => port);
      proxies.push(proxy);
      return proxy.port;
    };
    kafka = await startKafka({ advertise: inFront, doors: DOORS });
    free.push(...proxies.map((proxy, n) => ({ proxy, brokers: kafka.doors[n]! })));
  });
  afterAll(async () => {
    for (const proxy of proxies) await proxy.close();
    await kafka.stop();
  });
  /** As many tests at once as there are doors. */
  const through = async (work: (network: Network) => Promise<void>): Promise<void> => {
    const network = free.pop();
    if (!network) throw new Error("more tests at once than doors");
    try {
      await work(network);
    } finally {
      network.proxy.passing = () => undefined;
      network.proxy.weather = "clear";
      free.push(network);
    }
  };

  it.each(["answers lost", "slow", "refused"] as const)(
    "with %s: acknowledged is stored, and copies share an id",
    (weather) =>
      through(async ({ proxy, brokers }) => {
        const log = await openKafkaLog(addressOf(brokers, weather.replace(" ", "-")), {
          ...LOG_TOPIC_OPTIONS,
          logger,
          create,
        });
        let over = false;
        const writing = appending(log, (acked) => over && acked > 100);
        // An append whose answer was lost was made twice: that it happens is what that weather is for.
        const isDone = async (n: number) => n >= 3 && (weather !== "answers lost" || (await hasCopies(log)));
        for (let n = 0; !(await isDone(n)); n++) {
          await new Promise((resolve) => setTimeout(resolve, 300));
          proxy.weather = weather;
          await new Promise((resolve) => setTimeout(resolve, 700));
          // What was in flight is gone with the connection.
          if (weather !== "slow") proxy.cut();
          proxy.weather = "clear";
        }
        await new Promise((resolve) => setTimeout(resolve, 500));
        over = true;
        const { acked } = await writing;
        await prove(log, acked);
        await log.close();
      }),
  );

  /** Calls that the product makes of a broker. What `made` opens is closed after the call; `step`: which moments are tried. */
  const create = { partitions: PARTITIONS, replicas: 1, minInSync: 1 };
  const opened = ({ brokers }: Network, prefix = "calls") =>
    openKafkaLog(addressOf(brokers, prefix), { ...LOG_TOPIC_OPTIONS, logger, create });
  let fresh = 0;
  const isRead = async (_: Network, log: Log) =>
    expect((await log.read(TOPIC, 0, 0, { waitMs: 120_000 })).length).toBeGreaterThan(0);
  const calls: Record<
    string,
    { step: number; made?: (by: Network) => Promise<Log>; call: (by: Network, log: Log) => Promise<unknown> }
  > = {
    "a log is opened": { step: 1, call: async (by) => (await opened(by)).close() },
    "a log is created": {
      step: 4,
      call: async ({ brokers }) =>
        (await openKafkaLog(addressOf(brokers, `fresh-${fresh++}`), { ...LOG_TOPIC_OPTIONS, logger, create })).close(),
    },
    "its bounds are asked": { step: 1, made: (by) => opened(by), call: (_, log) => log.bounds(TOPIC, 0) },
    "it is read": { step: 1, made: (by) => opened(by), call: isRead },
    "it is read through kafkajs": {
      step: 1,
      made: async (by) => {
        const log = await opened(by, "gzip");
        await compressByGzip(by.brokers, "gzip");
        await log.append([record(TOPIC, 0)]);
        return log;
      },
      call: isRead,
    },
    // Which may fail, and is made again.
    "records are appended": {
      step: 1,
      made: (by) => opened(by),
      call: (_, log) => log.append([record(TOPIC, 0)]).catch(() => log.append([record(TOPIC, 0)])),
    },
    "a member joins": {
      step: 3,
      call: async ({ brokers }) => {
        const options = { logger, partitions: PARTITIONS, sessionMs: 6_000 };
        const member = await joinGroup(addressOf(brokers, `joined-${fresh++}`), OWNER_GROUP, options);
        await holdsAll(member, 0);
        await member.close();
      },
    },
  };
  const rows = Object.keys(calls).flatMap((name) =>
    (["cut", "refused", "answers lost", "half an answer"] as const).map((weather) => [name, weather] as const),
  );

  // The weather comes at each moment at which bytes are on their way: whatever was asked just then gets no answer.
  it.each(rows)("%s while connections are %s", (name, weather) =>
    through(async (network) => {
      const { proxy } = network;
      const { step, made, call } = calls[name]!;
      const first = await opened(network);
      await first.append([record(TOPIC, 0)]);
      await first.close();
      let over = false;
      for (let at = 1; !over; at += step) {
        const log = await made?.(network);
        let chunks = 0;
        let clearing: NodeJS.Timeout | undefined;
        proxy.passing = () => {
          if (++chunks !== at) return;
          if (weather !== "cut") proxy.weather = weather;
          if (weather === "cut" || weather === "refused") proxy.cut();
          clearing = setTimeout(() => {
            proxy.weather = "clear";
          }, 50);
        };
        await call(network, log!);
        over = chunks < at;
        proxy.passing = () => undefined;
        clearTimeout(clearing);
        proxy.weather = "clear";
        await log?.close();
      }
    }),
  );

  it("a router that forgot all connections: the next ones are taken as soon as no answer came", () =>
    through(async (network) => {
      const log = await opened(network);
      const options = { logger, partitions: PARTITIONS, sessionMs: 6_000 };
      const member = await joinGroup(addressOf(network.brokers, "forgotten"), OWNER_GROUP, options);
      await holdsAll(member, 0);
      const { generation } = member;
      await log.append([record(TOPIC, 0)]);
      await log.read(TOPIC, 0, 0);
      network.proxy.weather = "forgotten";
      network.proxy.weather = "clear";
      const [read, { end }] = await Promise.all([
        log.read(TOPIC, 0, 0),
        log.bounds(TOPIC, 0),
        log.append([record(TOPIC, 1)]).catch(() => log.append([record(TOPIC, 1)])),
        holdsAll(member, generation),
      ]);
      expect(read.length).toBeGreaterThan(0);
      expect(end).toBeGreaterThanOrEqual(read.length);
      await member.close();
      await log.close();
    }));
});
