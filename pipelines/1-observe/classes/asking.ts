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
import { type ClassMaps, type ClassMatch, classMatchOf } from "./classing.ts";

/** What a paid call asks, decided before the call. */
export interface ClassQuestion {
  checker: Checker;
  /** null: there is no question whose answer we know, and the call sends an example. */
  known: KnownAnswer | null;
  /** The mapping that the question was made with; null where the seller named its class itself. */
  mapping: Mapping | null;
  /**
   * A control input: the mapping is ours, and no call by it has passed yet. This is recorded before the call, and the
   * row is never a sample, however it ends: leaving it out only when it fails would flatter the seller.
   */
  control: boolean;
  /** There is a mapping, but it is not used: no control input of it passed. */
  dropped: boolean;
}

/**
 * After this many control inputs, all failed, a mapping is taken to be wrong. The endpoint is then called with its own
 * example, as if it had no mapping, until it gets another one.
 */
const MAX_CONTROLS = 3;
/** Most endpoints whose trials this process remembers beside the record. */
const MAX_TRIALS = 100_000;

/** A text by which two states of a mapping are compared; empty where there is none. */
const wordFor = (mapping: { id: string; dropped: boolean } | null): string =>
  mapping === null ? "" : `${mapping.id}${mapping.dropped ? " dropped" : ""}`;

interface Trial {
  id: string;
  dropped?: boolean;
  controls: number;
  passed: boolean;
}

export interface ClassQuestionsParts {
  maps: ClassMaps;
  sources: Sources;
  recorder: Recorder;
  metrics: Metrics;
  logger: Pick<Logger, "warn" | "error">;
}

/** Determines the class of an endpoint, records it before the first question, and makes the questions. */
export class ClassQuestions {
  readonly #trials = new BoundedMap<string, Trial>(MAX_TRIALS);
  /** Endpoint -> the mapping that this process recorded last, which the lake may not have loaded yet. */
  readonly #told = new BoundedMap<string, string>(MAX_TRIALS);

  constructor(private readonly parts: ClassQuestionsParts) {}

  /**
   * The question of one paid call. Never throws.
   * @param declared what the endpoint's 402 declares, or null before there is one
   */
  async ask(one: ListedCap, declared: Declared | null, seed: Uint8Array): Promise<ClassQuestion> {
    const classing = classMatchOf(one, declared, this.parts.maps);
    const { checker, mapping } = classing;
    const trial = mapping && this.#trialOf(one, mapping);
    if (trial && !trial.passed && (trial.dropped || trial.controls >= MAX_CONTROLS)) {
      return { checker: any, known: null, mapping, control: false, dropped: true };
    }
    const known = await this.#draw(classing, seed);
    return { checker, known, mapping, control: known !== null && trial !== null && !trial.passed, dropped: false };
  }

  /** Notes whether a call passed that sent a control input. */
  ended(one: Pick<ListedCap, "cap">, { mapping, known, control }: ClassQuestion, passed: boolean): void {
    if (!mapping || !known || !control) return;
    const before = this.#trials.get(one.cap);
    const controls = (before?.id === mapping.id ? before.controls : 0) + 1;
    this.#trials.set(one.cap, { id: mapping.id, controls, passed });
    this.parts.metrics.count("touchstone_observe_class_controls_total", {
      class: mapping.class,
      passed: `${passed}`,
    });
    if (!passed && controls >= MAX_CONTROLS) {
      this.parts.metrics.count("touchstone_observe_class_mappings_dropped_total", { class: mapping.class });
      this.parts.logger.warn(
        { cap: one.cap, class: mapping.class, variant: mapping.variant, by: mapping.by },
        "no control input of a mapping passed: it is taken to be wrong, and is not used any more",
      );
    }
  }

  /** Trials of a mapping so far: those in the record together with those of this process, which are newer. */
  #trialOf({ cap, mapped }: ListedCap, { id }: Mapping): Trial {
    const kept = mapped?.id === id ? mapped : { controls: 0, passed: false };
    const own = this.#trials.get(cap);
    const mine = own?.id === id ? own : { controls: 0, passed: false };
    const dropped = mapped?.id === id && mapped.dropped;
    return { id, dropped, controls: Math.max(kept.controls, mine.controls), passed: kept.passed || mine.passed };
  }

  async #draw({ checker, variant, mapping, arrange }: ClassMatch, seed: Uint8Array): Promise<KnownAnswer | null> {
    if (variant === null) return null;
    const { metrics, logger, maps } = this.parts;
    const rows = mapping?.rows === undefined ? [] : maps.rows(mapping.rows);
    const row = (draws: Uint8Array) => (rows.length > 0 ? new RandomDraws(draws).pick(rows) : null);
    const sources = { ...this.parts.sources, row };
    try {
      const { draw, answer: own } = checker.variants[variant]!;
      const question = await draw(seed, sources);
      const input = question && arrange(question.fields);
      // If the record cannot hold the right answer, nobody could check the call afterwards.
      if (!input || keepable(question.truth) === undefined) return null;
      const answer = mapping ? mapping.answer : own;
      return { input, truth: question.truth, class: checker.name, variant, answer };
    } catch (error) {
      // A source of ours is down: the call sends the seller's own example.
      metrics.count("touchstone_observe_class_sources_down_total", { class: checker.name });
      logger.warn({ err: error, class: checker.name }, "a question could not be made: its source does not answer");
      return null;
    }
  }

  /**
   * Records the mapping that the endpoint is called by from now on, if it differs from the recorded one. This happens
   * before the first payment by that mapping.
   * @throws NotRecorded when the log does not take the record: then no payment is made by the mapping
   */
  async tell({ cap, mapped }: ListedCap, { mapping, dropped }: ClassQuestion, clock: Clock): Promise<void> {
    const before = this.#told.get(cap) ?? wordFor(mapped ?? null);
    const now = wordFor(mapping && { id: mapping.id, dropped });
    if (before === now) return;
    const body = { mapping, dropped };
    const slot = hashOf([mapping?.id ?? null, dropped, before]) ?? "";
    await this.parts.recorder.append([draft({ type: "class.mapped", cap, slot, at: clock.now(), body })]);
    this.#told.set(cap, now);
  }
}
