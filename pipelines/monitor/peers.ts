import { Agent, request } from "undici";
import { z } from "zod";
import { Failure } from "../../infra/errors.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { BadNote, MAX_NOTE_BYTES } from "../../infra/tree/note.ts";
import type { History } from "./history.ts";
import { type KeptCheckpoint, MAX_UNPROVEN, type MonitorState } from "./state.ts";

/**
 * Largest number of checkpoints on a page, and most bytes of their notes. A page with only one note may have more
 * bytes.
 */
const PAGE_CHECKPOINTS = 200;
const PAGE_BYTES = 1024 * 1024;
/** Longest answer of a peer, bytes. JSON may need six bytes for one byte of a note. */
const MAX_ANSWER_BYTES = 6 * (PAGE_BYTES + MAX_NOTE_BYTES) + 64 * 1024;
/** Largest number of pages that are fetched from a peer in one round. */
const PAGES_AT_ONCE = 10;
/** Longest time for a request to a peer and its whole answer, ms. */
const REQUEST_TIMEOUT_MS = 15_000;
/** If a peer sends more than this many checkpoints that the log did not sign, this round reads no more from it. */
const MAX_BAD_CHECKPOINTS = 8;

/**
 * Answer to `GET /checkpoints`: with parameter `after`, the checkpoints after that number, oldest first; without it the
 * newest checkpoints, newest first.
 */
export const CheckpointsPage = z.object({
  log: z.string().max(1_000).describe("Origin of the log that this monitor follows."),
  id: z.string().max(64).describe("Random name of this monitor's memory: numbers of another one mean nothing."),
  checkpoints: z
    .array(
      z.object({
        n: z.int().min(1),
        note: z.string().max(MAX_NOTE_BYTES),
        seen_at: z.string().max(40),
        verdict: z.enum(["proven", "unproven", "forked"]),
      }),
    )
    .max(PAGE_CHECKPOINTS),
  next: z.int().min(1).nullable().describe("Value of `after` for the next page; null: this is the last."),
});
export type CheckpointsPage = z.infer<typeof CheckpointsPage>;

/**
 * Makes a page of the stored checkpoints.
 * @param after number of the last checkpoint that the client has; null: the newest checkpoints
 */
export function createCheckpointsPage(state: MonitorState, log: string, after: number | null): CheckpointsPage {
  const candidates = state.readPage(after, PAGE_CHECKPOINTS);
  let bytes = 0;
  const fitting = candidates.filter(({ note }, i) => {
    bytes += note.length;
    return i === 0 || bytes <= PAGE_BYTES;
  });
  const toLine = ({ n, note, seenAt: seen_at, verdict }: KeptCheckpoint) => ({
    n,
    note: note.toString("utf8"),
    seen_at,
    verdict,
  });
  const isLast = fitting.length === candidates.length && candidates.length < PAGE_CHECKPOINTS;
  const next = after === null || isLast ? null : (fitting.at(-1)?.n ?? null);
  return { log, id: state.id, checkpoints: fitting.map(toLine), next };
}

/** Another monitor of the log. Counts the failed requests to it and decides when the next is due. */
export class Peer {
  #failures = 0;
  #retryAt = 0;
  /** Number of checkpoints that were dropped because the log did not sign them. */
  droppedCheckpoints = 0;

  /** @param url address at which the peer answers requests @throws Failure `usage` */
  constructor(readonly url: string) {
    if (!/^https?:\/\/[^\s?#]+$/.test(url)) throw new Failure("usage", `--peer: not an http address: ${url}`);
  }

  get failures(): number {
    return this.#failures;
  }

  /** @param now monotonic time, ms */
  isDue(now: number): boolean {
    return now >= this.#retryAt;
  }

  recordSuccess(): void {
    this.#failures = 0;
  }

  /** @param pauseMs pause after the first of several failures in a row; it doubles with each, to an hour at most */
  recordFailure(now: number, pauseMs: number): void {
    this.#failures++;
    this.#retryAt = now + Math.min(3_600_000, pauseMs * 2 ** (this.#failures - 1));
  }
}

/**
 * Fetches the checkpoints that a peer has received since the last call, and stores those that the log signed. The
 * peer's answers are limited in bytes, pages and time; redirects are not followed.
 * @returns how many are new
 * @throws Failure `unreachable` when the peer does not answer, `tampered` for a malformed answer or forged checkpoints,
 * `failed` when too many unproven checkpoints are stored
 */
export async function pullPeer(
  peer: Peer,
  { state, history, origin, trust }: { state: MonitorState; history: History; origin: string; trust: CheckpointTrust },
): Promise<number> {
  let newCheckpoints = 0;
  let badCheckpoints = 0;
  let { id, after } = state.readPeer(peer.url) ?? { id: "", after: 0 };
  for (let pages = 0; pages < PAGES_AT_ONCE; pages++) {
    const page = await fetchPage(peer.url, after);
    if (page.log !== origin)
      throw new Failure("tampered", `${peer.url} follows ${page.log.slice(0, 200)}, not ${origin}`);
    if (page.id !== id) {
      // The peer has a new state file, so its numbers start again at 1. A page after a number of the old file would leave
      // out the first checkpoints of the new one, so it is not used.
      const isFirstPage = after === 0;
      [id, after] = [page.id, 0];
      state.savePeer(peer.url, { id, after });
      if (!isFirstPage) continue;
    }
    for (const { note } of page.checkpoints) {
      try {
        if (history.keepCheckpoint(Buffer.from(note), trust, peer.url, MAX_UNPROVEN.peers)) newCheckpoints++;
      } catch (error) {
        if (!(error instanceof BadNote)) throw error;
        peer.droppedCheckpoints++;
        if (++badCheckpoints > MAX_BAD_CHECKPOINTS)
          throw new Failure("tampered", `${peer.url} sends checkpoints that ${origin} did not sign`);
      }
    }
    const next = page.next ?? Math.max(after, ...page.checkpoints.map(({ n }) => n));
    const isLast = page.next === null || next <= after;
    after = Math.max(after, next);
    state.savePeer(peer.url, { id, after });
    if (isLast) break;
  }
  if (badCheckpoints > 0)
    throw new Failure("tampered", `${peer.url} sent ${badCheckpoints} checkpoints that ${origin} did not sign`);
  return newCheckpoints;
}

/** Fetches the page of checkpoints after a number. @throws Failure `unreachable`, `tampered` */
async function fetchPage(url: string, after: number): Promise<CheckpointsPage> {
  const address = `${url.replace(/\/+$/, "")}/checkpoints?after=${after}`;
  let text = "";
  // Each page has its own connection: the peer could close an idle connection while this process verifies a page.
  const dispatcher = new Agent({ pipelining: 0 });
  try {
    const answer = await request(address, { dispatcher, signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
    if (answer.statusCode !== 200) throw new Error(`it answered ${answer.statusCode}`);
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
      bytes += chunk.byteLength;
      if (bytes > MAX_ANSWER_BYTES)
        throw new Failure("tampered", `${url} answers with more than ${MAX_ANSWER_BYTES} bytes`);
      chunks.push(chunk);
    }
    text = Buffer.concat(chunks).toString("utf8");
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure("unreachable", `${url} does not answer: ${(error as Error).message}`, { retriable: true });
  } finally {
    await dispatcher.destroy();
  }
  try {
    return CheckpointsPage.parse(JSON.parse(text));
  } catch {
    throw new Failure("tampered", `${url} answers with something else than checkpoints`);
  }
}
