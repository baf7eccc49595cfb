import { createHash } from "node:crypto";
import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { type AddCheckpoint, parseAddCheckpoint, SIZE_CONTENT_TYPE } from "../../infra/tree/add-checkpoint.ts";
import { openCheckpoint, parseBody, type TreeHead } from "../../infra/tree/checkpoint.ts";
import { cosignatureLine, MAX_SKEW_MS } from "../../infra/tree/cosignature.ts";
import { computeRoot, sameHash } from "../../infra/tree/hash.ts";
import {
  BadNote,
  COSIGNATURE,
  ED25519,
  formatVkey,
  lineOf,
  type Note,
  type NoteKey,
  parseNote,
  signatureLine,
} from "../../infra/tree/note.ts";
import { verifyConsistency } from "../../infra/tree/proof.ts";
import type { CosignedCheckpoint, WitnessState } from "./state.ts";

/**
 * Answer to a request, with the status codes of c2sp.org/tlog-witness, and 413 and 503 for a request that is too long
 * or cannot be stored.
 */
export interface WitnessAnswer {
  status: 200 | 400 | 403 | 404 | 409 | 413 | 422 | 503;
  body: string | Buffer;
  type: string;
}

const TEXT_TYPE = "text/plain; charset=utf-8";
/** Makes an answer of one line of text. */
export const textAnswer = (status: WitnessAnswer["status"], text: string): WitnessAnswer => ({
  status,
  body: `${text}\n`,
  type: TEXT_TYPE,
});

/** Largest number of logs of one witness. Each log has one row in the state file, and nothing else there grows. */
const MAX_LOGS = 1_000;

/**
 * A witness for any log with checkpoints of c2sp.org/tlog-checkpoint. It cosigns only a checkpoint that the log
 * signed and that extends the checkpoint of that log which it cosigned last (c2sp.org/tlog-witness,
 * `add-checkpoint`). The state file alone decides this, so several processes with one file are one witness.
 */
export class Witness {
  readonly #logs = new Map<string, NoteKey[]>();
  readonly #originByHash = new Map<string, string>();

  /** @param logs keys of the logs; the name of each key is the log's origin, and a log may have several keys */
  constructor(
    private readonly state: WitnessState,
    logs: readonly NoteKey[],
    private readonly clock: Clock,
  ) {
    for (const log of logs) this.#logs.set(log.name, [...(this.#logs.get(log.name) ?? []), log]);
    if (this.#logs.size > MAX_LOGS) throw new Failure("usage", `more than ${MAX_LOGS} logs`);
    for (const origin of this.#logs.keys()) {
      this.#originByHash.set(createHash("sha256").update(origin).digest("hex"), origin);
    }
  }

  /** The verifier key with which others check this witness's cosignatures. */
  get vkey(): string {
    return formatVkey(this.state.signer, COSIGNATURE);
  }

  /** Returns, for each log, when this witness last cosigned a checkpoint of it, unix seconds; 0 for never. */
  lastCosignedSeconds(): [origin: string, seconds: number][] {
    return [...this.#logs.keys()].map((origin) => [origin, this.state.lastCosigned(origin)?.signedS ?? 0]);
  }

  /**
   * Returns the newest cosigned checkpoint of the log whose origin has this sha256 (hex); status 404 when there is
   * none.
   */
  answerNewest(originHash: string): WitnessAnswer {
    const origin = this.#originByHash.get(originHash);
    const lastCosigned = origin === undefined ? null : this.state.lastCosigned(origin);
    return lastCosigned
      ? { status: 200, body: lastCosigned.note, type: TEXT_TYPE }
      : textAnswer(404, "no checkpoint of this log was cosigned");
  }

  /** Answers a request `add-checkpoint`. A cosignature is on the disk before it is returned. */
  answerAddCheckpoint(body: Uint8Array): WitnessAnswer {
    let submission: AddCheckpoint;
    let note: Note;
    let head: TreeHead;
    try {
      submission = parseAddCheckpoint(body);
      note = parseNote(submission.checkpoint);
      head = parseBody(note.text);
    } catch (error) {
      if (error instanceof BadNote) return textAnswer(400, error.message);
      throw error;
    }
    const keys = this.#logs.get(head.origin);
    if (!keys) return textAnswer(404, "this witness does not know the log");
    const [log, ...logs] = keys as [NoteKey, ...NoteKey[]];
    try {
      openCheckpoint(submission.checkpoint, { log, logs });
    } catch (error) {
      if (error instanceof BadNote) return textAnswer(403, error.message);
      throw error;
    }
    if (submission.old > head.size)
      return textAnswer(400, `the old size ${submission.old} is larger than the checkpoint's`);
    return this.state.change(head.origin, (last) => this.#decide(submission, note, head, last));
  }

  #decide(
    { old, proof }: AddCheckpoint,
    note: Note,
    head: TreeHead,
    lastCosigned: CosignedCheckpoint | null,
  ): WitnessAnswer & { next?: CosignedCheckpoint } {
    const size = lastCosigned?.size ?? 0;
    if (old !== size) return { status: 409, body: `${size}\n`, type: SIZE_CONTENT_TYPE };
    const inconsistency = findInconsistency(head, proof, lastCosigned);
    if (inconsistency) return textAnswer(422, inconsistency);
    const nowS = Math.floor(this.clock.now().getTime() / 1000);
    // A cosignature states that no larger tree was cosigned before its time, so the times for one log never go back.
    const signedS = Math.max(nowS, lastCosigned?.signedS ?? 0);
    if ((signedS - nowS) * 1000 > MAX_SKEW_MS) {
      return textAnswer(503, "this witness's clock is behind its last cosignature of this log");
    }
    const line = cosignatureLine(note.text, this.state.signer, new Date(signedS * 1000));
    const logLines = this.#logs.get(head.origin)!.flatMap((key) => {
      const signature = lineOf(note, key, ED25519);
      return signature ? [signatureLine(key, ED25519, signature)] : [];
    });
    const cosignedNote = Buffer.from(`${note.text}\n${logLines.join("")}${line}`);
    return {
      status: 200,
      body: line,
      type: TEXT_TYPE,
      next: { size: head.size, root: head.root, signedS, note: cosignedNote },
    };
  }
}

/** Returns why this tree head does not extend the last cosigned one; null when it does. */
function findInconsistency(
  head: TreeHead,
  proof: readonly Uint8Array[],
  lastCosigned: CosignedCheckpoint | null,
): string | null {
  if (head.size === 0 && !sameHash(head.root, computeRoot([]))) return "not the root of an empty tree";
  if (!lastCosigned || lastCosigned.size === 0) return proof.length > 0 ? "a proof from nothing" : null;
  if (verifyConsistency(lastCosigned.size, head.size, lastCosigned.root, head.root, proof)) return null;
  return lastCosigned.size === head.size
    ? "another root, or a proof, for the size that was cosigned"
    : "the proof does not show that the cosigned tree is the beginning of this one";
}
