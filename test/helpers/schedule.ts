import { randomInts } from "./drawn.ts";

/**
 * Seeds of the schedules that are lived through: those of `SEED`, else a share of the first `SCHEDULES` (160).
 * @param first seed @param of which share: one in so many
 */
export const seedsFrom = (first: number, of = 1): number[] =>
  process.env.SEED
    ? process.env.SEED.split(",").map(Number)
    : Array.from({ length: Number(process.env.SCHEDULES ?? 160) / of }, (_, i) => first + i);

/**
 * Random schedules of what happens to a running service, drawn from a seed: the same seed is the same schedule. Steps
 * name one of two processes that do everything (`who`), each with a lake of its own, over one log and two stores.
 */
export type Step =
  /** An observer appends what it saw, again and again under the same ids until it is acknowledged. */
  | {
      do: "append";
      endpoints: number;
      kinds: readonly Kind[];
      copies: boolean /** Minutes its clock is off. */;
      off: number;
    }
  /** Not drawn: what a test does while an observer may append. */
  | { do: "meanwhile"; work: (append: () => Promise<void>) => Promise<void> }
  | { do: "ingest" | "grade" | "evidence" | "tidy"; who: Who }
  /** The process dies at this call of its next job (of `job`), and another takes its place over the same lake, or not. */
  | { do: "kill"; who: Who; job: Job; call: number; when: "before" | "after"; lake: "kept" | "lost" | "damaged" }
  /** Calls of this process fail for a while, in any mixture. */
  | { do: "storm"; who: Who; calls: number; oneIn: number }
  /** The process sleeps in the middle of a job, and wakes when others have gone on: `steps` steps later. */
  | { do: "sleep"; who: Who; job: Job; call: number; when: "before" | "after"; steps: number }
  /** Both processes do the same job at the same moment. */
  | { do: "race"; job: Job }
  /** The bed's own weather: proxies of the real engines. */
  | { do: "weather"; draw: number }
  /** This process's clock jumps; the other one's stays. */
  | { do: "jump"; who: Who; minutes: number }
  | { do: "mirror" }
  | { do: "pass"; minutes: number };

export type Who = 0 | 1;
export type Kind = "probe" | "pay" | "list" | "correct" | "garbage";
export type Job = "ingest" | "grade" | "evidence" | "tidy";

/** One of these, at random. */
export const oneOf = <T>(draw: () => number, these: readonly T[]): T => these[draw() % these.length]!;

const KINDS: readonly Kind[] = ["probe", "probe", "probe", "pay", "pay", "list", "correct", "garbage"];
const JOBS: readonly Job[] = ["ingest", "ingest", "grade", "grade", "evidence", "tidy"];
/** How often each step comes, in parts. */
const WEIGHTS: readonly [Step["do"], number][] = [
  ["append", 8],
  ["ingest", 2],
  ["grade", 4],
  ["evidence", 1],
  ["tidy", 1],
  ["kill", 4],
  ["storm", 2],
  ["sleep", 3],
  ["race", 2],
  ["weather", 2],
  ["jump", 1],
  ["mirror", 1],
  ["pass", 3],
];

/** Steps of one schedule. Every one of them begins with something to do. */
export function scheduleOf(seed: number, steps: number): Step[] {
  const draw = randomInts(seed);
  const bag = WEIGHTS.flatMap(([name, weight]) => Array.from({ length: weight }, () => name));
  const first: Step = { do: "append", endpoints: 3, kinds: ["probe", "pay", "list"], copies: false, off: 0 };
  return [first, ...Array.from({ length: steps - 1 }, () => stepOf(oneOf(draw, bag), draw))];
}

function stepOf(name: Step["do"], draw: () => number): Step {
  const who = oneOf<Who>(draw, [0, 1]);
  const when = oneOf(draw, ["before", "after"] as const);
  const job = oneOf(draw, JOBS);
  // A job makes some dozens of calls: most fall into its beginning and middle, and some come after its end.
  const call = draw() % oneOf(draw, [10, 40, 120]);
  switch (name) {
    case "append": {
      const kinds = Array.from({ length: 1 + (draw() % 6) }, () => oneOf(draw, KINDS));
      const off = oneOf(draw, [0, 0, 0, 0, 0, 0, -1_500, 600]);
      return { do: name, endpoints: 1 + (draw() % 4), kinds, copies: draw() % 4 === 0, off };
    }
    case "kill":
      return {
        do: name,
        who,
        job,
        call,
        when,
        lake: oneOf(draw, ["kept", "kept", "kept", "lost", "damaged"] as const),
      };
    case "storm":
      return { do: name, who, calls: 5 + (draw() % 60), oneIn: 2 + (draw() % 6) };
    case "sleep":
      return { do: name, who, job, call, when, steps: 1 + (draw() % 4) };
    case "race":
      return { do: name, job };
    case "weather":
      return { do: name, draw: draw() };
    case "jump":
      return { do: name, who, minutes: (draw() % 240) - 120 };
    case "mirror":
      return { do: name };
    case "pass":
      return { do: name, minutes: oneOf(draw, [1, 7, 30, 200, 400, 1_500]) };
    case "meanwhile":
      throw new Error("never drawn");
    default:
      return { do: name, who };
  }
}
