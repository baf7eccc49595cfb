import { createInterface } from "node:readline";
import type { WorldInfo } from "../../commands/world.ts";
import { type SoldSpec, sellingOver } from "./buying.ts";
import { ORDER_CAPS } from "./caps.ts";

/**
 * A selling service as a process of its own, for tests that kill it from outside: the parts that a start opens, on the
 * log of a folder. Once its modules are read it says so and waits for its first line, so that one can stand ready
 * while the one before it dies; then it says where it is. A line after that asks it to bring every order to its end,
 * and to end itself.
 */
export interface SellingProcess {
  dir: string;
  world: WorldInfo;
  specs: SoldSpec[];
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
process.stdout.write("ready\n");
const { dir, world, specs } = JSON.parse((await lines.next()).value as string) as SellingProcess;
// Losses of a test that kills much are no reason to stop selling.
const { leastPrice, ...most } = ORDER_CAPS;
const caps = { leastPrice, ...Object.fromEntries(Object.entries(most).map(([name, micro]) => [name, micro * 1_000n])) };
const limits = { buys_per_minute: 1e6, quotes_per_domain_minute: 1e6, reads_per_minute: 1e6 };
const service = await sellingOver(world, specs, {
  // Whoever had the orders before is dead when this one begins, and nobody else has them.
  money: () => ({ caps: caps as unknown as typeof ORDER_CAPS, staleMs: 0, lookMs: 50 }),
  deps: { limits },
  dir,
});
process.stdout.write(`${service.url}\n`);
await lines.next();
const { orders } = service.sales.buying;
while (orders.table.open().length > 0) await service.recovering.look();
await service.close();
process.stdout.write("closed\n");
process.exit(0);
