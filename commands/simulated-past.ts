import { type Clock, SimulatedClock, type SwitchedClock } from "../infra/clock.ts";
import type { Store } from "../infra/store/store.ts";
import { addDays, dayOf, dayStart } from "../pipelines/record/time.ts";
import type { Pipeline } from "../pipelines/roles/pipeline.ts";

export interface PastOptions {
  /** Length of the past that is lived through; the last day is today and ends now. */
  days: number;
  /** Catalogues that are read at the start of every day. */
  catalogues: readonly string[];
  /** Catalogues that are read on the last days only, today included: who is in them has joined late. */
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
  const span: Span = { from: addDays(dayOf(until), -(days - 1)), until: until.toISOString() };
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

/** Which catalogues are read `left` days before the end of today. */
const cataloguesOn = ({ catalogues, newcomers = [] }: PastOptions, left: number): string[] => [
  ...catalogues,
  ...newcomers.flatMap(({ url, days }) => (left <= days ? [url] : [])),
];

/**
 * Live through the past day by day on the base schedule: plan, observe, ingest, grade, publish. The record's clock is
 * simulated; chain time is real. A day that was cut off is done again from its beginning: slots that are in the log
 * already are skipped by their event ids, so nothing is observed or paid twice.
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
  const total = Math.round((dayStart(last).getTime() - dayStart(span.from).getTime()) / 86_400_000) + 1;
  // Yesterday is graded and published while today is observed: a run reads no row of a later moment than its own.
  let graded = Promise.resolve();
  for (let n = 0; n < total; n++) {
    options.signal?.throwIfAborted();
    const day = addDays(span.from, n);
    if (await privateStore.head(doneKey(day))) continue;
    const end = day === last ? new Date(span.until) : new Date(dayStart(addDays(day, 1)).getTime() - 1);
    clock.use(new SimulatedClock(dayStart(day)));
    await pipeline.intake(cataloguesOn(options, total - n));
    const plan = await pipeline.plan(day);
    const until = day === last ? new Date(end.getTime() - LEEWAY_MS) : end;
    const seen = await pipeline.observe(plan, dayStart(day), until);
    // What today brought is taken into the lake by the grade and by tomorrow's intake, whichever comes first: the plan
    // after it follows from all of it.
    await graded;
    clock.use(new SimulatedClock(end));
    graded = pipeline.grade(end).then(async ({ cards }) => {
      // Before the evidence, whose leaves take the index along: an index alone is no reason to publish.
      await pipeline.index();
      await pipeline.evidence(end);
      await privateStore.create(doneKey(day), Buffer.from(end.toISOString()));
      options.onDay?.({ day, n: n + 1, of: total, observed: seen.probes, paid: seen.paid, cards });
    });
    // Told where it is awaited; until then its failure is not an unhandled one.
    graded.catch(() => {});
  }
  await graded;
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
  readonly #tty = process.stderr.isTTY === true;
  #open = false;
  #probes = 0;
  #paid = 0;
  #cards = 0;

  constructor(private readonly shown: boolean) {}

  say(text: string): void {
    if (!this.shown) return;
    this.end();
    process.stderr.write(`${text}\n`);
  }

  day({ day, n, of, observed, paid, cards }: DayProgress): void {
    this.#probes += observed;
    this.#paid += paid;
    this.#cards += cards;
    if (!this.shown) return;
    const text = `day ${n} of ${of} (${day}): ${this.#probes} probes, ${this.#paid} payments, ${this.#cards} cards signed`;
    if (this.#tty) process.stderr.write(`\r\x1b[K${bar(n, of)} ${text}`.slice(0, (process.stderr.columns ?? 120) + 3));
    else if (n % 5 === 0 || n === of) process.stderr.write(`${text}\n`);
    this.#open = this.#tty;
  }

  /** Leave the line that is being rewritten. */
  end(): void {
    if (this.#open) process.stderr.write("\n");
    this.#open = false;
  }
}
