import { BoundedMap } from "../../../infra/bounded-map.ts";
import { asCatalogue, type NamedCatalogue } from "../../../infra/catalogues.ts";
import type { Clock } from "../../../infra/clock.ts";
import { eachAtOnce } from "../../../infra/concurrency.ts";
import { type Egress, saying } from "../../../infra/egress/egress.ts";
import type { Memory } from "../../record/memory.ts";
import { dayOf } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import type { Hosts } from "../hosts.ts";
import { type HostQueue, INTAKE, INTAKE_AT_ONCE } from "../queue.ts";
import { originOf } from "../urls.ts";
import { addReport, emptyReport, type Intake, type IntakeReport } from "./intake.ts";

/** Origins whose day of reading is remembered. */
const MAX_ORIGINS = 100_000;

export interface SellersParts {
  intake: Intake;
  memory: Pick<Memory, "listed">;
  egress: Egress;
  /** One piece of work at a time for a host; listings are read beside the calls, in places of their own. */
  slots: HostQueue;
  clock: Clock;
  hosts: Hosts;
  /** Ends what is read: what was read so far is taken in. */
  signal?: AbortSignal;
}

/** Reads sellers' own listings, each at most once a UTC day, and the catalogues that name them. */
export class Sellers {
  readonly #readOn = new BoundedMap<string, string>(MAX_ORIGINS);
  readonly #egress: Egress;

  constructor(private readonly with_: SellersParts) {
    this.#egress = saying(with_.egress, { pool: INTAKE });
  }

  /** One seller's own listing, now. */
  read(url: string): Promise<IntakeReport> {
    const { intake, slots, clock } = this.with_;
    const origin = originOf(url);
    this.#readOn.set(origin, dayOf(clock.now()));
    return slots.run(hostOf(origin), () => intake.readSeller(origin, clock, this.#egress), INTAKE);
  }

  /** A catalogue, and then every seller in it that was not read today; where observers share the work, its owner does. */
  async readCatalogue(named: NamedCatalogue): Promise<IntakeReport> {
    const { intake, hosts, clock, signal } = this.with_;
    const { url, kind } = asCatalogue(named);
    if (!hosts.owns(hostOf(url))) return emptyReport();
    if (kind === "seller") return this.#readDue([url], emptyReport());
    const report = await intake.readCatalogue(named, clock, undefined, signal);
    return this.#readDue(
      report.claims.map((claim) => claim.body.normalised_url),
      report,
    );
  }

  /** Of these catalogues the ones that are ours to read, broke off, and may go on. */
  cut(named: readonly NamedCatalogue[]): NamedCatalogue[] {
    const { intake, hosts, clock } = this.with_;
    return named.filter((one) => hosts.owns(hostOf(asCatalogue(one).url)) && intake.isCut(one, clock));
  }

  /** Every listed seller that was not read today: what its 402 is held against must be what it says now. */
  async refresh(): Promise<IntakeReport> {
    const listed = await this.with_.memory.listed();
    this.with_.intake.know(listed);
    return this.#readDue(
      listed.map((one) => one.url),
      emptyReport(),
    );
  }

  async #readDue(urls: readonly string[], report: IntakeReport): Promise<IntakeReport> {
    const { hosts, clock, signal } = this.with_;
    const today = dayOf(clock.now());
    const ours = [...new Set(urls.map(originOf))].filter((origin) => hosts.owns(hostOf(origin)));
    const due = ours.filter((origin) => this.#readOn.get(origin) !== today);
    await eachAtOnce(due, INTAKE_AT_ONCE, async (origin) => {
      if (signal?.aborted || !hosts.owns(hostOf(origin))) return;
      addReport(report, await this.read(origin));
    });
    return report;
  }
}
