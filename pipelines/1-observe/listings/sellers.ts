import type { Clock } from "../../../infra/clock.ts";
import { eachAtOnce } from "../../../infra/concurrency.ts";
import type { Memory } from "../../record/memory.ts";
import { dayOf } from "../../record/time.ts";
import { BoundedMap } from "../bounded.ts";
import type { Hosts } from "../hosts.ts";
import type { HostQueue } from "../queue.ts";
import { hostOf, originOf } from "../urls.ts";
import { addReport, emptyReport, type Intake, type IntakeReport } from "./intake.ts";

/** Origins whose day of reading is remembered. */
const MAX_ORIGINS = 100_000;

/** Reads sellers' own listings, each at most once a UTC day, and the catalogues that name them. */
export class Sellers {
  readonly #readOn = new BoundedMap<string, string>(MAX_ORIGINS);

  constructor(
    private readonly intake: Intake,
    private readonly memory: Pick<Memory, "listed">,
    private readonly slots: HostQueue,
    private readonly atOnce: number,
    private readonly clock: Clock,
    private readonly hosts: Hosts,
  ) {}

  /** One seller's own listing, now. */
  read(url: string): Promise<IntakeReport> {
    const origin = originOf(url);
    this.#readOn.set(origin, dayOf(this.clock.now()));
    return this.slots.run(hostOf(origin), () => this.intake.readSeller(origin, this.clock));
  }

  /** A catalogue, and then every seller in it that was not read today; where observers share the work, its owner does. */
  async readCatalogue(url: string): Promise<IntakeReport> {
    if (!this.hosts.owns(hostOf(url))) return emptyReport();
    const report = await this.intake.readCatalogue(url, this.clock);
    return this.#readDue(
      report.claims.map((claim) => claim.body.normalised_url),
      report,
    );
  }

  /** Every listed seller that was not read today: what its 402 is held against must be what it says now. */
  async refresh(): Promise<IntakeReport> {
    const listed = await this.memory.listed();
    this.intake.know(listed);
    return this.#readDue(
      listed.map((one) => one.url),
      emptyReport(),
    );
  }

  async #readDue(urls: readonly string[], report: IntakeReport): Promise<IntakeReport> {
    const today = dayOf(this.clock.now());
    const ours = [...new Set(urls.map(originOf))].filter((origin) => this.hosts.owns(hostOf(origin)));
    const due = ours.filter((origin) => this.#readOn.get(origin) !== today);
    await eachAtOnce(due, this.atOnce, async (origin) => {
      if (!this.hosts.owns(hostOf(origin))) return;
      addReport(report, await this.read(origin));
    });
    return report;
  }
}
