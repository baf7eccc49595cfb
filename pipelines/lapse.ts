import type { Clock } from "../infra/clock.ts";
import { LapsedClock, type SwitchedClock } from "../infra/clock.ts";
import type { Store } from "../infra/store/store.ts";
import type { Pipeline } from "./pipeline.ts";
import { addDays, dayOf, dayStart } from "./record/time.ts";

export interface LapseOptions {
  /** Length of the past that is lived through; the last day is today and ends now. */
  days: number;
  /** Catalogues that are read at the start of every day. */
  catalogues: readonly string[];
  /** Catalogues that are read on the last days only, today included: who is in them has joined late. */
  newcomers?: readonly { url: string; days: number }[];
  signal?: AbortSignal;
  onDay?: (progress: LapseProgress) => void;
}

export interface LapseProgress {
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

const SPAN_KEY = "lapse/span.json";
const doneKey = (day: string): string => `lapse/done/${day}`;

/**
 * Where the lapse begins and ends, fixed by its first start: a start after a crash goes on in the same past, so that no
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
export async function lapseDone(privateStore: Store): Promise<boolean> {
  const known = await privateStore.get(SPAN_KEY);
  if (!known) return false;
  const { until } = JSON.parse(Buffer.from(known.bytes).toString("utf8")) as Span;
  return (await privateStore.head(doneKey(dayOf(new Date(until))))) !== null;
}

/** Which catalogues are read `left` days before the end of today. */
const cataloguesOn = ({ catalogues, newcomers = [] }: LapseOptions, left: number): string[] => [
  ...catalogues,
  ...newcomers.flatMap(({ url, days }) => (left <= days ? [url] : [])),
];

/**
 * Live through the past day by day on the base schedule: plan, observe, ingest, grade, publish. The record's clock is
 * lapsed; chain time is real. A day that was cut off is done again from its beginning: slots that are in the log
 * already are skipped by their event ids, so nothing is observed or paid twice.
 */
export async function lapse(
  pipeline: Pipeline,
  privateStore: Store,
  clock: SwitchedClock,
  real: Clock,
  options: LapseOptions,
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
    clock.use(new LapsedClock(dayStart(day)));
    await pipeline.intake(cataloguesOn(options, total - n));
    const plan = await pipeline.plan(day);
    const until = day === last ? new Date(end.getTime() - LEEWAY_MS) : end;
    const seen = await pipeline.observe(plan, dayStart(day), until);
    // What today brought is taken into the lake by the grade and by tomorrow's intake, whichever comes first: the plan
    // after it follows from all of it.
    await graded;
    clock.use(new LapsedClock(end));
    graded = pipeline.grade(end).then(async ({ cards }) => {
      // Before the evidence, whose leaves take the index along: an index alone is no reason to publish.
      await pipeline.index();
      await pipeline.evidence(end);
      await privateStore.create(doneKey(day), Buffer.from(end.toISOString()));
      options.onDay?.({ day, n: n + 1, of: total, observed: seen.knocks, paid: seen.paid, cards });
    });
    // Told where it is awaited; until then its failure is not an unhandled one.
    graded.catch(() => {});
  }
  await graded;
  return span;
}
