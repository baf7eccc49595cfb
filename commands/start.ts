import { writeSync } from "node:fs";
import { type Clock, FixedClock, PacedClock, SimulatedClock, SwitchedClock, systemClock } from "../infra/clock.ts";
import { type Config, ConfigError, GAS_CEILING_GWEI } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { configuredNetworks } from "../infra/rails/networks.ts";
import { createLocalWallets } from "../infra/rails/wallets.ts";
import type { Store } from "../infra/store/store.ts";
import type { Logger } from "../infra/telemetry.ts";
import { createCorrectionDraft, planCorrections, planReinstatement } from "../pipelines/corrections/correct.ts";
import { findEndpoint } from "../pipelines/corrections/endpoint-record.ts";
import { parseMoney } from "../pipelines/record/money.ts";
import { DAY_MS, dayOf, dayStart } from "../pipelines/record/time.ts";
import { assemble, type MachineRoles } from "../pipelines/roles/assemble.ts";
import { foldersOf } from "../pipelines/roles/data-folder.ts";
import { openOrdersStore, openParts, type Parts } from "../pipelines/roles/parts.ts";
import { ensureKeysFor } from "../pipelines/roles/record-identity.ts";
import { MACHINE_WORK_KINDS, startMachine } from "../pipelines/roles/schedule.ts";
import { onStopSignal } from "./exit.ts";
import { letterLines, lettersOf, type MarketLetters } from "./letters.ts";
import { logStart, watchMachine } from "./machine-status.ts";
import { recorderOf, withReading } from "./opening.ts";
import { print, printJson, printLines } from "./printer.ts";
import { importSample } from "./register.ts";
import { printStatus, stopwatch } from "./report.ts";
import { createLocalMoney, openSales } from "./selling.ts";
import { startLive } from "./serve.ts";
import { openServing, SELL_JOB, type ServingTier } from "./serving-tier.ts";
import { daysOfPast, isPastOver, Progress, simulatePast } from "./simulated-past.ts";
import { COMMANDS, type OptionsOf } from "./table.ts";
import { type DemoWitnesses, openDemoWitnesses } from "./witness.ts";
import { askPeople, openWorld, requireMarket, type World } from "./world.ts";

/** Options of `start`. `worldScript`: path of the script that runs the demo's market. */
type StartOptions = OptionsOf<"start"> & { worldScript: string };

const HOUR_MS = 3_600_000;

/**
 * Spending cap per domain and day in the demo, USDC. One host of the small market sells at every path, and with the
 * default cap it would get nearly all the money of a day. No honest seller is affected: at no more than 0.09 a call,
 * each is paid less than this on a day.
 */
const MARKET_DOMAIN_DAY_CAP = "0.50";

/** Returns the networks of the demo: first the one on which the service sells; then Tempo, if the market has it. */
function networksOf({ chain }: Config, { chainId, rpcUrl, asset, tempo }: World): Pick<Config, "networks" | "chain"> {
  const demoChain = { ...chain, rpc_url: rpcUrl, network: `eip155:${chainId}`, asset };
  if (!tempo) return { networks: [], chain: demoChain };
  const common = { agree: 1, gas_ceiling_gwei: GAS_CEILING_GWEI, assets: [] };
  const first = { id: demoChain.network, rpc_urls: [rpcUrl], confirmations: chain.confirmations };
  const second = { id: `eip155:${tempo.chainId}`, rpc_urls: [tempo.rpcUrl], confirmations: null };
  return {
    networks: [
      { ...common, ...first },
      { ...common, ...second },
    ],
    chain: demoChain,
  };
}

/** Returns the option for wallets on the demo's Tempo chain, if the market has one. */
const tempoOption = ({ tempo }: World) => (tempo ? { tempo: { ...tempo, network: `eip155:${tempo.chainId}` } } : {});

/** Returns the settings of the demo. Its market is on this machine, so loopback addresses are allowed. */
const settingsForMarket = (config: Config, world: World, { witnesses }: DemoWitnesses): Config => ({
  ...config,
  ...networksOf(config, world),
  witnesses: [...config.witnesses, ...witnesses],
  witnessing: { ...config.witnessing, quorum: config.witnessing.quorum || witnesses.length },
  allow_loopback: true,
  control_urls: [world.control],
  catalogues: [world.catalogue, ...world.newcomers.map(({ url }) => url)],
  spend: { ...config.spend, per_domain_day: lesser(config.spend.per_domain_day, MARKET_DOMAIN_DAY_CAP) },
});

const lesser = (a: string, b: string): string => (parseMoney(a) < parseMoney(b) ? a : b);

/** Returns a function that writes the ids of acknowledged records to a file descriptor (--acks), if one is given. */
const createAcknowledger = (fd: number | undefined) =>
  fd === undefined ? undefined : (ids: readonly string[]) => void writeSync(fd, `${ids.join("\n")}\n`);

/** Refuses options of the demo, which have no effect without --market. @throws Failure `usage` */
function refuseMarketOptions({ days, pace, paceHours, acks }: StartOptions): void {
  const defaults = COMMANDS.start.options;
  const givenByOption = {
    "--days": days !== defaults["--days <n>"].default,
    "--pace": pace !== undefined,
    "--pace-hours": paceHours !== defaults["--pace-hours <n>"].default,
    "--acks": acks !== undefined,
  };
  const given = Object.entries(givenByOption).flatMap(([name, isGiven]) => (isGiven ? [name] : []));
  if (given.length > 0) throw new Failure("usage", `${given.join(", ")}: only with --market`);
}

/**
 * Returns the end of the simulated past: now, or some hours ago with `--pace`. From there a faster clock runs until it
 * reaches the present.
 */
function endOfPast({ pace, paceHours, once }: StartOptions): Date {
  const realNow = systemClock.now();
  if (pace === undefined) return realNow;
  if (pace < 2 || once) throw new ConfigError(["--pace must be at least 2, and cannot be combined with --once"]);
  return new Date(realNow.getTime() - paceHours * HOUR_MS);
}

/**
 * Key of the object in the private store that holds the start of the faster clock: record time, real time, and rate.
 */
const PACE_KEY = "simulated/pace.json";

/**
 * Returns the clock that is used after the simulated past: the real one, or with `--pace` one that runs faster. After
 * an interruption the faster clock continues as if it had never stopped.
 * @param pastEnd end of the simulated past
 */
async function clockAfterPast(privateStore: Store, pace: number | undefined, pastEnd: Date): Promise<Clock> {
  if (pace === undefined) return systemClock;
  const realNow = systemClock.now();
  await privateStore.create(PACE_KEY, Buffer.from(JSON.stringify({ record: pastEnd, real: realNow, pace })));
  const stored = JSON.parse(Buffer.from((await privateStore.get(PACE_KEY))!.bytes).toString("utf8")) as StoredPace;
  const passedMs = Math.max(0, realNow.getTime() - Date.parse(stored.real));
  return new PacedClock(new Date(Date.parse(stored.record) + passedMs * stored.pace), stored.pace);
}

/** The start of the faster clock, as it is stored under {@link PACE_KEY}. */
interface StoredPace {
  /** Record time at that start, RFC 3339. */
  record: string;
  /** Real time at that start, RFC 3339. */
  real: string;
  /** How many times faster than real time the clock runs. */
  pace: number;
}

/**
 * Ends the simulation: publishes the index, sets the clock, writes the tables and charts of the present, and reads the
 * letters.
 */
async function enterPresent(
  present: Clock,
  clock: SwitchedClock,
  { roles, serving, world }: { roles: MachineRoles; serving: ServingTier; world: World },
): Promise<Pick<MarketLetters, "tree_size" | "market">> {
  await roles.pipeline.publishIndex();
  clock.use(present);
  await roles.pipeline.writeVolatile();
  await roles.pipeline.writeHistory(present.now());
  await serving.refresh();
  return { tree_size: roles.publisher.fold.size, market: await lettersOf(serving.app, world.sellers) };
}

/** Name of the seller for which the demo issues a correction and takes it back. */
const CORRECTED_SELLER = "encoder";
/**
 * Time between the correction and its withdrawal, ms. A service grades every ten seconds, so each of the two changes
 * gets its own card.
 */
const CORRECTION_PAUSE_MS = 25_000;

/**
 * Withdraws the newest handshake (the record of an unpaid probe) of an endpoint, and takes the correction back, as
 * `touchstone correct` and `touchstone reinstate` do. Steps that an earlier start has done are not repeated.
 */
async function correctOnce(parts: Parts, seller: string, signal: AbortSignal): Promise<void> {
  const recorder = recorderOf(parts);
  await withReading(parts, async (reading) => {
    const record = await findEndpoint(reading, seller);
    if (record.correctionRecords.corrections.size > 0) return;
    const handshakes = [...record.records].filter(([, { type }]) => type === "handshake");
    const [newest] = handshakes.sort(([, a], [, b]) => (a.observedAt < b.observedAt ? 1 : -1));
    const says = "The demo shows a correction, as if we had misread the terms of this record.";
    const request = { records: [newest![0]], gradeAt: null, fault: "misread_terms", says };
    const now = systemClock.now();
    const drafts = planCorrections(record, request, now).map((body) =>
      createCorrectionDraft("correction", record.cap, body, now),
    );
    await recorder.append(drafts);
  });
  await systemClock.sleep(CORRECTION_PAUSE_MS, signal);
  await withReading(parts, async (reading) => {
    const { cap, correctionRecords } = await findEndpoint(reading, seller);
    const [id] = [...correctionRecords.corrections.keys()];
    if (id === undefined || correctionRecords.reinstated.has(id)) return;
    const says = "The record was right: the demo shows how a correction is taken back.";
    const { body } = planReinstatement(correctionRecords, id, says);
    await recorder.append([createCorrectionDraft("reinstated", cap, body, systemClock.now())]);
  });
}

/**
 * Runs the acts of the demo (calls of the market's users, a correction) one after the other. If one fails, that is
 * logged, and the others still run.
 */
async function runActs(acts: readonly (() => Promise<void>)[], signal: AbortSignal, logger: Logger): Promise<void> {
  for (const act of acts) {
    if (signal.aborted) return;
    await act().catch((error: unknown) => {
      if (!signal.aborted) logger.warn({ err: error }, "a part of the demo failed");
    });
  }
}

/**
 * `touchstone start`: runs all roles in this process. With `--market` it boots the demo's market, simulates the past,
 * prints the letters and keeps serving; a start after a crash continues where the last one stopped.
 */
export async function start(baseConfig: Config, options: StartOptions): Promise<void> {
  if (!options.market) {
    refuseMarketOptions(options);
    return startLive(baseConfig, options);
  }
  requireMarket(options.worldScript);
  const elapsedSeconds = stopwatch(1);
  const progress = new Progress(!options.json);
  const days = Math.max(1, options.days);
  const present = endOfPast(options);
  const firstDay = dayStart(daysOfPast(dayOf(present), days)[0]!);
  await ensureKeysFor(baseConfig, new Date(firstDay.getTime() - DAY_MS));
  progress.say("booting the market: two local chains and the sellers");
  const world = await openWorld(foldersOf(baseConfig.data_dir).market, options.worldScript);
  const clock = new SwitchedClock(new SimulatedClock(firstDay));
  // A market that was already running may belong to another start, so this start stops it only once it has opened the
  // lake, which one process at a time can do.
  let ownsWorld = !world.reused;
  const closeSteps: (() => Promise<void>)[] = [async () => (ownsWorld ? world.stop() : world.release())];
  const stopController = new AbortController();
  world.lost.addEventListener("abort", () => stopController.abort(world.lost.reason), { once: true });
  onStopSignal(() => stopController.abort(new Error("stopped")));
  try {
    const witnesses = await openDemoWitnesses(baseConfig, present);
    closeSteps.push(() => witnesses.close());
    const config = settingsForMarket(baseConfig, world, witnesses);
    const parts = await openParts(config, clock);
    closeSteps.push(() => parts.close());
    logStart(parts.logger, config, "start", [...MACHINE_WORK_KINDS, "follow", SELL_JOB]);
    const isPastDone = await isPastOver(parts.privateStore);
    const openPresentClock = () => clockAfterPast(parts.privateStore, options.pace, present);
    const resumedClock = isPastDone ? await openPresentClock() : null;
    if (resumedClock) clock.use(resumedClock);
    const wallets = createLocalWallets({
      ...{ rpcUrl: world.rpcUrl, seed: parts.secret, asset: world.asset },
      ...tempoOption(world),
    });
    const ordersStore = await openOrdersStore(config, parts.log);
    closeSteps.push(() => ordersStore.close());
    await importSample(config);
    const sales = openSales(
      { ...parts, ordersStore },
      clock,
      await createLocalMoney(configuredNetworks(config)[0]!, wallets),
    );
    closeSteps.push(() => sales.close());
    const { answers, ring } = parts.keys;
    const serving = await openServing({ ...parts, answers, ring, sales, role: "start" }, clock);
    closeSteps.push(() => serving.close());
    if (!options.once) progress.say(`serving at ${serving.url} already: its pages fill while the days are simulated`);
    const paymentParts = { wallets, controlUrls: [world.control], pagesAt: serving.url, settlePollMs: [30, 100] };
    const roles = await assemble(parts, clock, paymentParts, createAcknowledger(options.acks));
    ownsWorld = true;
    closeSteps.push(() => roles.close());
    stopController.signal.addEventListener("abort", () => roles.observer.stop());
    progress.say(`simulating ${days} days up to now (record time is simulated, chain time is real)`);
    const pastCatalogues = { catalogues: [world.catalogue], newcomers: world.newcomers };
    const pastOptions = {
      days,
      ...pastCatalogues,
      signal: stopController.signal,
      onDay: progress.showDay.bind(progress),
    };
    const simulated = await simulatePast(
      roles.pipeline,
      parts.privateStore,
      clock,
      new FixedClock(present),
      pastOptions,
    );
    const letters = await enterPresent(resumedClock ?? (await openPresentClock()), clock, { roles, serving, world });
    const result: MarketLetters = {
      simulated,
      took_s: elapsedSeconds(),
      ...letters,
    };
    progress.end();
    if (options.json) printJson(result);
    else printLines(letterLines(result, serving.url));
    if (options.once) return;
    const lines = [
      `next: touchstone audit ${serving.url} --witness-policy ${witnesses.policyFile}`,
      "",
      `Serving at ${serving.url} (Ctrl-C stops the market and everything else).`,
    ];
    print(options, { serving: serving.url, witness_policy: witnesses.policyFile }, lines);
    printStatus(serving.status, options);
    const { logger, metrics } = parts;
    const pulse = watchMachine(serving.status.pulse, { ...parts, ...roles }, [SELL_JOB]);
    const schedule = startMachine({ ...roles, ...{ clock, logger, metrics, pulse }, catalogues: config.catalogues });
    closeSteps.push(() => schedule.stop());
    if (options.pace === undefined) {
      const correctedUrl = world.sellers.find(({ name }) => name === CORRECTED_SELLER)!.urls[0]!;
      const service = { url: serving.url, origin: new URL(config.base_url).origin };
      const { signal } = stopController;
      const acts = [() => askPeople(world, service, signal), () => correctOnce(parts, correctedUrl, signal)];
      const runningActs = runActs(acts, signal, logger);
      closeSteps.push(() => runningActs);
    }
    await new Promise<void>((resolve) => {
      if (stopController.signal.aborted) resolve();
      stopController.signal.addEventListener("abort", () => resolve(), { once: true });
    });
    if (world.lost.aborted) throw world.lost.reason;
  } catch (error) {
    // Errors after a stop signal are its consequences, and are ignored. If the market died, that is the cause to
    // report.
    if (world.lost.aborted) throw world.lost.reason;
    if (!stopController.signal.aborted) throw error;
  } finally {
    progress.end();
    for (const close of closeSteps.reverse()) await close();
  }
}
