import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { type S3Server, startS3Server } from "../../fixtures/cluster/versitygw.ts";
import { type Fault, type FaultProxy, startFaultProxy } from "../../fixtures/faults/http-proxy.ts";
import { startTcpProxy, type TcpProxy } from "../../fixtures/faults/tcp-proxy.ts";
import { parseKafkaAddress } from "../../infra/log/kafka/address.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import type { Log } from "../../infra/log/log.ts";
import { openS3Store } from "../../infra/store/s3/s3.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { LOG_TOPIC_OPTIONS } from "../../pipelines/record/topics.ts";
import { randomInts } from "../helpers/drawn.ts";
import { stubborn, type Testbed } from "../helpers/role-process.ts";
import { oneOf } from "../helpers/schedule.ts";

/** A way to the brokers, and the proxy of ours in front of the first of them. */
export interface Entrance {
  brokers: readonly string[];
  tcp: TcpProxy;
}

/** A real broker behind proxies of ours, and a real S3 server: what every schedule runs over, each with its own log. */
export interface Engines {
  kafka: KafkaCluster;
  entrances: readonly [Entrance, ...Entrance[]];
  s3: S3Server;
  stop(): Promise<void>;
}

/** @param doors entrances: whoever has one of his own meets nobody else's weather */
export async function startEngines(brokers = 1, doors = 1): Promise<Engines> {
  const proxies: TcpProxy[] = [];
  const inFront = async (port: number) => {
    const proxy = await startTcpProxy(() => port);
    proxies.push(proxy);
    return proxy.port;
  };
  const kafka = await startKafka({ count: brokers, advertise: inFront, doors });
  const s3 = await startS3Server();
  // Made here, before several schedules ask for them at once.
  for (const bucket of ["private", "public"]) await s3.place(bucket);
  const [first, ...others] = kafka.doors.map((by, n): Entrance => ({ brokers: by, tcp: proxies[n]! }));
  const stop = async () => {
    for (const proxy of proxies) await proxy.close();
    await kafka.stop();
    await s3.stop();
  };
  return { kafka, entrances: [first!, ...others], s3, stop };
}

const PARTITIONS = 2;
export const S3_FAULTS: readonly Fault[] = [
  "500 before",
  "500 after",
  "503 before",
  "409 before",
  "cut before",
  "cut after",
  "half the answer",
  "slow",
];

export interface EngineTestbed extends Testbed {
  /** In front of both buckets. */
  proxy: FaultProxy;
  close(): Promise<void>;
}

/** Two buckets and a log of one schedule, behind a proxy of its own; the broker's is of whoever uses that entrance. */
export async function engineTestbed(
  engines: Engines,
  name: string,
  entrance = engines.entrances[0],
): Promise<EngineTestbed> {
  const { brokers, tcp } = entrance;
  const dir = await mkdtemp(join(tmpdir(), "schedule-real-"));
  const proxy = await startFaultProxy(engines.s3.url);
  const places = {
    privateStore: await engines.s3.place("private", name),
    publicStore: await engines.s3.place("public", name),
  };
  const kafkaPlace = parseKafkaAddress(`kafka://${brokers.join(",")}/${name}`);
  const copies = brokers.length > 1 ? { replicas: 3, minInSync: 2 } : { replicas: 1, minInSync: 1 };
  const logger = createLogger("silent");
  const timers = new Set<NodeJS.Timeout>();
  const later = (ms: number, work: () => void) => timers.add(setTimeout(work, ms));
  const clear = () => {
    for (const timer of timers) clearTimeout(timer);
    timers.clear();
    proxy.choose = () => null;
    proxy.lateMs = 0;
    tcp.weather = "clear";
  };
  const open = async (place: (typeof places)["publicStore"]) =>
    openS3Store({ ...place, endpoint: proxy.url }, { probe: false });
  const openLog = (): Promise<Log> =>
    openKafkaLog(kafkaPlace, { ...LOG_TOPIC_OPTIONS, logger, create: { partitions: PARTITIONS, ...copies } });
  // Whoever comes later finds it. Other schedules may have their weather now.
  await (await stubborn(openLog)).close();
  const cut = (weather: TcpProxy["weather"], ms: number) => {
    tcp.weather = weather;
    later(ms, () => {
      // What was in flight is gone with the connection; without that a client waits for its answer's whole time.
      tcp.weather = "clear";
      tcp.cut();
    });
  };
  const weathers: readonly ((draw: () => number) => void)[] = [
    (draw) => {
      const [oneIn, ends] = [2 + (draw() % 5), proxy.seen.length + 10 + (draw() % 60)];
      proxy.choose = () => (proxy.seen.length < ends && draw() % oneIn === 0 ? oneOf(draw, S3_FAULTS) : null);
    },
    (draw) => {
      proxy.lateMs = 300 + (draw() % 2_000);
      later(3_000, () => {
        proxy.lateMs = 0;
      });
    },
    (draw) => cut("answers lost", 100 + (draw() % 300)),
    (draw) => cut("refused", 50 + (draw() % 200)),
    () => tcp.cut(),
    () => {
      tcp.weather = "slow";
      later(600, () => {
        tcp.weather = "clear";
      });
    },
  ];
  return {
    dir,
    proxy,
    openLog,
    openStores: async () => ({
      privateStore: await open(places.privateStore),
      publicStore: await open(places.publicStore),
    }),
    weather(seed) {
      const draw = randomInts(seed);
      oneOf(draw, weathers)(draw);
    },
    clear,
    async close() {
      clear();
      await proxy.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
