/**
 * Processor time of the cheapest of several runs of `work`, ms: other work on the machine is not counted, nor is what the
 * compiler, the collector or a neighbour's use of the memory adds to some of them.
 */
export function leastProcessorMs(runs: number, work: () => void): number {
  let least = Number.POSITIVE_INFINITY;
  for (let n = 0; n < runs; n++) {
    const began = process.cpuUsage();
    work();
    const { user, system } = process.cpuUsage(began);
    least = Math.min(least, (user + system) / 1000);
  }
  return least;
}
