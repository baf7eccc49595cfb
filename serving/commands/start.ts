import { writeSync } from "node:fs";
import { type Clock, LapsedClock, SwitchedClock, systemClock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { createLocalWallets } from "../../infra/rails/wallets.ts";
import { openWorld, type World } from "../../infra/world.ts";
import { type Assembled, assemble } from "../../pipelines/assemble.ts";
import { lapse, lapseDone } from "../../pipelines/lapse.ts";
import { folders, makeKeys, openParts } from "../../pipelines/parts.ts";
import { addDays, DAY_MS, dayOf, dayStart } from "../../pipelines/record/time.ts";
import { startSchedule } from "../../pipelines/schedule.ts";
import { lettersOf, letterTable, type MarketLetters } from "./letters.ts";
import { Progress } from "./progress.ts";
import { live } from "./roles.ts";
import { openServing, type ServingTier } from "./serving-tier.ts";
import { onStopSignal } from "./signals.ts";

export interface StartOptions {
  market?: boolean;
  once?: boolean;
  json?: boolean;
  days?: number;
  acks?: number;
  /** Script of the demo's world; the front door knows where it is. */
  worldScript: string;
}

/** Days of the lapsed past: an A needs 31 days at least (grading-method.md, section 4), and some room. */
const LAPSE_DAYS = 40;

/** The demo's world is on this machine, so its addresses are allowed; said at start. */
const forMarket = (config: Config, world: World): Config => ({
  ...config,
  allow_loopback: true,
  control_url: world.control,
  catalogues: [world.catalogue, ...world.newcomers.map(({ url }) => url)],
  chain: { ...config.chain, rpc_url: world.rpcUrl, network: `eip155:${world.chainId}`, asset: world.asset },
});

const acknowledger = (fd: number | undefined) =>
  fd === undefined ? undefined : (ids: readonly string[]) => void writeSync(fd, `${ids.join("\n")}\n`);

/** The past is over: the index of it, the tables of the present, and what anybody gets answered now. */
async function liveFrom(
  real: Clock,
  clock: SwitchedClock,
  { roles, serving, world }: { roles: Assembled; serving: ServingTier; world: World },
): Promise<Pick<MarketLetters, "tree_size" | "market">> {
  await roles.pipeline.index();
  clock.use(real);
  await roles.pipeline.volatile();
  await roles.pipeline.history(real.now());
  await serving.refresh();
  return { tree_size: roles.publisher.published.size, market: await lettersOf(serving.app, world.sellers) };
}

/**
 * `touchstone start`: every role in this process on embedded parts. With `--market` it boots the demo's world, lives
 * through the past, prints the table and keeps serving; a start after a crash goes on where the last one was cut off.
 */
export async function start(given: Config, options: StartOptions): Promise<void> {
  if (!options.market) return live(given, options);
  const began = performance.now();
  const progress = new Progress(!options.json);
  const days = options.days ?? LAPSE_DAYS;
  const real = systemClock;
  makeKeys(given.data_dir, dayStart(addDays(dayOf(real.now()), -(days + 1))));
  progress.say("booting the market: a local chain and its sellers");
  const world = await openWorld(folders(given.data_dir).market, options.worldScript);
  const config = forMarket(given, world);
  const clock = new SwitchedClock(new LapsedClock(new Date(real.now().getTime() - days * DAY_MS)));
  // A world that was running may be another start's: it is ours to stop once the lake is, which has one owner.
  let ours = !world.reused;
  const closing: (() => Promise<void>)[] = [async () => (ours ? world.stop() : world.release())];
  const closeAll = async () => {
    for (const close of closing.splice(0).reverse()) await close();
  };
  const stopped = new AbortController();
  world.lost.addEventListener("abort", () => stopped.abort(world.lost.reason), { once: true });
  onStopSignal(() => stopped.abort(new Error("stopped")));
  try {
    const parts = await openParts(config, clock);
    closing.push(() => parts.close());
    if (await lapseDone(parts.privateStore)) clock.use(real);
    const serving = await openServing({ ...parts, answers: parts.keys.answers, ring: parts.keys.ring }, clock, true);
    closing.push(() => serving.close());
    const wallets = createLocalWallets({ rpcUrl: world.rpcUrl, seed: parts.secret, asset: world.asset });
    const money = {
      rpcUrl: world.rpcUrl,
      asset: world.asset,
      wallets,
      controlUrl: world.control,
      settlePollMs: [30, 100],
    };
    const roles = await assemble(parts, clock, money, acknowledger(options.acks));
    ours = true;
    closing.push(() => roles.close());
    stopped.signal.addEventListener("abort", () => roles.observer.stop());
    progress.say(`lapsing ${days} days from the past to now (record time is made up, chain time is real)`);
    const listed = { catalogues: [world.catalogue], newcomers: world.newcomers };
    const past = { days, ...listed, signal: stopped.signal, onDay: progress.day.bind(progress) };
    const lapsed = await lapse(roles.pipeline, parts.privateStore, clock, real, past);
    const found = await liveFrom(real, clock, { roles, serving, world });
    const result: MarketLetters = { lapsed, took_s: Math.round((performance.now() - began) / 100) / 10, ...found };
    progress.end();
    process.stdout.write(options.json ? `${JSON.stringify(result, null, 2)}\n` : letterTable(result, serving.url));
    if (options.once) return;
    process.stdout.write(`\nServing at ${serving.url} (Ctrl-C stops the market and everything else).\n`);
    const schedule = startSchedule({
      ...roles,
      clock,
      catalogues: config.catalogues,
      logger: parts.logger,
      metrics: parts.metrics,
    });
    closing.push(() => schedule.stop());
    await new Promise<void>((resolve) => {
      if (stopped.signal.aborted) resolve();
      stopped.signal.addEventListener("abort", () => resolve(), { once: true });
    });
    if (world.lost.aborted) throw world.lost.reason;
  } catch (error) {
    // What breaks once we are stopping is a consequence of that; a market that died is the cause to be told.
    if (world.lost.aborted) throw world.lost.reason;
    if (!stopped.signal.aborted) throw error;
  } finally {
    progress.end();
    await closeAll();
  }
}
