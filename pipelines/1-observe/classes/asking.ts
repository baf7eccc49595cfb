import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { Logger, Metrics } from "../../../infra/telemetry.ts";
import { RandomDraws, type Sources } from "../../record/classes/checker.ts";
import type { Mapping } from "../../record/classes/mapping.ts";
import { any, type Checker, type KnownAnswer } from "../../record/classes.ts";
import type { ListedCap } from "../../record/memory.ts";
import { hashOf, keepable } from "../json.ts";
import { draft, type Recorder } from "../recorder.ts";
import type { Declared } from "../terms/declared.ts";
import { type Classing, type ClassMaps, classingOf } from "./classing.ts";

/** What a paid call asks, decided before it is made. */
export interface Asked {
  checker: Checker;
  /** null: no question whose answer we know; an example will do. */
  known: KnownAnswer | null;
  /** The mapping that the question was made with; null where the seller named its class itself. */
  mapping: Mapping | null;
  /**
   * A control input: the mapping is ours and was never seen to work for this endpoint. Said before the call and kept
   * whatever comes: a row that is left out only when it fails would flatter its seller.
   */
  control: boolean;
  /** The mapping stands and is not used: no control input of it passed. */
  dropped: boolean;
}

/**
 * Control inputs that may all fail. Then the mapping is taken for wrong: the endpoint is asked with its own example
 * again, as if nobody had mapped it, until somebody maps it in another way.
 */
const MAX_CONTROLS = 3;
/** Mapped endpoints whose trials are remembered beside what the record says of them. */
const MAX_TRIALS = 100_000;

/** A text to compare mappings by; empty: there is none. */
const wordFor = (mapping: { id: string; dropped: boolean } | null): string =>
  mapping === null ? "" : `${mapping.id}${mapping.dropped ? " dropped" : ""}`;

interface Trial {
  id: string;
  dropped?: boolean;
  controls: number;
  passed: boolean;
}

export interface AskingParts {
  maps: ClassMaps;
  sources: Sources;
  recorder: Recorder;
  metrics: Metrics;
  logger: Pick<Logger, "warn" | "error">;
}

/** Which class an endpoint has, said in the record before the first question of it; and the questions. */
export class Asking {
  readonly #trials = new BoundedMap<string, Trial>(MAX_TRIALS);
  /** What this process wrote down of an endpoint's mapping: the lake may be behind. */
  readonly #told = new BoundedMap<string, string>(MAX_TRIALS);

  constructor(private readonly with_: AskingParts) {}

  /**
   * The question of one paid call. Never throws.
   * @param declared what the endpoint's 402 says of itself, once there is one
   */
  async ask(one: ListedCap, declared: Declared | null, seed: Uint8Array): Promise<Asked> {
    const classing = classingOf(one, declared, this.with_.maps);
    const { checker, mapping } = classing;
    const trial = mapping && this.#trialOf(one, mapping);
    if (trial && !trial.passed && (trial.dropped || trial.controls >= MAX_CONTROLS)) {
      return { checker: any, known: null, mapping, control: false, dropped: true };
    }
    const known = await this.#draw(classing, seed);
    return { checker, known, mapping, control: known !== null && trial !== null && !trial.passed, dropped: false };
  }

  /** How a call ended that asked by a mapping of ours. */
  ended(one: Pick<ListedCap, "cap">, { mapping, known, control }: Asked, passed: boolean): void {
    if (!mapping || !known || !control) return;
    const before = this.#trials.get(one.cap);
    const controls = (before?.id === mapping.id ? before.controls : 0) + 1;
    this.#trials.set(one.cap, { id: mapping.id, controls, passed });
    this.with_.metrics.count("touchstone_observe_class_controls_total", {
      class: mapping.class,
      passed: `${passed}`,
    });
    if (!passed && controls >= MAX_CONTROLS) {
      this.with_.metrics.count("touchstone_observe_class_mappings_dropped_total", { class: mapping.class });
      this.with_.logger.warn(
        { cap: one.cap, class: mapping.class, variant: mapping.variant, by: mapping.by },
        "no control input of a mapping passed: it is taken for wrong, and the endpoint for no member of the class",
      );
    }
  }

  /** How the trials of a mapping ended, by the record, or by this process, which is newer. */
  #trialOf({ cap, mapped }: ListedCap, { id }: Mapping): Trial {
    const kept = mapped?.id === id ? mapped : { controls: 0, passed: false };
    const own = this.#trials.get(cap);
    const mine = own?.id === id ? own : { controls: 0, passed: false };
    const dropped = mapped?.id === id && mapped.dropped;
    return { id, dropped, controls: Math.max(kept.controls, mine.controls), passed: kept.passed || mine.passed };
  }

  async #draw({ checker, variant, mapping, arrange }: Classing, seed: Uint8Array): Promise<KnownAnswer | null> {
    if (variant === null) return null;
    const { metrics, logger, maps } = this.with_;
    const rows = mapping?.rows === undefined ? [] : maps.rows(mapping.rows);
    const row = (draws: Uint8Array) => (rows.length > 0 ? new RandomDraws(draws).pick(rows) : null);
    const sources = { ...this.with_.sources, row };
    try {
      const { draw, answer: own } = checker.variants[variant]!;
      const question = await draw(seed, sources);
      const input = question && arrange(question.fields);
      // A right answer that the record cannot hold could not be checked by anybody afterwards.
      if (!input || keepable(question.truth) === undefined) return null;
      const answer = mapping ? mapping.answer : own;
      return { input, truth: question.truth, class: checker.name, variant, answer };
    } catch (error) {
      // A source of ours that is down: the call is made with the seller's own example.
      metrics.count("touchstone_observe_class_sources_down_total", { class: checker.name });
      logger.warn({ err: error, class: checker.name }, "a question could not be made: its source does not answer");
      return null;
    }
  }

  /**
   * Writes down by which mapping the endpoint is asked from now on, where that is another thing than what stands in the
   * record; before the first payment that is made by it.
   * @throws NotRecorded when the log does not take it: then nothing is paid by it
   */
  async tell({ cap, mapped }: ListedCap, { mapping, dropped }: Asked, clock: Clock): Promise<void> {
    const before = this.#told.get(cap) ?? wordFor(mapped ?? null);
    const now = wordFor(mapping && { id: mapping.id, dropped });
    if (before === now) return;
    const body = { mapping, dropped };
    const slot = hashOf([mapping?.id ?? null, dropped, before]) ?? "";
    await this.with_.recorder.append([draft({ type: "class.mapped", cap, slot, at: clock.now(), body })]);
    this.#told.set(cap, now);
  }
}
