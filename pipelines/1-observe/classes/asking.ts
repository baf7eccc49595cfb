import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { Logger, Metrics } from "../../../infra/telemetry.ts";
import { RandomDraws, type Sources } from "../../record/classes/checker.ts";
import type { Mapping } from "../../record/classes/mapping.ts";
import { anyClass, type Checker, type KnownAnswer } from "../../record/classes.ts";
import type { ListedCap } from "../../record/memory.ts";
import { hashOf, valueIfKeepable } from "../json.ts";
import { createDraft, type Recorder } from "../recorder.ts";
import type { Declared } from "../terms/declared.ts";
import { type ClassMaps, type ClassMatch, matchClass } from "./classing.ts";

/** The question that a paid call asks, which is decided before the call. */
export interface ClassQuestion {
  /** Scores the answer, by the rules of the endpoint's class. */
  checker: Checker;
  /**
   * The question with its known answer; null if there is none. Then the call sends the seller's example, or an input
   * made from a schema.
   */
  known: KnownAnswer | null;
  /**
   * The mapping (how questions of a class are put into requests to the endpoint) that the question was made with; null
   * if the seller named its class itself.
   */
  mapping: Mapping | null;
  /**
   * Is the input a control input? It is if the mapping is ours and no call with it has passed yet. Then the call is a
   * trial of the mapping and never a sample. That is recorded before the call: if only failed trials were left out, the
   * seller would get too good a grade.
   */
  isControl: boolean;
  /** Is there a mapping that is not used, because no control input passed? */
  dropped: boolean;
}

/**
 * After this many control inputs that all failed, a mapping counts as wrong. Then the endpoint is called with its own
 * example, as if it had no mapping, until it gets another mapping.
 */
const MAX_CONTROLS = 3;
/** Largest number of endpoints whose trials this process remembers in addition to the record. */
const MAX_REMEMBERED_ENDPOINTS = 100_000;

/** Makes a text by which two states of a mapping are compared; empty if there is no mapping. */
const mappingStateText = (mapping: { id: string; dropped: boolean } | null): string =>
  mapping === null ? "" : `${mapping.id}${mapping.dropped ? " dropped" : ""}`;

/**
 * The trials of a mapping so far. `id`: the mapping's id; `dropped`: is it recorded that the mapping is no longer used?
 * `controls`: number of control inputs that were sent; `passed`: did one of them pass?
 */
interface MappingTrials {
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
  /** Trials that this process made, by capability id. */
  readonly #trials = new BoundedMap<string, MappingTrials>(MAX_REMEMBERED_ENDPOINTS);
  /**
   * State of the mapping that this process recorded last, by endpoint. The lake (the database from which {@link
   * ListedCap} is read) may not have loaded that record yet.
   */
  readonly #recordedMappings = new BoundedMap<string, string>(MAX_REMEMBERED_ENDPOINTS);

  constructor(private readonly parts: ClassQuestionsParts) {}

  /**
   * Makes the question of one paid call. Never throws.
   * @param declared what the endpoint's 402 declares, or null before there is one
   */
  async createQuestion(endpoint: ListedCap, declared: Declared | null, seed: Uint8Array): Promise<ClassQuestion> {
    const classing = matchClass(endpoint, declared, this.parts.maps);
    const { checker, mapping } = classing;
    const trials = mapping && this.#combineTrials(endpoint, mapping);
    if (trials && !trials.passed && (trials.dropped || trials.controls >= MAX_CONTROLS)) {
      return { checker: anyClass, known: null, mapping, isControl: false, dropped: true };
    }
    const known = await this.#drawQuestion(classing, seed);
    return { checker, known, mapping, isControl: known !== null && trials !== null && !trials.passed, dropped: false };
  }

  /** Counts the result of a call that sent a control input. */
  noteControl(
    endpoint: Pick<ListedCap, "cap">,
    { mapping, known, isControl: control }: ClassQuestion,
    passed: boolean,
  ): void {
    if (!mapping || !known || !control) return;
    const previousTrials = this.#trials.get(endpoint.cap);
    const controls = (previousTrials?.id === mapping.id ? previousTrials.controls : 0) + 1;
    this.#trials.set(endpoint.cap, { id: mapping.id, controls, passed });
    this.parts.metrics.count("touchstone_observe_class_controls_total", {
      class: mapping.class,
      passed: `${passed}`,
    });
    if (!passed && controls >= MAX_CONTROLS) {
      this.parts.metrics.count("touchstone_observe_class_mappings_dropped_total", { class: mapping.class });
      this.parts.logger.warn(
        { cap: endpoint.cap, class: mapping.class, variant: mapping.variant, by: mapping.by },
        "no control input of a mapping passed: it is taken to be wrong, and is not used any more",
      );
    }
  }

  /** Returns the trials of a mapping so far: those in the record, combined with newer ones of this process. */
  #combineTrials({ cap, mapped }: ListedCap, { id }: Mapping): MappingTrials {
    const recordedTrials = mapped?.id === id ? mapped : { controls: 0, passed: false };
    const rememberedTrials = this.#trials.get(cap);
    const ownTrials = rememberedTrials?.id === id ? rememberedTrials : { controls: 0, passed: false };
    const dropped = mapped?.id === id && mapped.dropped;
    return {
      id,
      dropped,
      controls: Math.max(recordedTrials.controls, ownTrials.controls),
      passed: recordedTrials.passed || ownTrials.passed,
    };
  }

  async #drawQuestion(
    { checker, variant, mapping, arrange }: ClassMatch,
    seed: Uint8Array,
  ): Promise<KnownAnswer | null> {
    if (variant === null) return null;
    const { metrics, logger, maps } = this.parts;
    const rows = mapping?.rows === undefined ? [] : maps.rows(mapping.rows);
    const drawRow = (draws: Uint8Array) => (rows.length > 0 ? new RandomDraws(draws).pick(rows) : null);
    const sources = { ...this.parts.sources, row: drawRow };
    try {
      const { draw, answer: variantAnswer } = checker.variants[variant]!;
      const question = await draw(seed, sources);
      const input = question && arrange(question.fields);
      // The right answer must fit into the record; otherwise nobody could check the call afterwards.
      if (!input || valueIfKeepable(question.truth) === undefined) return null;
      const answer = mapping ? mapping.answer : variantAnswer;
      return { input, truth: question.truth, class: checker.name, variant, answer };
    } catch (error) {
      // One of our sources is down, so the call asks no question.
      metrics.count("touchstone_observe_class_sources_down_total", { class: checker.name });
      logger.warn({ err: error, class: checker.name }, "a question could not be made: its source does not answer");
      return null;
    }
  }

  /**
   * Records the mapping that is used for the endpoint from now on, if it differs from the recorded one. It is called
   * before the first payment with that mapping.
   * @throws NotConfirmed when the log does not confirm the record; then no payment is made with the mapping
   */
  async recordMapping({ cap, mapped }: ListedCap, { mapping, dropped }: ClassQuestion, clock: Clock): Promise<void> {
    const previousState = this.#recordedMappings.get(cap) ?? mappingStateText(mapped ?? null);
    const newState = mappingStateText(mapping && { id: mapping.id, dropped });
    if (previousState === newState) return;
    const body = { mapping, dropped };
    const slot = hashOf([mapping?.id ?? null, dropped, previousState]) ?? "";
    await this.parts.recorder.append([createDraft({ type: "class.mapped", cap, slot, at: clock.now(), body })]);
    this.#recordedMappings.set(cap, newState);
  }
}
