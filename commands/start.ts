import { writeSync } from "node:fs";
import { type Clock, FixedClock, PacedClock, SimulatedClock, SwitchedClock, systemClock } from "../infra/clock.ts";
import { type Config, ConfigError } from "../infra/config.ts";
import { configuredNetworks } from "../infra/rails/networks.ts";
import { createLocalWallets } from "../infra/rails/wallets.ts";
import { parseMoney } from "../pipelines/record/money.ts";
import { DAY_MS, dayOf, dayStart } from "../pipelines/record/time.ts";
import { type Assembled, assemble } from "../pipelines/roles/assemble.ts";
import { folders } from "../pipelines/roles/data-folder.ts";
import { openOrdersStore, openParts } from "../pipelines/roles/parts.ts";
import { keysFor } from "../pipelines/roles/record-identity.ts";
import { MACHINE_WORKS, startMachine } from "../pipelines/roles/schedule.ts";
import { onStopSignal } from "./exit.ts";
import { letterLines, lettersOf, type MarketLetters } from "./letters.ts";
import { sayStart, watchMachine } from "./machine-status.ts";
import { print, printJson, printLines } from "./printer.ts";
import { sayStatus } from "./report.ts";
import { localMoney, openSales } from "./selling.ts";
import { live } from "./serve.ts";
import { openServing, SELL, type ServingTier } from "./serving-tier.ts";
import { daysOfPast, isPastOver, livePast, PAST_DAYS, Progress } from "./simulated-past.ts";
import { openWorld, requireMarket, type World } from "./world.ts";

export interface StartOptions {
  /** Script of the demo's world, as the command line found it. */
  worldScript: string;
  market?: boolean;
  once?: boolean;
  json?: boolean;
  days?: number;
  /** The last hours of the past are lived through so many times as fast as real time, with real waits. */
  pace?: number;
  /** How many hours that is; default {@link PACED_HOURS}. */
  paceHours?: number;
  acks?: number;
}

/** Hours of a paced past: ten days at a pace of 240 take an hour. */
const PACED_HOURS = 240;
const HOUR_MS = 3_600_000;

/**
 * The market is small, and one of its hosts sells at every path: production's caps would let it have nearly all of such
 * a day. More than any honest seller of it takes, and no more than one of the flood's addresses.
 */
const MARKET_DOMAIN_DAY = "0.20";

/** The demo's world is on this machine, so its addresses are allowed; said at start. */
const forMarket = (config: Config, world: World): Config => ({
  ...config,
  allow_loopback: true,
  control_urls: [world.control],
  catalogues: [world.catalogue, ...world.newcomers.map(({ url }) => url)],
  spend: { ...config.spend, per_domain_day: lesser(config.spend.per_domain_day, MARKET_DOMAIN_DAY) },
  networks: [],
  chain: { ...config.chain, rpc_url: world.rpcUrl, network: `eip155:${world.chainId}`, asset: world.asset },
});

const lesser = (a: string, b: string): string => (parseMoney(a) < parseMoney(b) ? a : b);

const acknowledger = (fd: number | undefined) =>
  fd === undefined ? undefined : (ids: readonly string[]) => void writeSync(fd, `${ids.join("\n")}\n`);

/**
 * Where the simulated past ends, and the clock from there on: now and the real one, or, at a pace, some hours ago and
 * one that runs faster until it meets the present. A start that goes on after such a one was cut off is in the present
 * at once.
 */
function presentOf({ pace, paceHours = PACED_HOURS, once }: StartOptions): { now: Date; goOn: () => Clock } {
  const real = systemClock.now();
  if (pace === undefined) return { now: real, goOn: () => systemClock };
  if (pace < 2 || once)
    throw new ConfigError(["--pace: at least 2, and not with --once, which stops before it begins"]);
  const now = new Date(real.getTime() - paceHours * HOUR_MS);
  return { now, goOn: () => new PacedClock(now, pace) };
}

/** The past is over: the index of it, the tables of the present, and what anybody gets answered now. */
async function liveFrom(
  present: Clock,
  clock: SwitchedClock,
  { roles, serving, world }: { roles: Assembled; serving: ServingTier; world: World },
): Promise<Pick<MarketLetters, "tree_size" | "market">> {
  await roles.pipeline.index();
  clock.use(present);
  await roles.pipeline.volatile();
  await roles.pipeline.history(present.now());
  await serving.refresh();
  return { tree_size: roles.publisher.fold.size, market: await lettersOf(serving.app, world.sellers) };
}

/**
 * `touchstone start`: every role in this process on embedded parts. With `--market` it boots the demo's world, lives
 * through the past, prints the table and keeps serving; a start after a crash goes on where the last one was cut off.
 */
export async function start(given: Config, options: StartOptions): Promise<void> {
  if (!options.market) return live(given, options);
  requireMarket(options.worldScript);
  const began = systemClock.monotonic();
  const progress = new Progress(!options.json);
  const days = Math.max(1, options.days ?? PAST_DAYS);
  const { now: present, goOn } = presentOf(options);
  const first = dayStart(daysOfPast(dayOf(present), days)[0]!);
  await keysFor(given, new Date(first.getTime() - DAY_MS));
  progress.say("booting the market: a local chain and its sellers");
  const world = await openWorld(folders(given.data_dir).market, options.worldScript);
  const config = forMarket(given, world);
  const clock = new SwitchedClock(new SimulatedClock(first));
  // A world that was running may be another start's: it is ours to stop once the lake is, which has one owner.
  let ours = !world.reused;
  const closing: (() => Promise<void>)[] = [async () => (ours ? world.stop() : world.release())];
  const stopped = new AbortController();
  world.lost.addEventListener("abort", () => stopped.abort(world.lost.reason), { once: true });
  onStopSignal(() => stopped.abort(new Error("stopped")));
  try {
    const parts = await openParts(config, clock);
    closing.push(() => parts.close());
    sayStart(parts.logger, config, "start", [...MACHINE_WORKS, "follow", SELL]);
    const again = await isPastOver(parts.privateStore);
    if (again) clock.use(systemClock);
    const wallets = createLocalWallets({ rpcUrl: world.rpcUrl, seed: parts.secret, asset: world.asset });
    const ordersStore = await openOrdersStore(config, parts.log);
    closing.push(() => ordersStore.close());
    const sales = openSales(
      { ...parts, ordersStore },
      clock,
      await localMoney(configuredNetworks(config)[0]!, wallets),
    );
    closing.push(() => sales.close());
    const { answers, ring } = parts.keys;
    const serving = await openServing({ ...parts, answers, ring, sales, role: "start" }, clock);
    closing.push(() => serving.close());
    if (!options.once) progress.say(`serving at ${serving.url} already: its pages fill as the days go by`);
    const money = { wallets, controlUrls: [world.control], pagesAt: serving.url, settlePollMs: [30, 100] };
    const roles = await assemble(parts, clock, money, acknowledger(options.acks));
    ours = true;
    closing.push(() => roles.close());
    stopped.signal.addEventListener("abort", () => roles.observer.stop());
    progress.say(`simulating ${days} days from the past to now (record time is made up, chain time is real)`);
    const listed = { catalogues: [world.catalogue], newcomers: world.newcomers };
    const past = { days, ...listed, signal: stopped.signal, onDay: progress.day.bind(progress) };
    const simulated = await livePast(roles.pipeline, parts.privateStore, clock, new FixedClock(present), past);
    const found = await liveFrom(again ? systemClock : goOn(), clock, { roles, serving, world });
    const result: MarketLetters = {
      simulated,
      took_s: Math.round((systemClock.monotonic() - began) / 100) / 10,
      ...found,
    };
    progress.end();
    if (options.json) printJson(result);
    else printLines(letterLines(result, serving.url));
    if (options.once) return;
    const words = ["", `Serving at ${serving.url} (Ctrl-C stops the market and everything else).`];
    print(options, { serving: serving.url }, words);
    sayStatus(serving.status, options.json);
    const { logger, metrics } = parts;
    const pulse = watchMachine(serving.status.pulse, { ...parts, ...roles }, [SELL]);
    const schedule = startMachine({ ...roles, ...{ clock, logger, metrics, pulse }, catalogues: config.catalogues });
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
    for (const close of closing.reverse()) await close();
  }
}
