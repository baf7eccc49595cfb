import { setMaxListeners } from "node:events";
import { BoundedMap } from "../../infra/bounded-map.ts";
import type { NamedCatalogue } from "../../infra/catalogues.ts";
import { type Clock, SimulatedClock } from "../../infra/clock.ts";
import { type Egress, withRequestFields } from "../../infra/egress/egress.ts";
import { Failure } from "../../infra/errors.ts";
import type { Log } from "../../infra/log/log.ts";
import { type LoopWatch, ownLoop } from "../../infra/loop-watch.ts";
import type { Rail, Wallets } from "../../infra/rails/rails.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { BodyOf } from "../record/bodies.ts";
import type { Sources } from "../record/classes/checker.ts";
import { CHECKERS } from "../record/classes.ts";
import type { Memory } from "../record/memory.ts";
import type { DayPlan } from "../record/plan.ts";
import { hostOf } from "../record/url.ts";
import { ClassQuestions } from "./classes/asking.ts";
import type { ClassMaps } from "./classes/classing.ts";
import { ClassWithdrawals } from "./classes/excuse.ts";
import { NO_CLASS_MAPS } from "./classes/mapping-file.ts";
import type { FirstIntents } from "./first-intents.ts";
import { EVERY_HOST, type HostShare, type Hosts } from "./hosts.ts";
import { Intake, type IntakeReport } from "./listings/intake.ts";
import { Sellers } from "./listings/sellers.ts";
import { PayeeBuyersReader } from "./paid/buyers.ts";
import { type ReconcileReport, Reconciler } from "./paid/reconcile.ts";
import { Retries } from "./paid/retry.ts";
import { type SpanReport, Spans } from "./plan/spans.ts";
import { type Caps, Ledger } from "./plan/spend.ts";
import { BLOCKS_PER_DAY } from "./plan/steps.ts";
import { ControlCalls } from "./probe/exchange.ts";
import { type AskReport, type CurrentListing, probeAsk, probeCurrentListing } from "./probe/unplanned.ts";
import { ASKS, ASKS_AT_ONCE, HostQueue, INTAKE, INTAKE_AT_ONCE } from "./queue.ts";
import { processReader, type Reader } from "./reading/reader.ts";
import { Recorder } from "./recorder.ts";
import type { Tools } from "./tools.ts";

export type { IntakeReport } from "./listings/intake.ts";
export type { ReconcileReport } from "./paid/reconcile.ts";
export type { SpanReport } from "./plan/spans.ts";
export type { AskReport } from "./probe/unplanned.ts";
export { NotConfirmed } from "./recorder.ts";

export interface ObserverConfig {
  /** Name of this process in the records that it writes. */
  producer: string;
  /** Addresses that we know to be up, for control calls. Without any, no failure is ever excused as our own. */
  controlUrls: readonly string[];
  /** Limits of spending. */
  caps: Caps;
  /** Sum of all payments signed so far, micro-units (millionths of a dollar). */
  spentBefore: bigint;
  /** Largest number of hosts that are called at once for planned calls. */
  hostsAtOnce: number;
  /**
   * Largest number of payees whose other payers one call of {@link Observer.readBuyers} reads from the chain; default
   * 0.
   */
  payeesPerRead?: number;
  /** Secret key from which questions with known answers are drawn, at least 16 bytes. */
  secret: Uint8Array;
  /** Pauses between searches for the settlement after a paid call, real ms. */
  settlePollMs?: readonly number[];
}

export interface ObserverParts {
  log: Log;
  egress: Egress;
  rail: Rail;
  wallets: Wallets;
  clock: Clock;
  memory: Memory;
  config: ObserverConfig;
  logger: Logger;
  metrics: Metrics;
  /** Called with the event ids of every append that the log confirmed. */
  onAck?: (eventIds: readonly string[]) => void;
  /**
   * Set when several observers share the work: this observer's share of the hosts, and {@link FirstIntents}, which
   * decides when two observers call one host.
   */
  shared?: { hosts: HostShare; firstIntents: FirstIntents };
  /**
   * An operator's mappings of endpoints to classes (kinds of questions with known answers), and the sources that some
   * questions need; default: none.
   */
  classes?: { maps?: ClassMaps; sources?: Sources };
  /** Default: the reader of this process. */
  reader?: Reader;
  /** Detects stalls of the event loop; default: the detector of this process's loop. */
  loop?: LoopWatch;
}

export interface Observer {
  /**
   * Makes every planned call with `from` <= planned time < `to` that is not in the record: hosts in parallel, the calls
   * of one host in time order. It decides on re-tests after each call. Resolves when the last call has ended.
   * @param createClock makes the clock for the calls of one host, which begins at `start`. By default this is the
   * observer's clock or, if that clock is simulated, a simulated clock for each host
   * @throws NotConfirmed when the log does not confirm a record: then the span ends, and nothing more is paid
   */
  observeSpan(plan: DayPlan, from: Date, to: Date, createClock?: (start: Date) => Clock): Promise<SpanReport>;
  /**
   * Does what {@link observeSpan} does, for this observer's share of the hosts, which may change meanwhile. After
   * `ended` has resolved it waits for the running calls and returns. A host's calls begin after its partition was
   * assigned and the log was read up to that moment.
   * @throws NotConfirmed as {@link observeSpan} does
   */
  observeShare(plan: DayPlan, from: Date, to: Date, ended: Promise<void>): Promise<SpanReport>;
  /**
   * Call this once at the start, before anything else. It finds the intents (records written before a payment) that
   * an earlier process left without a result, and records for each a result that counts as our own fault. It also
   * reads which synthetic inputs have passed before.
   * @returns `lost`: number of these intents
   */
  recover(): Promise<{ lost: number }>;
  /**
   * Call this about every minute. It records settlements that appear late or become final, begins to send the proof
   * of a late settlement to the seller again, and searches for refunds. It records verdicts, which follow from our own
   * calls, on failures that buyers published. It withdraws the calls of a class (a kind of questions with known
   * answers) that failed for all sellers on a day.
   */
  followUpCalls(): Promise<ReconcileReport>;
  /** Resolves when every proof of a late settlement that is being sent again has been answered. Never rejects. */
  waitForShowings(): Promise<void>;
  /**
   * Reads from the chain who else pays some of the payees that we pay. Call it every hour.
   * @returns number of payees that were read
   * @throws NotConfirmed
   */
  readBuyers(): Promise<number>;
  /**
   * Probes once the url of an ask (a client's request to probe a url), or the listed endpoint if `listing` is given.
   * @throws Failure when too much work is waiting, the log does not confirm a record, or the observer was stopped
   */
  probeAsk(ask: BodyOf<"ask">, listing?: CurrentListing): Promise<AskReport>;
  /** Is the endpoint in the plan of this UTC day? null while this process has not begun that plan. */
  isPlanned(day: string, cap: string): boolean | null;
  /** Reads a seller's own listing (an origin, or its `/.well-known/x402`). */
  intakeSeller(url: string): Promise<IntakeReport>;
  /** Reads a catalogue, then the own listing of every seller in it (each origin once a UTC day). */
  intakeCatalogue(namedCatalogue: NamedCatalogue): Promise<IntakeReport>;
  /** Selects the catalogues whose reading stopped early and may continue now. */
  unfinishedCatalogues(namedCatalogues: readonly NamedCatalogue[]): NamedCatalogue[];
  /** Reads the own listing of every listed seller that was not read today. */
  refreshSellers(): Promise<IntakeReport>;
  /**
   * Ends the spans (parts of a day's plan) that are running: no further call begins, and running payments are watched
   * to their end.
   */
  stop(): void;
}

/** Default of `settlePollMs` in {@link ObserverConfig}. */
const SETTLE_POLL_MS = [250, 1_000, 2_000];
/** Largest number of pieces of work that wait or run at once, for all hosts together. */
const MAX_QUEUED = 100_000;
/** Largest number of requests that passed before and are remembered. */
const MAX_PASSED_INPUTS = 100_000;
/** Largest number of MCP tools of which the form of their payment is remembered. */
const MAX_PAYMENT_FORMS = 100_000;

/** Sets the counters and gauges of a class to 0, so that they are exported before the first event. */
function zeroClassMetrics(metrics: Pick<Metrics, "count" | "gauge">, name: string): void {
  for (const passed of ["true", "false"] as const)
    metrics.count("touchstone_observe_class_controls_total", { class: name, passed }, 0);
  metrics.count("touchstone_observe_class_mappings_dropped_total", { class: name }, 0);
  metrics.count("touchstone_observe_class_sources_down_total", { class: name }, 0);
  metrics.count("touchstone_observe_class_excused_total", { class: name }, 0);
  metrics.gauge("touchstone_observe_class_failing", 0, { class: name });
}

/**
 * The error with which running work ends when the observer is stopped. A call that ends with it counts against nobody.
 */
export class ObserverStopped extends Failure {
  constructor() {
    super("failed", "the observer was stopped");
  }
}

/**
 * Records verdicts on failures that buyers published. Every observer finds all verdicts; two records of one verdict
 * have one id, so the second is dropped.
 */
async function recordVerdicts(recorder: Recorder, memory: Pick<Memory, "findVerdicts">, clock: Pick<Clock, "now">) {
  const verdicts = await memory.findVerdicts();
  if (verdicts.length === 0) return;
  const at = clock.now();
  await recorder.append(
    verdicts.map(({ of, cap, kind }) => ({
      type: "paid.followup",
      cap,
      slot: `${of}/${kind}`,
      at,
      body: { of, kind },
    })),
  );
}

/** Creates an {@link Observer} from its parts. */
export function createObserver(parts: ObserverParts): Observer {
  const { log, egress, rail, wallets, clock, memory, config, logger, metrics, onAck, shared } = parts;
  const { reader = processReader, loop = ownLoop, classes } = parts;
  const hosts: Hosts = shared?.hosts ?? EVERY_HOST;
  if (config.secret.length < 16) throw new RangeError("the secret of the known answers has at least 16 bytes");
  const stopController = new AbortController();
  setMaxListeners(0, stopController.signal);
  const recorder = new Recorder({ log, producer: config.producer, metrics, onAck });
  const intake = new Intake({ egress, rail, recorder, metrics, memory, reader, logger });
  const tools: Tools = {
    ...{ egress, reader, loop, rail, wallets, recorder, intake, logger, metrics },
    questions: new ClassQuestions({
      ...{ recorder, metrics, logger, maps: classes?.maps ?? NO_CLASS_MAPS, sources: classes?.sources ?? {} },
    }),
    control: new ControlCalls(egress, config.controlUrls),
    createControl: (stock) => new ControlCalls(withRequestFields(egress, { stock }), config.controlUrls),
    ledger: new Ledger(config.caps, config.spentBefore, shared ? BigInt(BLOCKS_PER_DAY) : null),
    hosts,
    firstIntents: shared?.firstIntents ?? null,
    secret: config.secret,
    settlePollMs: config.settlePollMs ?? SETTLE_POLL_MS,
    retries: new Retries(memory),
    inFlight: new Set(),
    passedInputs: new BoundedMap(MAX_PASSED_INPUTS),
    paymentForms: new BoundedMap(MAX_PAYMENT_FORMS),
    signal: stopController.signal,
  };
  const hostQueue = new HostQueue(config.hostsAtOnce, MAX_QUEUED, {
    [ASKS]: ASKS_AT_ONCE,
    [INTAKE]: INTAKE_AT_ONCE,
  });
  const buyers = new PayeeBuyersReader(tools, memory, config.payeesPerRead ?? 0);
  const reconciler = new Reconciler(tools, memory);
  metrics.gauge("touchstone_observe_blind_missed_seconds", 0);
  for (const { name } of CHECKERS) zeroClassMetrics(metrics, name);
  const withdrawals = new ClassWithdrawals({ memory, recorder, hosts, metrics, logger });
  const spans = new Spans(tools, memory, reconciler, hostQueue, config.hostsAtOnce, stopController.signal);
  const sellers = new Sellers({ intake, memory, egress, hostQueue, clock, hosts, signal: stopController.signal });
  const clockForHost = (start: Date): Clock => (clock.jumps ? new SimulatedClock(start) : clock);
  return {
    observeSpan: (plan, from, to, createClock = clockForHost) => spans.makeCalls(plan, from, to, createClock),
    observeShare: (plan, from, to, ended) => {
      if (!shared) throw new Error("this observer shares its work with nobody");
      return spans.runShare(shared.hosts, plan, { from, to, ended }, clockForHost);
    },
    async recover() {
      // The inputs come newest first. They are added oldest first, since a bounded map drops what was added first.
      for (const input of (await memory.passedInputs(MAX_PASSED_INPUTS)).reverse()) tools.passedInputs.set(input, true);
      return reconciler.recover(clock);
    },
    async followUpCalls() {
      const report = await reconciler.run(clock);
      await recordVerdicts(recorder, memory, clock);
      await withdrawals.withdrawFailed(clock);
      return report;
    },
    waitForShowings: () => reconciler.waitForShowings(),
    readBuyers: () => buyers.readDue(clock),
    probeAsk(ask, listing) {
      const runProbe = () => (listing ? probeCurrentListing(tools, listing, clock) : probeAsk(tools, ask, clock));
      return hostQueue.run(hostOf(ask.normalised_url), runProbe, ASKS);
    },
    isPlanned: (day, cap) => spans.isPlanned(day, cap),
    intakeSeller: (url) => sellers.readSeller(url),
    intakeCatalogue: (named) => sellers.readCatalogue(named),
    unfinishedCatalogues: (named) => sellers.unfinishedCatalogues(named),
    refreshSellers: () => sellers.readAllDue(),
    stop: () => stopController.abort(new ObserverStopped()),
  };
}
