import { type Clock, SimulatedClock, type SwitchedClock } from "../infra/clock.ts";
import type { Store } from "../infra/store/store.ts";
import { addDays, BLOCK_MS, DAY_MS, dayOf, dayStart } from "../pipelines/record/time.ts";
import type { Pipeline } from "../pipelines/roles/pipeline.ts";
import { ProgressLine, say } from "./printer.ts";

/** Days of the simulated past: an A needs 31 days at least (verification-method.md, section 4), and a day of room. */
export const PAST_DAYS = 32;

/** So many days before today a few sellers were called already: a fortnight is old enough for the archive then. */
const LONG_AGO = [124, 123] as const;

/** UTC days of a past that ends on `last`, oldest first: those of long ago before a whole past, then each of `days`. */
export function daysOfPast(last: string, days: number): string[] {
  const daily = Array.from({ length: days }, (_, i) => addDays(last, i + 1 - days));
  return days < PAST_DAYS || days > LONG_AGO[1] ? daily : [...LONG_AGO.map((ago) => addDays(last, -ago)), ...daily];
}

export interface PastOptions {
  /** How many days up to today are all lived through; today ends now. */
  days: number;
  /** Catalogues that are read at the start of each of these days. */
  catalogues: readonly string[];
  /** Catalogues that are read so many days before tomorrow and later: who is in them was known before, or has joined late. */
  newcomers?: readonly { url: string; days: number }[];
  signal?: AbortSignal;
  onDay?: (progress: DayProgress) => void;
}

export interface DayProgress {
  day: string;
  n: number;
  of: number;
  observed: number;
  paid: number;
  cards: number;
}

export interface Span {
  from: string;
  until: string;
  /** {@link PastOptions} */
  days: number;
}

/** Before now no call is begun any more: a thief's proof is shown again for ten minutes after it. */
const LEEWAY_MS = 900_000;

const SPAN_KEY = "simulated/span.json";
const doneKey = (day: string): string => `simulated/done/${day}`;

/**
 * Where the past begins and ends, fixed by its first start: a start after a crash goes on in the same past, so that no
 * slot moves and nothing ever lies in the future.
 */
async function spanOf(privateStore: Store, days: number, real: Clock): Promise<Span> {
  const known = await privateStore.get(SPAN_KEY);
  if (known) return JSON.parse(Buffer.from(known.bytes).toString("utf8")) as Span;
  const until = real.now();
  const span: Span = { from: daysOfPast(dayOf(until), days)[0]!, until: until.toISOString(), days };
  await privateStore.create(SPAN_KEY, Buffer.from(JSON.stringify(span)));
  return span;
}

/** Has this store lived through its past already? Then a start is live from its first moment. */
export async function isPastOver(privateStore: Store): Promise<boolean> {
  const known = await privateStore.get(SPAN_KEY);
  if (!known) return false;
  const { until } = JSON.parse(Buffer.from(known.bytes).toString("utf8")) as Span;
  return (await privateStore.head(doneKey(dayOf(new Date(until))))) !== null;
}

/** Which catalogues are read `left` days before tomorrow. */
const cataloguesOn = ({ catalogues, newcomers = [] }: PastOptions, days: number, left: number): string[] => [
  ...(left <= days ? catalogues : []),
  ...newcomers.flatMap(({ url, days: since }) => (left <= since ? [url] : [])),
];

/**
 * Live through the past day by day on the base schedule: plan, observe, ingest, grade, publish; of the days long ago the
 * first block alone. What is old enough by now is archived at the end. The record's clock is simulated; chain time is
 * real. A day that was cut off is done again from its beginning: slots that are in the log already are skipped by their
 * event ids, so nothing is observed or paid twice.
 */
export async function livePast(
  pipeline: Pipeline,
  privateStore: Store,
  clock: SwitchedClock,
  real: Clock,
  options: PastOptions,
): Promise<Span> {
  const span = await spanOf(privateStore, options.days, real);
  const last = dayOf(new Date(span.until));
  const days = daysOfPast(last, span.days);
  // Yesterday is graded and published while today is observed: a run reads no row of a later moment than its own.
  let graded = Promise.resolve();
  for (const [n, day] of days.entries()) {
    options.signal?.throwIfAborted();
    if (await privateStore.head(doneKey(day))) continue;
    const end = day === last ? new Date(span.until) : new Date(dayStart(addDays(day, 1)).getTime() - 1);
    const left = Math.round((dayStart(last).getTime() - dayStart(day).getTime()) / DAY_MS) + 1;
    clock.use(new SimulatedClock(dayStart(day)));
    await pipeline.intake(cataloguesOn(options, span.days, left));
    const plan = await pipeline.plan(day);
    const began = dayStart(day);
    const until = left > span.days ? began.getTime() + BLOCK_MS : end.getTime() - (day === last ? LEEWAY_MS : 0);
    const seen = await pipeline.observe(plan, began, new Date(until));
    // What today brought is taken into the lake by the grade and by tomorrow's intake, whichever comes first: the plan
    // after it follows from all of it.
    await graded;
    clock.use(new SimulatedClock(end));
    graded = pipeline.grade(end).then(async ({ cards }) => {
      // Before the evidence, whose leaves take the index along: an index alone is no reason to publish.
      await pipeline.index();
      await pipeline.evidence(end);
      await privateStore.create(doneKey(day), Buffer.from(end.toISOString()));
      options.onDay?.({ day, n: n + 1, of: days.length, observed: seen.probes, paid: seen.paid, cards });
    });
    // Told where it is awaited; until then its failure is not an unhandled one.
    graded.catch(() => {});
  }
  await graded;
  await pipeline.archive(new Date(span.until));
  return span;
}

const BAR = 20;

/** `[#####...............]` */
const bar = (n: number, of: number): string => {
  const filled = Math.round((n / of) * BAR);
  return `[${"#".repeat(filled)}${".".repeat(BAR - filled)}]`;
};

/** Progress on stderr, so that stdout stays for what the command prints: one line rewritten on a terminal, else lines. */
export class Progress {
  readonly #line = new ProgressLine();
  #probes = 0;
  #paid = 0;
  #cards = 0;

  constructor(private readonly shown: boolean) {}

  say(text: string): void {
    if (!this.shown) return;
    this.end();
    say(text);
  }

  day({ day, n, of, observed, paid, cards }: DayProgress): void {
    this.#probes += observed;
    this.#paid += paid;
    this.#cards += cards;
    if (!this.shown) return;
    const text = `day ${n} of ${of} (${day}): ${this.#probes} probes, ${this.#paid} payments, ${this.#cards} cards signed`;
    if (this.#line.isShown) this.#line.show(`${bar(n, of)} ${text}`);
    else if (n % 5 === 0 || n === of) say(text);
  }

  /** Leave the line that is being rewritten. */
  end(): void {
    this.#line.end(true);
  }
}
