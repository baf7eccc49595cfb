import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./ports.ts";

const DEPLOYED = new URL("../../infra/deploy/kafka/", import.meta.url).pathname;
/** A look-up of a name can fail once. */
const TRIES = 3;

/**
 * The jars of infra/deploy/kafka/pom.xml, resolved once for each text of it into a cache folder, which appears whole.
 * @throws with Maven's words
 */
export async function jars(): Promise<string> {
  const pom = join(DEPLOYED, "pom.xml");
  const version = createHash("sha256").update(readFileSync(pom)).digest("hex").slice(0, 12);
  const cache = join(homedir(), ".cache", "touchstone");
  const lib = join(cache, `kafka-${version}`);
  if (existsSync(lib)) return lib;
  await mkdir(cache, { recursive: true });
  const dir = await mkdtemp(join(cache, "kafka-"));
  process.stderr.write(`fetching Kafka's jars into ${lib}, once\n`);
  try {
    let said = "";
    for (let n = 0; n < TRIES; n++) {
      const maven = ["-q", "-B", "-f", pom, "dependency:copy-dependencies", `-DoutputDirectory=${dir}`];
      const { status, stdout, stderr } = spawnSync("mvn", maven, { encoding: "utf8" });
      // Another process may have been quicker: its folder is as good.
      if (status === 0)
        return await rename(dir, lib).then(
          () => lib,
          (error) => (existsSync(lib) ? lib : Promise.reject(error)),
        );
      said = stdout + stderr;
    }
    throw new Error(`mvn dependency:copy-dependencies failed: ${said.slice(0, 2_000)}`);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/**
 * The topics of a log, declared as an operator does: create-topics.sh with the jars of the pom beside it.
 * @throws with what the script said
 */
export async function declareTopics(brokers: readonly string[], prefix: string, partitions: number): Promise<void> {
  const copies = [`REPLICAS=${Math.min(3, brokers.length)}`, `MIN_IN_SYNC=${Math.min(2, brokers.length)}`];
  const tool = [`KAFKA_JARS=${await jars()}`, `KAFKA_TOPICS=${join(DEPLOYED, "kafka-topics")}`];
  const script = [join(DEPLOYED, "create-topics.sh"), brokers.join(","), prefix, String(partitions)];
  const child = spawn("env", [...copies, ...tool, ...script], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (bytes: Buffer) => {
      said = (said + bytes).slice(-10_000);
    });
  const [code] = (await once(child, "close")) as [number | null];
  if (code !== 0) throw new Error(`create-topics.sh ended with ${code}: ${said}`);
}

/** One address of a broker. Who came by it is sent to it again, so that a proxy in front of it has all of a client. */
interface Door {
  port: number;
  /** Where clients are sent: the port itself, or a proxy's in front of it. */
  advertised: number;
}

/** As many as the runner has concurrent tests of one file: each may have one to itself. */
export const DOORS = 5;

interface Node {
  id: number;
  /** Other brokers come by the first. */
  doors: readonly [Door, ...Door[]];
  controllerPort: number;
  dir: string;
  process: ChildProcess | null;
}

export interface KafkaCluster {
  /** `host:port` of every broker, by its first door. */
  brokers: string[];
  /** The same by each door. */
  doors: string[][];
  /** SIGKILL, as a machine that lost its power; the folder stays. */
  kill(node: number): Promise<void>;
  /** Start a node that was killed, over its old folder; resolves when it takes connections. */
  start(node: number): Promise<void>;
  stop(): Promise<void>;
}

/** `name://127.0.0.1:port` of each door, in one line. */
const listed = ({ doors }: Node, port: (door: Door) => number): string =>
  doors.map((door, n) => `DOOR${n}://127.0.0.1:${port(door)}`).join(",");

const properties = (node: Node, nodes: readonly Node[]): string =>
  Object.entries({
    "process.roles": "broker,controller",
    "node.id": node.id,
    "controller.quorum.voters": nodes.map(({ id, controllerPort }) => `${id}@127.0.0.1:${controllerPort}`).join(","),
    listeners: `${listed(node, ({ port }) => port)},CONTROLLER://127.0.0.1:${node.controllerPort}`,
    "advertised.listeners": listed(node, ({ advertised }) => advertised),
    "inter.broker.listener.name": "DOOR0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": `${node.doors.map((_, n) => `DOOR${n}:PLAINTEXT,`).join("")}CONTROLLER:PLAINTEXT`,
    "log.dirs": join(node.dir, "data"),
    "offsets.topic.replication.factor": nodes.length,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": nodes.length,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": false,
    // A broker that is gone is noticed soon: the tests wait for it.
    "broker.session.timeout.ms": 6000,
    "num.partitions": 1,
  })
    .map(([name, value]) => `${name}=${value}\n`)
    .join("");

export interface KafkaOptions {
  /** One broker, or three for fault tests. */
  count?: number;
  /** Where clients find a broker instead of at its own port: a proxy in front of it. */
  advertise?: (port: number) => number | Promise<number>;
  /** Addresses of each broker: clients of one meet nothing of another's proxy. */
  doors?: number;
  /** It is measured, not only tried: the machine takes the time to compile what runs often as well as it can. */
  measured?: boolean;
}

/** A machine that lives for a minute takes most of it to compile: three fifths of the work without the second compiler. */
const SHORT_LIVED = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/** A real Apache Kafka in KRaft mode, on free ports. */
export async function startKafka({
  count = 1,
  advertise = (port) => port,
  doors = 1,
  measured = false,
}: KafkaOptions = {}): Promise<KafkaCluster> {
  const lib = await jars();
  const machine = [...(measured ? [] : SHORT_LIVED), count > 1 ? "-Xmx400m" : "-Xmx512m"];
  const java = (args: readonly string[]) => [
    ...machine,
    "-cp",
    join(lib, "*"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    ...args,
  ];
  const dir = await mkdtemp(join(tmpdir(), "kafka-"));
  const nodes: Node[] = [];
  for (let id = 1; id <= count; id++) {
    const own = join(dir, String(id));
    await mkdir(own);
    const door = async (): Promise<Door> => {
      const port = await freePort();
      return { port, advertised: await advertise(port) };
    };
    const all: [Door, ...Door[]] = [await door()];
    while (all.length < doors) all.push(await door());
    nodes.push({ id, doors: all, controllerPort: await freePort(), dir: own, process: null });
  }
  // 16 random bytes as base64url, as `StorageTool random-uuid` prints them.
  const clusterId = Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString("base64url");
  for (const node of nodes) {
    const file = join(node.dir, "server.properties");
    await writeFile(file, properties(node, nodes));
    // In one word: one id of 64 begins with a dash, and would be taken for an option.
    const words = ["kafka.tools.StorageTool", "format", `--cluster-id=${clusterId}`, "-c", file];
    const format = spawnSync("java", java(words), { encoding: "utf8" });
    if (format.status !== 0) throw new Error(`formatting a Kafka folder failed: ${format.stdout}${format.stderr}`);
  }
  const begin = (node: Node): void => {
    const args = java(["kafka.Kafka", join(node.dir, "server.properties")]);
    node.process = spawn("java", args, { stdio: ["ignore", "ignore", "ignore"] });
  };
  const kill = async (node: Node) => {
    const running = node.process;
    node.process = null;
    if (!running || running.exitCode !== null) return;
    const gone = new Promise((resolve) => running.once("exit", resolve));
    running.kill("SIGKILL");
    await gone;
  };
  const stop = async () => {
    for (const node of nodes) await kill(node);
    await rm(dir, { recursive: true, force: true });
  };
  try {
    for (const node of nodes) begin(node);
    for (const node of nodes) await untilUp(node);
  } catch (error) {
    // Nobody else knows of them.
    await stop();
    throw error;
  }
  const by = (n: number) => nodes.map((node) => `127.0.0.1:${node.doors[n]!.advertised}`);
  return {
    brokers: by(0),
    doors: nodes[0]!.doors.map((_, n) => by(n)),
    kill: (node) => kill(nodes[node]!),
    async start(node) {
      begin(nodes[node]!);
      await untilUp(nodes[node]!);
    },
    stop,
  };
}

/** Three seconds where nothing else runs; a crowded machine may take minutes, and only a hang reaches the bound. */
async function untilUp(node: Node): Promise<void> {
  for (let tries = 0; tries < 2_500 && node.process?.exitCode === null; tries++) {
    const up = await new Promise<boolean>((resolve) => {
      const socket = connect(node.doors[0].port, "127.0.0.1", () => {
        socket.destroy();
        resolve(true);
      });
      socket.once("error", () => resolve(false));
    });
    if (up) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`Kafka's node ${node.id} did not come up (exit code ${node.process?.exitCode ?? "none"})`);
}
