/** Wall and CPU seconds of a piece of work; CPU is of the whole process, engine threads included. */
export interface Cost {
  wall: number;
  cpu: number;
}

const cpuSeconds = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

export async function timed(work: () => Promise<unknown>): Promise<Cost> {
  const start = { wall: performance.now(), cpu: cpuSeconds() };
  await work();
  return { wall: (performance.now() - start.wall) / 1_000, cpu: cpuSeconds() - start.cpu };
}

/** Most memory that this process has had in its hands so far, GB. */
export const peakGb = (): number => process.resourceUsage().maxRSS / 1e6;

export const shown = ({ wall, cpu }: Cost): string =>
  `${wall.toFixed(2).padStart(8)} s wall ${cpu.toFixed(2).padStart(8)} s CPU`;

/** Lines that begin so are collected by run.ts into one table. */
export const MARK = "RATIO";

/** One line of the table: a figure against a baseline of the same run, and what was aimed for. Never fails. */
export function ratio(what: string, figures: string, aim: string): void {
  console.log([MARK, what, figures, aim].join("\t"));
}

export const against = (cost: Cost, base: Cost): string =>
  `${(cost.wall / base.wall).toFixed(2)} wall, ${(cost.cpu / base.cpu).toFixed(2)} CPU`;
