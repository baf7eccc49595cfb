import type { Clock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { Failure } from "../../infra/errors.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { formatAddCheckpoint, SIZE_CONTENT_TYPE } from "../../infra/tree/add-checkpoint.ts";
import { cosignatureTime, MAX_SKEW_MS } from "../../infra/tree/cosignature.ts";
import { BadNote, COSIGNATURE, lineOf, type NoteKey, parseNote, signatureLine } from "../../infra/tree/note.ts";
import { consistencyProof } from "../../infra/tree/proof.ts";
import { TileReader } from "../../infra/tree/tiles.ts";
import { createObjectFetch } from "../published/reader.ts";
import { parseVerifierKey } from "../published/trust.ts";

/** Address and key of a witness (a service that cosigns checkpoints) that others run (c2sp.org/tlog-witness). */
export interface WitnessAddress {
  /** Name of the witness in metrics and on the status page. */
  name: string;
  /** Public key under which the witness's cosignatures are verified. */
  key: NoteKey;
  /** Submission prefix, to which `/add-checkpoint` is appended. */
  url: string;
}

export interface WitnessesOptions {
  witnesses: readonly WitnessAddress[];
  /** Number of witnesses that have to cosign a checkpoint. */
  quorum: number;
  /** Longest wait for all witnesses together, ms. */
  patienceMs: number;
  /**
   * With fewer cosignatures than the quorum: publish the checkpoint anyway, or hold it until enough witnesses cosigned.
   */
  belowQuorum: "publish" | "hold";
  clock: Clock;
  logger: Logger;
  metrics: Metrics;
}

/**
 * The error when too few witnesses cosigned, and the settings hold the checkpoint back. The next publication asks the
 * witnesses again.
 */
class BelowQuorum extends Failure {
  constructor(size: number, cosignatures: number, quorum: number) {
    super(
      "unwitnessed",
      `the checkpoint of ${size} leaves has ${cosignatures} of ${quorum} cosignatures and is held back`,
      {
        retriable: true,
      },
    );
  }
}

const COSIGNED_GAUGE = "touchstone_witness_cosigned_seconds";

/**
 * How one submission ended. late: no answer in time. down: no connection, or status 429 or 5xx. refused: another
 * status. ahead: the witness cosigned a larger tree. garbage: an invalid answer. failed: any other error, as of our own
 * store.
 */
type SubmissionResult = "cosigned" | "late" | "down" | "refused" | "ahead" | "garbage" | "failed";

/** The error of a submission to a witness that ended without a cosignature. */
class NotCosigned extends Error {
  constructor(
    readonly result: Exclude<SubmissionResult, "cosigned">,
    message: string,
  ) {
    super(message);
  }
}

/** What this process knows of a witness. */
interface WitnessState extends WitnessAddress {
  /** Size of the tree that the witness cosigned last; 0 while unknown. */
  size: number;
  /** Failed submissions in a row. */
  failures: number;
  /** Monotonic time (ms) before which the witness is not asked. */
  notBefore: number;
}

/** Longest answer that is read, bytes. A valid answer to a submission has a few lines. */
const MAX_ANSWER_BYTES = 16 * 1024;
/**
 * Largest number of requests of one submission: one with the tree size that is known here, one with the size that the
 * witness answers, and one more if the witness cosigned a larger tree meanwhile.
 */
const MAX_REQUESTS = 3;
/** Number of failed submissions in a row from which on a witness is asked again only after a pause. */
const MAX_FAILURES_WITHOUT_PAUSE = 3;
const FIRST_PAUSE_MS = 10_000;
const MAX_PAUSE_MS = 10 * 60_000;

/** A checkpoint that the log signed and that is not published yet, and the store with the tiles of its tree. */
export interface Submission {
  /** Text and the log's signature. */
  note: Uint8Array;
  head: { size: number; root: Buffer };
  publicStore: Pick<Store, "get">;
}

/**
 * Submits checkpoints to the configured witnesses, to all at the same time, each with a consistency proof from the
 * tree size that the witness cosigned last. After some failures in a row a witness is asked less often, so that it
 * does not delay publications.
 */
export class Witnesses {
  readonly #witnesses: WitnessState[];

  constructor(private readonly options: WitnessesOptions) {
    this.#witnesses = options.witnesses.map((one) => ({ ...one, size: 0, failures: 0, notBefore: 0 }));
    for (const { name: witness } of this.#witnesses) options.metrics.gauge(COSIGNED_GAUGE, 0, { witness });
  }

  /**
   * Collects the verified cosignature lines that arrive within `patienceMs`.
   * @throws BelowQuorum when they are fewer than `quorum` and `belowQuorum` is `hold`
   */
  async collect(submission: Submission): Promise<string[]> {
    const { clock, patienceMs, quorum, belowQuorum, metrics, logger } = this.options;
    const now = clock.monotonic();
    const signal = AbortSignal.timeout(patienceMs);
    const proveFrom = this.#createProver(submission);
    const witnessesToAsk = this.#witnesses.filter(({ notBefore }) => notBefore <= now);
    const timeout = waitForAbort(signal).then((): never => {
      throw new NotCosigned("late", `no answer within ${patienceMs} ms`);
    });
    timeout.catch(() => undefined);
    const lines = await Promise.all(
      witnessesToAsk.map((witness) =>
        Promise.race([this.#submit(witness, submission, proveFrom, signal), timeout]).then(
          (line) => this.#recordCosignature(witness, submission.head.size, line),
          (error: unknown) => this.#recordFailure(witness, error, signal),
        ),
      ),
    );
    const cosignatures = lines.filter((line) => line !== null);
    metrics.gauge("touchstone_witnesses_missing", Math.max(0, quorum - cosignatures.length));
    if (cosignatures.length < quorum) {
      if (belowQuorum === "hold") throw new BelowQuorum(submission.head.size, cosignatures.length, quorum);
      logger.warn(
        { cosignatures: cosignatures.length, quorum },
        "a checkpoint is published below the quorum of witnesses",
      );
    }
    return cosignatures;
  }

  #recordCosignature(witness: WitnessState, size: number, line: string): string {
    const { clock, metrics } = this.options;
    Object.assign(witness, { size, failures: 0, notBefore: 0 });
    metrics.count("touchstone_witness_submissions_total", { witness: witness.name, result: "cosigned" });
    metrics.gauge(COSIGNED_GAUGE, clock.now().getTime() / 1000, { witness: witness.name });
    return line;
  }

  #recordFailure(witness: WitnessState, error: unknown, signal: AbortSignal): null {
    const { clock, logger, metrics } = this.options;
    witness.failures++;
    const pauses = witness.failures - MAX_FAILURES_WITHOUT_PAUSE;
    if (pauses >= 0)
      witness.notBefore = clock.monotonic() + Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(pauses, 10));
    const result = error instanceof NotCosigned ? error.result : signal.aborted ? "late" : "failed";
    metrics.count("touchstone_witness_submissions_total", { witness: witness.name, result });
    logger.warn({ witness: witness.name, result, failures: witness.failures, err: error }, "a witness did not cosign");
    return null;
  }

  /** Returns a function that makes consistency proofs up to the submission's head. The first proof opens the tiles. */
  #createProver({ head, publicStore }: Submission): (oldSize: number) => Promise<Uint8Array[]> {
    let tiles: Promise<TileReader> | null = null;
    return async (oldSize) => {
      if (oldSize === 0 || oldSize === head.size) return [];
      tiles ??= TileReader.open(head.size, head.root, createObjectFetch(publicStore));
      return consistencyProof(oldSize, head.size, (await tiles).node);
    };
  }

  async #submit(
    witness: WitnessState,
    { note, head }: Submission,
    proveFrom: (old: number) => Promise<Uint8Array[]>,
    signal: AbortSignal,
  ): Promise<string> {
    // A known size above ours comes from another publisher's checkpoint or is wrong. The witness is asked for its
    // size again.
    let oldSize = witness.size > head.size ? 0 : witness.size;
    for (let request = 0; request < MAX_REQUESTS; request++) {
      const body = formatAddCheckpoint({ old: oldSize, proof: await proveFrom(oldSize), checkpoint: note });
      const answer = await post(`${witness.url.replace(/\/+$/, "")}/add-checkpoint`, body, signal);
      if (answer.status === 200) return this.#readCosignature(witness, note, answer.bytes);
      if (answer.status !== 409) {
        const result = answer.status >= 500 || answer.status === 429 ? "down" : "refused";
        throw new NotCosigned(result, `status ${answer.status}`);
      }
      const size = parseSize(answer);
      if (size === null || size === oldSize) throw new NotCosigned("garbage", "status 409 without another size");
      if (size > head.size) throw new NotCosigned("ahead", `it has ${size} leaves, this checkpoint ${head.size}`);
      oldSize = size;
      witness.size = size;
    }
    throw new NotCosigned("garbage", `another size in each of ${MAX_REQUESTS} answers`);
  }

  /**
   * Finds and verifies the witness's cosignature line in its answer; ignores lines of other keys. @throws NotCosigned
   */
  #readCosignature({ key }: WitnessState, note: Uint8Array, answer: Uint8Array): string {
    try {
      const parsedNote = parseNote(Buffer.concat([note, answer]));
      const cosignedAtMs = cosignatureTime(parsedNote, key);
      if (cosignedAtMs === null) throw new NotCosigned("garbage", "no cosignature under its key: was the key changed?");
      const { clock } = this.options;
      if (!clock.simulated && Math.abs(cosignedAtMs - clock.now().getTime()) > MAX_SKEW_MS) {
        throw new NotCosigned("garbage", `cosigned at ${new Date(cosignedAtMs).toISOString()}, which is not now`);
      }
      return signatureLine(key, COSIGNATURE, lineOf(parsedNote, key, COSIGNATURE)!);
    } catch (error) {
      if (error instanceof BadNote) throw new NotCosigned("garbage", error.message);
      throw error;
    }
  }
}

/**
 * Creates the witnesses that the settings name; undefined where they name none.
 * @throws Failure `usage` for an invalid key, or for a quorum above the number of witnesses
 */
export function witnessesOf(
  { witnesses, witnessing }: Pick<Config, "witnesses" | "witnessing">,
  parts: Pick<WitnessesOptions, "clock" | "logger" | "metrics">,
): Witnesses | undefined {
  const { quorum, patience_ms: patienceMs, below_quorum: belowQuorum } = witnessing;
  if (quorum > witnesses.length) {
    throw new Failure("usage", `witnessing.quorum is ${quorum}, and there are ${witnesses.length} witnesses`);
  }
  if (witnesses.length === 0) return undefined;
  const addresses = witnesses.map(({ name, key, url }) => ({ name, url, key: parseVerifierKey(key, COSIGNATURE) }));
  return new Witnesses({ witnesses: addresses, quorum, patienceMs, belowQuorum, ...parts });
}

const waitForAbort = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

interface Answer {
  status: number;
  /** Header `content-type`; empty if there is none. */
  type: string;
  bytes: Buffer;
}

/** Sends a request and reads the answer up to a limit. @throws NotCosigned */
async function post(url: string, body: Uint8Array, signal: AbortSignal): Promise<Answer> {
  try {
    const response = await fetch(url, { method: "POST", body, redirect: "manual", signal });
    const chunks: Uint8Array[] = [];
    let totalBytes = 0;
    for await (const chunk of response.body ?? []) {
      totalBytes += chunk.byteLength;
      if (totalBytes > MAX_ANSWER_BYTES)
        throw new NotCosigned("garbage", `an answer of more than ${MAX_ANSWER_BYTES} bytes`);
      chunks.push(chunk);
    }
    const type = response.headers.get("content-type") ?? "";
    return { status: response.status, type, bytes: Buffer.concat(chunks) };
  } catch (error) {
    if (error instanceof NotCosigned || signal.aborted) throw error;
    const cause = (error as Error).cause;
    throw new NotCosigned("down", cause instanceof Error ? cause.message : (error as Error).message);
  }
}

/** Reads the tree size in the body of a 409 answer; null when it is malformed. */
function parseSize({ type, bytes }: Answer): number | null {
  const text = bytes.toString("latin1");
  const size = Number(text);
  const isSize = type.split(";", 1)[0]!.trim() === SIZE_CONTENT_TYPE && /^(0|[1-9]\d{0,15})\n$/.test(text);
  return isSize && Number.isSafeInteger(size) ? size : null;
}
