import { BoundedMap } from "../../../infra/bounded-map.ts";
import { type NamedCatalogue, toCatalogue } from "../../../infra/catalogues.ts";
import type { Clock } from "../../../infra/clock.ts";
import { forEachConcurrent } from "../../../infra/concurrency.ts";
import { type Egress, withRequestFields } from "../../../infra/egress/egress.ts";
import type { Memory } from "../../record/memory.ts";
import { dayOf } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import type { Hosts } from "../hosts.ts";
import { type HostQueue, INTAKE, INTAKE_AT_ONCE } from "../queue.ts";
import { originOf } from "../urls.ts";
import { addReport, emptyReport, type Intake, type IntakeReport } from "./intake.ts";

/** Time for which a seller's own listing is still read after its endpoints were delisted, ms. */
const READ_AFTER_LEAVING_MS = 30 * 86_400_000;
/** Largest number of origins whose day of the last reading is remembered. */
const MAX_ORIGINS = 100_000;

export interface SellersParts {
  intake: Intake;
  memory: Pick<Memory, "listed" | "readLeftSellerUrls">;
  egress: Egress;
  /**
   * Runs one piece of work at a time for each host. Reading listings has its own limit of hosts, apart from planned
   * calls.
   */
  hostQueue: HostQueue;
  clock: Clock;
  hosts: Hosts;
  /** Stops the reading. Listings that were already read are recorded. */
  signal?: AbortSignal;
}

/**
 * Reads sellers' own listings, each at most once a UTC day unless {@link readSeller} is called, and the catalogues
 * that name them.
 */
export class Sellers {
  /** UTC day of the last reading, by origin. */
  readonly #lastReadDays = new BoundedMap<string, string>(MAX_ORIGINS);
  readonly #egress: Egress;

  constructor(private readonly parts: SellersParts) {
    this.#egress = withRequestFields(parts.egress, { pool: INTAKE });
  }

  /** Reads one seller's own listing now. */
  readSeller(url: string): Promise<IntakeReport> {
    const { intake, hostQueue, clock } = this.parts;
    const origin = originOf(url);
    this.#lastReadDays.set(origin, dayOf(clock.now()));
    return hostQueue.run(hostOf(origin), () => intake.readSeller(origin, clock, this.#egress), INTAKE);
  }

  /**
   * Reads a catalogue if its host is assigned to this observer, and then every seller in it that is assigned to this
   * observer and was not read today.
   */
  async readCatalogue(namedCatalogue: NamedCatalogue): Promise<IntakeReport> {
    const { intake, hosts, clock, signal } = this.parts;
    const { url, kind } = toCatalogue(namedCatalogue);
    if (!hosts.owns(hostOf(url))) return emptyReport();
    if (kind === "seller") return this.#readIfUnreadToday([url], emptyReport());
    const report = await intake.readCatalogue(namedCatalogue, clock, undefined, signal);
    return this.#readIfUnreadToday(
      report.claims.map((claim) => claim.body.normalised_url),
      report,
    );
  }

  /** Selects the catalogues of this observer whose reading stopped early and may continue now. */
  unfinishedCatalogues(namedCatalogues: readonly NamedCatalogue[]): NamedCatalogue[] {
    const { intake, hosts, clock } = this.parts;
    return namedCatalogues.filter((one) => hosts.owns(hostOf(toCatalogue(one).url)) && intake.mayContinue(one, clock));
  }

  /**
   * Reads the own listing of every listed seller that was not read today, so that a 402 is compared with today's
   * listing. It also reads sellers whose endpoints were delisted lately: such a seller may list them again, and perhaps
   * no other source names it.
   */
  async readAllDue(): Promise<IntakeReport> {
    const { memory, intake, clock } = this.parts;
    const listed = await memory.listed();
    intake.rememberListed(listed);
    const leftUrls = await memory.readLeftSellerUrls(clock.now().getTime() - READ_AFTER_LEAVING_MS);
    return this.#readIfUnreadToday([...listed.map((one) => one.url), ...leftUrls], emptyReport());
  }

  async #readIfUnreadToday(urls: readonly string[], report: IntakeReport): Promise<IntakeReport> {
    const { hosts, clock, signal } = this.parts;
    const today = dayOf(clock.now());
    const assignedOrigins = [...new Set(urls.map(originOf))].filter((origin) => hosts.owns(hostOf(origin)));
    const unreadOrigins = assignedOrigins.filter((origin) => this.#lastReadDays.get(origin) !== today);
    await forEachConcurrent(unreadOrigins, INTAKE_AT_ONCE, async (origin) => {
      if (signal?.aborted || !hosts.owns(hostOf(origin))) return;
      addReport(report, await this.readSeller(origin));
    });
    return report;
  }
}
