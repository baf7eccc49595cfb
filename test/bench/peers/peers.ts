import { spawn, spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Cost } from "../ratio.ts";

const CACHE = join(homedir(), ".cache", "touchstone");
const PYTHON = join(CACHE, "peers-venv", "bin", "python");
const JARS = join(CACHE, "spark-kafka-4.0.0", "lib");
const file = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** Somebody else's way from a Kafka topic to Parquet files. */
export interface Peer {
  name: string;
  /** What our ingest is to be of its speed. */
  aim: string;
  script: string;
  /** What it needs beyond the broker, with how to get it. */
  missing(): string | null;
  more(partitions: number): string[];
}

const imports = (names: string): boolean =>
  existsSync(PYTHON) && spawnSync(PYTHON, ["-c", `import ${names}`], { stdio: "ignore" }).status === 0;
const pip = (packages: string): string =>
  `python3 -m venv ${join(CACHE, "peers-venv")} && ${PYTHON} -m pip install ${packages}`;

export const PEERS: readonly Peer[] = [
  {
    name: "librdkafka + polars",
    aim: "above 1",
    script: file("polars_stream.py"),
    missing: () => (imports("confluent_kafka, polars") ? null : pip("confluent-kafka polars")),
    more: (partitions) => [String(partitions)],
  },
  {
    name: "Spark Structured Streaming local[2], warm",
    aim: "2 or more",
    script: file("spark_stream.py"),
    missing() {
      if (!imports("pyspark")) return pip("pyspark==4.0.1");
      if (existsSync(JARS) && readdirSync(JARS).some((jar) => jar.startsWith("spark-sql-kafka"))) return null;
      return `mvn -q -B -f ${file("pom.xml")} dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=${JARS}`;
    },
    more: () => [
      readdirSync(JARS)
        .map((jar) => join(JARS, jar))
        .join(","),
    ],
  },
];

export interface Place {
  broker: string;
  topic: string;
  rows: number;
  partitions: number;
  /** Folder for its files. */
  out: string;
}

/** Longest run of a peer, ms: a busy machine may keep it waiting, but not for ever. */
const PEER_MS = 30 * 60_000;

/**
 * Runs it to the end. @returns its own seconds and CPU seconds, from the first row on
 * @throws with the end of its own words when it fails, takes too long or ends with another number of rows
 */
export async function runPeer(peer: Peer, { broker, topic, rows, partitions, out }: Place): Promise<Cost> {
  const args = [peer.script, broker, topic, String(rows), out, ...peer.more(partitions)];
  const child = spawn(PYTHON, args, { stdio: ["ignore", "pipe", "pipe"], timeout: PEER_MS });
  let said = "";
  let complained = "";
  child.stdout.on("data", (text: Buffer) => {
    said += text.toString();
  });
  child.stderr.on("data", (text: Buffer) => {
    complained = (complained + text.toString()).slice(-2_000);
  });
  const code = await new Promise<number | null>((resolve, reject) => child.on("close", resolve).on("error", reject));
  if (code !== 0) throw new Error(`${peer.name} ended with ${code}: ${complained}`);
  const found = JSON.parse(said.trim().split("\n").at(-1)!) as { rows: number; seconds: number; cpu: number };
  if (found.rows !== rows) throw new Error(`${peer.name}: ${found.rows} rows instead of ${rows}`);
  return { wall: found.seconds, cpu: found.cpu };
}
