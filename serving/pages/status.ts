import { html } from "hono/html";
import type { GaugeValue } from "../../infra/telemetry.ts";
import { DAY_MS, dayOf } from "../../pipelines/record/time.ts";
import type { View } from "../tables/view.ts";
import { simulatedNote } from "./home.ts";
import { page } from "./layout.ts";
import { type Figures, WITHDRAWN_DAYS } from "./status-figures.ts";
import { formatCount, formatTime, NONE } from "./words.ts";

/** Names of the metrics (gauges) of this process that the page shows. */
export const GAUGES = {
  low: "touchstone_wallets_low",
  missed: "touchstone_observe_blind_missed_seconds",
  failing: "touchstone_observe_class_failing",
  witnesses: "touchstone_witness_cosigned_seconds",
} as const;

export interface StatusContent {
  now: Date;
  /** Whether the record's time is simulated, which the page then states. */
  simulated: boolean;
  /** Time since this server last read the record, by the monotonic clock, ms; null when it never did. */
  viewAgeMs: number | null;
  /** When the service's own witness last cosigned the head of the log's tree; null: never, or not known. */
  cosignedAt: Date | null;
  view: View;
  figures: Figures;
  /** Number of urls that wait for a handshake (free probe); null where this server does not know. */
  waitingUrls: number | null;
  /** Number of known orders by state; null where nothing is sold. */
  orders: ReadonlyMap<string, number> | null;
  /**
   * Values of the metrics in {@link GAUGES}, which are those of this process and of the roles of the service that run
   * in it.
   */
  gauges: Record<keyof typeof GAUGES, readonly GaugeValue[]>;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** One part of the service: the age of its newest work, and the age from which it counts as behind. */
interface ServicePart {
  name: string;
  /** What kind of work its newest work is, in words. */
  says: string;
  /** Age of that work, ms; null: none is known. */
  ageMs: number | null;
  /** Time of its newest work, unix ms; null as `ageMs`. */
  newestAt: number | null;
  /** Age above which the part counts as behind, ms. */
  maxAgeMs: number;
}

/** Formats an age, rounded down: `40 s`, `12 min`, `5 h`, `3 days`. */
export function ageWords(ms: number): string {
  if (ms < 2 * MINUTE_MS) return `${Math.max(0, Math.floor(ms / 1000))} s`;
  if (ms < 2 * HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min`;
  if (ms < 2 * DAY_MS) return `${Math.floor(ms / HOUR_MS)} h`;
  return `${Math.floor(ms / DAY_MS)} days`;
}

/** Returns the parts of the service whose age this server knows, in the order in which an observation passes them. */
function partsOf({ now, viewAgeMs, cosignedAt, view, figures }: StatusContent): ServicePart[] {
  const since = (at: number | null) => ({ newestAt: at, ageMs: at === null ? null : now.getTime() - at });
  const day = view.evidence.newestDay;
  // The age of the evidence counts from the end of the newest day that has a file.
  const evidence = day === null ? null : Date.parse(`${day}T00:00:00.000Z`) + DAY_MS;
  return [
    {
      name: "Probes",
      says: "newest handshake with any endpoint",
      ...since(figures.newestProbeMs),
      maxAgeMs: 6 * HOUR_MS,
    },
    {
      name: "Live figures",
      says: "when prices and counts were last put together",
      ...since(view.volatile.madeAt),
      maxAgeMs: 5 * MINUTE_MS,
    },
    { name: "Grades", says: "newest card", ...since(figures.newestCardMs), maxAgeMs: 36 * HOUR_MS },
    {
      name: "Checkpoint",
      says: "newest signature of the witness",
      ...since(cosignedAt === null ? null : cosignedAt.getTime()),
      maxAgeMs: 15 * MINUTE_MS,
    },
    { name: "Evidence", says: "end of the newest day that has a file", ...since(evidence), maxAgeMs: 3 * DAY_MS },
    {
      name: "This server",
      says: "last look at the record",
      newestAt: viewAgeMs === null ? null : now.getTime() - viewAgeMs,
      ageMs: viewAgeMs,
      maxAgeMs: MINUTE_MS,
    },
  ];
}

const isBehind = ({ ageMs, maxAgeMs }: ServicePart): boolean => ageMs === null || ageMs > maxAgeMs;

const stateWords = (part: ServicePart): string =>
  part.ageMs === null ? "none yet" : isBehind(part) ? "behind" : "in time";

const partRow = (
  part: ServicePart,
): unknown => html`<tr><th scope="row">${part.name}</th><td>${part.says}</td><td>${formatTime(part.newestAt)}</td>
<td class="n">${part.ageMs === null ? NONE : ageWords(part.ageMs)}</td><td class="n">${ageWords(part.maxAgeMs)}</td><td><strong>${stateWords(part)}</strong></td></tr>`;

/**
 * Returns the number of orders in each state, such as `12 settled, 3 released`, the most first. The text does not show
 * whose orders they are.
 */
function ordersWords(orders: StatusContent["orders"]): string {
  if (orders === null) return "none are taken here";
  const sorted = [...orders].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
  return sorted.length === 0 ? "none yet" : sorted.map(([state, n]) => `${n} ${state.replaceAll("_", " ")}`).join(", ");
}

const UNKNOWN = "not known to this server";

/** Returns how many balances of the service's wallets are low. The text does not show which wallets they are. */
function walletWords({ gauges }: StatusContent): string {
  const [low] = gauges.low;
  if (!low) return UNKNOWN;
  return low.value === 0 ? "none is low" : `${formatCount(low.value, "balance")} ${low.value === 1 ? "is" : "are"} low`;
}

/**
 * Describes whether the planned share of blind calls was reached today. A blind call is paid by a wallet that a seller
 * cannot know to be the service's.
 */
function blindWords({ gauges, now }: StatusContent): string {
  const [missed] = gauges.missed;
  if (!missed) return UNKNOWN;
  return missed.value > 0 && dayOf(new Date(missed.value * 1000)) === dayOf(now)
    ? "not kept today: a call could not be made, by our own fault, and the record says so"
    : "kept today, as far as this server knows";
}

/**
 * A witness is late when its last cosignature is older than this, ms. The log has a new checkpoint to cosign at least
 * every ten minutes.
 */
const MAX_COSIGNATURE_AGE_MS = 15 * MINUTE_MS;

/** Names the independent witnesses that are late. */
function witnessWords({ gauges, now }: StatusContent): string {
  const { witnesses } = gauges;
  if (witnesses.length === 0) return "none is asked by this server";
  const lateWitnesses = witnesses.filter(({ value }) => now.getTime() - value * 1000 > MAX_COSIGNATURE_AGE_MS);
  if (lateWitnesses.length === 0) return `${formatCount(witnesses.length, "witness", "witnesses")}, all in time`;
  return lateWitnesses
    .map(({ labels, value }) => {
      const since = value === 0 ? "since this server started" : `for ${ageWords(now.getTime() - value * 1000)}`;
      return `${labels.witness} has cosigned nothing ${since}`;
    })
    .join("; ");
}

/**
 * Names the classes of endpoints with calls that were withdrawn because our check was wrong, so that they do not count
 * against any seller; and the classes in which no payee has passed today.
 */
function classWords({ figures: { withdrawn }, gauges }: StatusContent): unknown {
  const failing = gauges.failing.filter(({ value }) => value > 0);
  const lines = [
    ...[...withdrawn].map(
      ([name, { calls, since }]) =>
        html`${name}: ${formatCount(calls, "call")} withdrawn since ${formatTime(Date.parse(since))}`,
    ),
    ...failing.map(
      ({ labels, value }) => html`${labels.class}: nobody of ${formatCount(value, "payee")} passed so far today`,
    ),
  ];
  if (lines.length === 0) return `none in ${WITHDRAWN_DAYS} days`;
  return html`<ul class="says">${lines.map((one) => html`<li>${one}</li>`)}</ul>`;
}

/**
 * Renders the status page: how fresh each part is, from what this server reads. Facts that only the operator may see
 * are on no public page.
 */
export function statusPage(status: StatusContent): string {
  const { view, figures, viewAgeMs, waitingUrls, simulated } = status;
  const parts = partsOf(status);
  const partsBehind = parts.filter(isBehind);
  const leavesAfterFigures = view.size - view.volatile.treeSize;
  const verdict =
    viewAgeMs === null
      ? "The record has not been read yet: nothing is answered until it is."
      : partsBehind.length === 0
        ? "Everything that this server can see is up to date."
        : `${formatCount(partsBehind.length, "part")} ${partsBehind.length === 1 ? "is" : "are"} behind, or ${partsBehind.length === 1 ? "has" : "have"} done nothing yet: ${partsBehind.map(({ name }) => name.toLowerCase()).join(", ")}.`;
  const body = html`<h1>Status of the service</h1><p class="lead" role="status">${verdict}</p>${simulatedNote(simulated)}
<section aria-labelledby="parts" class="rule"><h2 id="parts">How fresh each part is</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Parts of the service"><table class="leaders"><caption>In the order in which an observation passes them, as of ${formatTime(status.now.getTime())}.</caption>
<thead><tr><th scope="col">Part</th><th scope="col">Newest</th><th scope="col">When</th><th scope="col" class="n">Age</th><th scope="col" class="n">In time up to</th><th scope="col">State</th></tr></thead>
<tbody>${parts.map(partRow)}</tbody></table></div></section>
<section aria-labelledby="holds" class="rule"><h2 id="holds">What it holds</h2><dl>
<dt>Leaves of the log</dt><dd>${view.size}${leavesAfterFigures > 0 ? `, ${leavesAfterFigures} of them newer than the live figures` : ""}</dd>
<dt>Endpoints listed</dt><dd>${figures.listedCount}, ${figures.letteredCount} of them with a letter</dd>
<dt>Endpoints probed</dt><dd>${figures.probedCount}, ${figures.probedTodayCount} of them within a day</dd>
<dt>Urls in line</dt><dd>${waitingUrls === null ? "not known to this server" : `${waitingUrls} that somebody asked about`}</dd>
<dt>Orders</dt><dd>${ordersWords(status.orders)}</dd>
<dt><a href="/docs/witness">Witnesses</a></dt><dd>${witnessWords(status)}</dd>
<dt>Wallets</dt><dd>${walletWords(status)}</dd>
<dt>Share of <a href="/docs/schedule">blind calls</a></dt><dd>${blindWords(status)}</dd>
<dt><a href="/docs/classes">Classes</a> withdrawn</dt><dd>${classWords(status)}</dd>
<dt>Log</dt><dd><code>${view.origin}</code></dd></dl></section>
<p class="soft small">A probe that fails is a fact about an endpoint, and is on its page. Whether the log kept its promises is not for us to
say: <a href="/docs/audit">audit it</a>. For machines: <code>/readyz</code> is 200 while the record is followed.</p>`;
  return page({ title: partsBehind.length === 0 ? "Status: in time" : "Status: something is behind", body });
}
