import { spawn } from "node:child_process";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { joinGroup } from "../../infra/log/kafka/members.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { OWNER_GROUP } from "../../pipelines/record/topics.ts";

/** The group of a real broker: who holds what as members come, go, die and sleep. */
const PARTITIONS = 8;
const ALL = Array.from({ length: PARTITIONS }, (_, p) => p);
/** The shortest that a broker allows. */
const SESSION_MS = 6_000;
const logger = createLogger("silent");

let kafka: KafkaCluster;
let group = 0;
const open: Ownership[] = [];

beforeAll(async () => {
  kafka = await startKafka();
});
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});
afterAll(() => kafka.stop());

const place = () => ({ brokers: kafka.brokers, prefix: `members${group}` });

async function join(sessionMs = SESSION_MS): Promise<Ownership> {
  const member = await joinGroup(place(), OWNER_GROUP, { logger, partitions: PARTITIONS, sessionMs });
  open.push(member);
  return member;
}

/** Waits, with a bound that only a hang reaches. */
async function until(what: string, holds: () => boolean): Promise<void> {
  for (let n = 0; n < 18_000; n++) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`never: ${what}`);
}
const union = (members: readonly Ownership[]) => members.flatMap((one) => [...one.held()]).sort((a, b) => a - b);
const shared = (members: readonly Ownership[]) => () =>
  JSON.stringify(union(members)) === JSON.stringify(ALL) &&
  members.every((one) => Math.abs(one.held().length - PARTITIONS / members.length) < 1);

describe("partitions of a consumer group", () => {
  test("one holds all; with each further one they are shared evenly; whoever leaves gives back at once", async () => {
    group++;
    const first = await join();
    await first.ready();
    expect([...first.held()]).toEqual(ALL);
    const generation = first.generation;
    const second = await join();
    const third = await join();
    await until("three share", shared([first, second, third]));
    expect(first.generation).toBeGreaterThan(generation);
    open.splice(open.indexOf(second), 1);
    await second.close();
    expect(second.held()).toEqual([]);
    await until("two share", shared([first, third]));
  });

  test("what is lost is given to nobody before the listener has settled", async () => {
    group++;
    const first = await join();
    await first.ready();
    let letGo: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const heard: (readonly number[])[] = [];
    first.onChange((_taken, lost) => {
      if (lost.length > 0) heard.push(lost);
      return gate;
    });
    const second = await join();
    await until("something is lost", () => heard.length > 0);
    // Rounds of the group go on meanwhile.
    await second.ready();
    const third = await join();
    await third.ready();
    expect([...second.held(), ...third.held()].filter((partition) => heard[0]!.includes(partition))).toEqual([]);
    letGo();
    await until("three share", shared([first, second, third]));
  });

  test("one that sleeps past its session holds nothing when it wakes, and joins again", async () => {
    group++;
    const first = await join();
    await first.ready();
    const script = `
      import { joinGroup } from "./infra/log/kafka/members.ts";
      import { createLogger } from "./infra/telemetry.ts";
      import { OWNER_GROUP } from "./pipelines/record/topics.ts";
      const [place, partitions, sessionMs] = JSON.parse(process.argv[1]);
      const member = await joinGroup(place, OWNER_GROUP, { logger: createLogger("silent"), partitions, sessionMs });
      setInterval(() => process.stdout.write(JSON.stringify([process.hrtime.bigint().toString(), member.held()]) + "\\n"), 20);`;
    const args = ["--import", "tsx", "--input-type=module", "-e", script];
    const child = spawn(process.execPath, [...args, JSON.stringify([place(), PARTITIONS, SESSION_MS])], {
      cwd: new URL("../..", import.meta.url).pathname,
      stdio: ["ignore", "pipe", "inherit"],
    });
    const said: number[][] = [];
    let rest = "";
    child.stdout.on("data", (bytes: Buffer) => {
      const lines = (rest + bytes.toString()).split("\n");
      rest = lines.pop()!;
      for (const line of lines) said.push((JSON.parse(line) as [string, number[]])[1]);
    });
    try {
      await until("the child holds half", () => said.at(-1)?.length === PARTITIONS / 2);
      child.kill("SIGSTOP");
      await until("the other holds all", () => first.held().length === PARTITIONS);
      await new Promise((resolve) => setTimeout(resolve, 200));
      const before = said.length;
      child.kill("SIGCONT");
      await until("the child speaks again", () => said.length > before);
      expect(said[before]).toEqual([]);
      await until("both share", () => said.at(-1)?.length === PARTITIONS / 2 && first.held().length === PARTITIONS / 2);
    } finally {
      const gone = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await gone;
    }
    await until("the one that is left holds all", () => first.held().length === PARTITIONS);
  });

  test("a broker that dies and comes back: its members hold what they held, or nothing, and then all again", async () => {
    group++;
    const [first, second] = [await join(), await join()];
    await until("two share", shared([first, second]));
    await kafka.kill(0);
    await until("nobody can be heard", () => union([first, second]).length === 0);
    await kafka.start(0);
    await until("two share again", shared([first, second]));
  });
});
