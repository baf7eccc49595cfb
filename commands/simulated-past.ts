import { type Clock, SimulatedClock, type SwitchedClock } from "../infra/clock.ts";
import type { Store } from "../infra/store/store.ts";
import { addDays, BLOCK_MS, DAY_MS, dayOf, dayStart } from "../pipelines/record/time.ts";
import type { Pipeline } from "../pipelines/roles/pipeline.ts";
import { ProgressLine, say } from "./printer.ts";

/**
 * Number of simulated days: a letter A needs at least 31 days (verification-method.md, section 4), and one is spare.
 */
export const PAST_DAYS = 32;

/**
 * Numbers of days before today: on these two days a few sellers are also called, so that the record has days that are
 * old enough for the archive.
 */
const EARLIER_DAYS_AGO = [124, 123] as const;

/**
 * Returns the UTC days of a past that ends on `last`, oldest first. A past of {@link PAST_DAYS} days or more begins
 * with the earlier days, unless it reaches back to them itself.
 */
export function daysOfPast(last: string, days: number): string[] {
  const daily = Array.from({ length: days }, (_, i) => addDays(last, i + 1 - days));
  return days < PAST_DAYS || days > EARLIER_DAYS_AGO[1]
    ? daily
    : [...EARLIER_DAYS_AGO.map((ago) => addDays(last, -ago)), ...daily];
}

export interface PastOptions {
  /** Number of simulated days. The last of them is today, which is simulated up to now. */
  days: number;
  /** Catalogues that are read at the start of each of these days. */
  catalogues: readonly string[];
  /**
   * Further catalogues, read from `days` days before tomorrow on: for sellers that joined late, or that were known
   * before the other days.
   */
  newcomers?: readonly { url: string; days: number }[];
  signal?: AbortSignal;
  /** Called after each simulated day. */
  onDay?: (progress: DayProgress) => void;
}

/** Progress after a simulated day: its number from 1 (`n`) `of` all days, and its probes, payments and signed cards. */
export interface DayProgress {
  day: string;
  n: number;
  of: number;
  observed: number;
  paid: number;
  cards: number;
}

export interface PastSpan {
  /** First simulated day, YYYY-MM-DD. */
  from: string;
  /** End of the simulated past, RFC 3339. */
  until: string;
  /** Number of simulated days, as in {@link PastOptions}. */
  days: number;
}

/**
 * Time before the end of the past in which no call begins, ms. A payment that got no answer is sent to its seller
 * again for ten minutes, which must also lie in the past.
 */
const QUIET_END_MS = 900_000;

const SPAN_KEY = "simulated/span.json";
const doneMarkerKey = (day: string): string => `simulated/done/${day}`;

/**
 * Returns the start and end of the simulated past, which the first start stores. A start after a crash continues that
 * past, so that no call gets another time, and none is in the future.
 */
async function getOrCreateSpan(privateStore: Store, days: number, realClock: Clock): Promise<PastSpan> {
  const storedSpan = await privateStore.get(SPAN_KEY);
  if (storedSpan) return JSON.parse(Buffer.from(storedSpan.bytes).toString("utf8")) as PastSpan;
  const until = realClock.now();
  const span: PastSpan = { from: daysOfPast(dayOf(until), days)[0]!, until: until.toISOString(), days };
  await privateStore.create(SPAN_KEY, Buffer.from(JSON.stringify(span)));
  return span;
}

/** Is the simulated past in this store complete? Then the demo runs in real time at once. */
export async function isPastOver(privateStore: Store): Promise<boolean> {
  const storedSpan = await privateStore.get(SPAN_KEY);
  if (!storedSpan) return false;
  const { until } = JSON.parse(Buffer.from(storedSpan.bytes).toString("utf8")) as PastSpan;
  return (await privateStore.head(doneMarkerKey(dayOf(new Date(until))))) !== null;
}

/** Returns the catalogues that are read on the day that is this many days before tomorrow. */
const cataloguesOn = (
  { catalogues, newcomers = [] }: PastOptions,
  days: number,
  daysBeforeTomorrow: number,
): string[] => [
  ...(daysBeforeTomorrow <= days ? catalogues : []),
  ...newcomers.flatMap(({ url, days: since }) => (daysBeforeTomorrow <= since ? [url] : [])),
];

/**
 * Simulates the past day by day on the base schedule: plan, observe, ingest, grade, publish. Of the earlier days it
 * simulates only the first six hours. At the end it archives days that are old enough. The time of the record is
 * simulated; the time of the chain is real. An interrupted day is repeated from its beginning: calls that are in the
 * log already are skipped by their event ids, so nothing is observed or paid twice.
 */
export async function simulatePast(
  pipeline: Pipeline,
  privateStore: Store,
  clock: SwitchedClock,
  realClock: Clock,
  options: PastOptions,
): Promise<PastSpan> {
  const span = await getOrCreateSpan(privateStore, options.days, realClock);
  const lastDay = dayOf(new Date(span.until));
  const days = daysOfPast(lastDay, span.days);
  // The day before is graded and published while this day is already observed. That is possible because a grade run
  // reads no rows that are later than its own time.
  let grading = Promise.resolve();
  for (const [n, day] of days.entries()) {
    options.signal?.throwIfAborted();
    if (await privateStore.head(doneMarkerKey(day))) continue;
    const end = day === lastDay ? new Date(span.until) : new Date(dayStart(addDays(day, 1)).getTime() - 1);
    const daysBeforeTomorrow = Math.round((dayStart(lastDay).getTime() - dayStart(day).getTime()) / DAY_MS) + 1;
    clock.use(new SimulatedClock(dayStart(day)));
    await pipeline.intake(cataloguesOn(options, span.days, daysBeforeTomorrow));
    const plan = await pipeline.getPublishedPlan(day);
    const dayBegin = dayStart(day);
    const until =
      daysBeforeTomorrow > span.days
        ? dayBegin.getTime() + BLOCK_MS
        : end.getTime() - (day === lastDay ? QUIET_END_MS : 0);
    const observed = await pipeline.observe(plan, dayBegin, new Date(until));
    // Waits for the grade run of the day before. This day's run is not awaited here: the next day's intake loads this
    // day's records into the lake before the next plan is made from them.
    await grading;
    clock.use(new SimulatedClock(end));
    grading = pipeline.grade(end).then(async ({ cards }) => {
      // The index is built before the evidence and is published with the evidence's leaves; an index alone causes no
      // publication.
      await pipeline.publishIndex();
      await pipeline.publishEvidence(end);
      await privateStore.create(doneMarkerKey(day), Buffer.from(end.toISOString()));
      options.onDay?.({ day, n: n + 1, of: days.length, observed: observed.probes, paid: observed.paid, cards });
    });
    // `grading` is awaited in the next pass. Until then its rejection must not count as unhandled.
    grading.catch(() => {});
  }
  await grading;
  await pipeline.archiveOldDays(new Date(span.until));
  return span;
}

const BAR_WIDTH = 20;

/** Returns a progress bar of fixed width: `[#####...............]`. */
const progressBar = (n: number, total: number): string => {
  const filled = Math.round((n / total) * BAR_WIDTH);
  return `[${"#".repeat(filled)}${".".repeat(BAR_WIDTH - filled)}]`;
};

/**
 * Shows the progress of the simulation on stderr: on a terminal in one line that is rewritten, else a line every five
 * days.
 */
export class Progress {
  readonly #line = new ProgressLine();
  #probes = 0;
  #paid = 0;
  #cards = 0;

  constructor(private readonly isShown: boolean) {}

  say(text: string): void {
    if (!this.isShown) return;
    this.end();
    say(text);
  }

  showDay({ day, n, of, observed, paid, cards }: DayProgress): void {
    this.#probes += observed;
    this.#paid += paid;
    this.#cards += cards;
    if (!this.isShown) return;
    const text = `day ${n} of ${of} (${day}): ${this.#probes} probes, ${this.#paid} payments, ${this.#cards} cards signed`;
    if (this.#line.isOnTerminal) this.#line.show(`${progressBar(n, of)} ${text}`, true);
    else if (n % 5 === 0 || n === of) say(text);
  }

  /** Ends the progress line, whose text stays on the terminal. */
  end(): void {
    this.#line.end(true);
  }
}
