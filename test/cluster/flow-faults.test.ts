import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DOORS } from "../../fixtures/cluster/kafka.ts";
import type { TcpProxy } from "../../fixtures/faults/tcp-proxy.ts";
import { runs } from "../helpers/programs.ts";
import type { Step, Who } from "../helpers/schedule.ts";
import { ScheduleWorld } from "../helpers/schedule-world.ts";
import {
  type Engines,
  type EngineTestbed,
  type Entrance,
  engineTestbed,
  S3_FAULTS,
  startEngines,
} from "./engine-testbed.ts";
import type { ChildPlace } from "./role-child.ts";

/** Faults of the real engines during the whole way, from append to tree. After each the oracle, and a clean audit. */
let engines: Engines;
const free: Entrance[] = [];
beforeAll(async () => {
  engines = await startEngines(1, DOORS);
  free.push(...engines.entrances);
});
afterAll(() => engines.stop());

const SEEN = {
  do: "append",
  endpoints: 3,
  kinds: ["probe", "pay", "list", "correct", "probe"],
  copies: false,
  off: 0,
} as const;
const RACE: Step = { do: "race", job: "grade" };
/** Two processes, each with a turn of its own and one at the same time, over three days of observations. */
const FLOW: readonly Step[] = [
  SEEN,
  { do: "grade", who: 0 },
  SEEN,
  RACE,
  { do: "pass", minutes: 1_440 },
  { ...SEEN, copies: true },
  { do: "ingest", who: 1 },
  { do: "tidy", who: 0 },
  { do: "pass", minutes: 1_440 },
  { do: "evidence", who: 1 },
  SEEN,
  RACE,
];

const SHORT: readonly Step[] = [SEEN, RACE, { do: "pass", minutes: 1_440 }, SEEN, { do: "evidence", who: 1 }, RACE];

let serial = 0;

/**
 * Lives through a script in this weather and proves the record. As many at once as there are entrances.
 * @param script by what stands in front of its broker @returns how its jobs ended
 */
async function through(
  script: readonly Step[] | ((tcp: TcpProxy) => readonly Step[]),
  weather: (bed: EngineTestbed) => void = () => undefined,
): Promise<string[]> {
  const n = serial++;
  const entrance = free.pop();
  if (!entrance) throw new Error("more tests at once than entrances");
  const bed = await engineTestbed(engines, `faults-${n}`, entrance);
  try {
    weather(bed);
    return await ScheduleWorld.run(bed, n, typeof script === "function" ? script(entrance.tcp) : script);
  } finally {
    await bed.close();
    free.push(entrance);
  }
}

// These and the following at the same moment: what takes the time are pauses between tries.
describe.concurrent("a store that does so with every third request, the whole way", () => {
  test.each(S3_FAULTS)("%s", async (fault) => {
    let faults = 0;
    await through(SHORT, ({ proxy }) => {
      proxy.choose = () => (proxy.seen.length % 3 === 0 && ++faults ? fault : null);
    });
    expect(faults).toBeGreaterThan(20);
  });
});

test.concurrent("a store whose lists do not know what was put a minute ago", async () => {
  await through(FLOW, ({ proxy }) => {
    proxy.lateMs = 60_000;
  });
});

describe.concurrent("a broker behind a network that is", () => {
  /** At these moments of the whole way the weather comes and, where the answers are gone, the cable with it. */
  const in_ = (tcp: TcpProxy, weather: TcpProxy["weather"]): Step => ({
    do: "meanwhile",
    work: async (append) => {
      tcp.weather = weather;
      const ending = setTimeout(() => {
        tcp.weather = "clear";
        if (weather !== "slow") tcp.cut();
      }, 400);
      await append();
      clearTimeout(ending);
      tcp.weather = "clear";
    },
  });
  test.each(["answers lost", "slow", "refused"] as const)("%s", async (weather) => {
    await through((tcp) => [in_(tcp, weather), ...FLOW.slice(0, 4), in_(tcp, weather), ...FLOW.slice(4)]);
  });

  test("cut in the middle of batches", async () => {
    const cutting = (tcp: TcpProxy): Step => ({
      do: "meanwhile",
      work: async (append) => {
        // Each append is cut at most 100 times: by luck one took minutes while every connection was cut.
        for (let n = 0; n < 3; n++) {
          let cuts = 0;
          const timer = setInterval(() => (++cuts < 100 ? tcp.cut() : clearInterval(timer)), 25);
          await Promise.all([append(), new Promise((done) => setTimeout(done, 60))]).finally(() =>
            clearInterval(timer),
          );
        }
      },
    });
    await through((tcp) => [cutting(tcp), ...FLOW.slice(0, 4), cutting(tcp), RACE, ...FLOW.slice(4)]);
  });
});

describe.concurrent("clocks", () => {
  test("a publisher behind the last generation refuses, and goes on when its clock is right again", async () => {
    const story = await through([
      SEEN,
      { do: "grade", who: 0 },
      { do: "jump", who: 0, minutes: -600 },
      SEEN,
      { do: "grade", who: 0 },
      { do: "jump", who: 0, minutes: 0 },
      SEEN,
      { do: "grade", who: 0 },
    ]);
    expect(story.filter((line) => line.includes("0 grade:")).map((line) => line.split(": ")[1])).toEqual([
      "done",
      "ClockRefused",
      "done",
    ]);
  });

  test("one that ran ahead holds the others up, and they catch up with it", async () => {
    const story = await through([
      SEEN,
      { do: "jump", who: 0, minutes: 120 },
      { do: "grade", who: 0 },
      SEEN,
      { do: "grade", who: 1 },
      { do: "pass", minutes: 180 },
      { do: "grade", who: 1 },
    ]);
    const ends = story.filter((line) => line.includes("1 grade:")).map((line) => line.split(": ")[1]);
    expect(ends).toEqual(["ClockRefused", "done"]);
  });

  test("observers a day behind and half a day ahead: what they saw is filed where they say, once", async () => {
    const late = { ...SEEN, off: -1_500 };
    const early = { ...SEEN, off: 700 };
    const pass: Step = { do: "pass", minutes: 1_440 };
    await through([
      SEEN,
      early,
      RACE,
      pass,
      pass,
      { do: "evidence", who: 0 },
      late,
      late,
      { do: "evidence", who: 1 },
      early,
      RACE,
    ]);
  });
});

/** A process of its own over this bed, its turns counted as it tells them. */
class Child {
  turns = 0;
  readonly #process: ChildProcess;
  /** Somebody waits for the next line, or for the end. */
  #heard: () => void = () => undefined;

  constructor(place: ChildPlace) {
    const args = [...runs("test/cluster/role-child.ts"), JSON.stringify(place)];
    this.#process = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    createInterface({ input: this.#process.stdout! }).on("line", (line) => {
      if (line.startsWith("turn")) this.turns++;
      this.#heard();
    });
    this.#process.once("exit", () => this.#heard());
  }

  /** Resolves after so many further turns. */
  async does(turns: number): Promise<void> {
    const until = this.turns + turns;
    while (this.turns < until) {
      if (this.#process.exitCode !== null) throw new Error(`it ended with ${this.#process.exitCode}`);
      await new Promise<void>((done) => {
        this.#heard = done;
      });
    }
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.#process.kill(name);
  }

  async kill(): Promise<void> {
    const gone = new Promise((done) => this.#process.once("exit", done));
    this.#process.kill("SIGKILL");
    await gone;
  }
}

describe("two processes that own the same partitions", () => {
  test("one is stopped, comes back as a zombie, and is killed; the other is killed and comes again", async () => {
    const name = `faults-${serial}`;
    const places = {
      privateStore: await engines.s3.place("private", name),
      publicStore: await engines.s3.place("public", name),
    };
    const bed = await engineTestbed(engines, name);
    const open = (who: Who): Child =>
      new Child({
        ...{ dir: bed.dir, stores: places, who },
        log: `kafka://${engines.kafka.brokers.join(",")}/${name}`,
        start: "2026-11-10T01:00:00.000Z",
      });
    const both: Step = {
      do: "meanwhile",
      work: async (append) => {
        const one = open(0);
        let other = open(1);
        try {
          await append();
          await Promise.all([one.does(2), other.does(2)]);
          for (let n = 0; n < 3; n++) {
            one.signal("SIGSTOP");
            await append();
            await other.does(2);
            const waking = append();
            one.signal("SIGCONT");
            await Promise.all([waking, one.does(2)]);
            await other.kill();
            await append();
            other = open(1);
            await Promise.all([one.does(1), other.does(2)]);
          }
        } finally {
          one.signal("SIGCONT");
          await Promise.all([one.kill(), other.kill()]);
        }
      },
    };
    try {
      await ScheduleWorld.run(bed, serial++, [both, { do: "pass", minutes: 60 }, SEEN, RACE]);
    } finally {
      await bed.close();
    }
  });
});

describe("three brokers", () => {
  let three: Engines;
  beforeAll(async () => {
    three = await startEngines(3);
  });
  afterAll(() => three.stop());

  test("two of them killed and started again, one after the other, while others append, ingest, grade and publish", async () => {
    const bed = await engineTestbed(three, "three");
    const killing = (node: number, back: boolean): Step => ({
      do: "meanwhile",
      work: async (append) => {
        const writing = append();
        if (back) await three.kafka.start(node);
        else await three.kafka.kill(node);
        await writing;
        await append();
      },
    });
    const rounds = [0, 1].flatMap((node): Step[] => [
      killing(node, false),
      RACE,
      SEEN,
      { do: "grade", who: 1 },
      killing(node, true),
      RACE,
    ]);
    try {
      await ScheduleWorld.run(bed, serial++, [SEEN, ...rounds]);
    } finally {
      await bed.close();
    }
  });
});
