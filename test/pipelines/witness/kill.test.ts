import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterEach, beforeEach, expect, test } from "vitest";
import { cosignatureTime } from "../../../infra/tree/cosignature.ts";
import { COSIGNATURE, parseNote, parseVkey } from "../../../infra/tree/note.ts";
import { noteSigner, SmallLog } from "../../helpers/witnessed.ts";

/** SIGKILL of the witness's process group at every write: what the parent was answered decides what may be signed after. */
const log = new SmallLog(noteSigner("log.example/one", 11));
let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "witness-kill-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

interface Answer {
  status: number;
  body: string;
}

/** A child; `ask` answers null once it is dead. */
class Child {
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  vkey = "";

  constructor(...args: string[]) {
    const run = ["--import", "tsx", join(import.meta.dirname, "child.ts"), dir, ...args];
    this.#process = spawn(process.execPath, run, { detached: true, stdio: ["pipe", "pipe", "inherit"] });
    this.#process.stdin!.on("error", () => undefined);
    this.#lines = createInterface({ input: this.#process.stdout! })[Symbol.asyncIterator]();
  }

  async start(): Promise<this> {
    this.vkey = (JSON.parse((await this.#lines.next()).value as string) as { vkey: string }).vkey;
    return this;
  }

  async ask(body: Buffer): Promise<Answer | null> {
    this.#process.stdin!.write(`${body.toString("base64")}\n`);
    const { done, value } = await this.#lines.next();
    return done ? null : (JSON.parse(value) as Answer);
  }

  kill(): void {
    process.kill(-this.#process.pid!, "SIGKILL");
  }
}

/** Sizes of the two histories: they part after 4 leaves. */
const FORK_AT = 4;

/** Everything that a parent was given, each line verified; no two of them may be of two histories. */
class Oracle {
  readonly given: { size: number; fork: string }[] = [];

  take(vkey: string, size: number, fork: string, answer: Answer | null): void {
    if (answer?.status !== 200) return;
    const note = Buffer.concat([log.note(size, log.leaves(size, fork, FORK_AT)), Buffer.from(answer.body)]);
    expect(cosignatureTime(parseNote(note), parseVkey(vkey, COSIGNATURE))).not.toBeNull();
    this.given.push({ size, fork });
  }

  holds(): void {
    const parted = this.given.filter(({ size }) => size > FORK_AT);
    expect(new Set(parted.map(({ fork }) => fork)).size).toBeLessThanOrEqual(1);
    const sizes = this.given.map(({ size }) => size);
    expect(sizes).toEqual([...sizes].sort((a, b) => a - b));
  }
}

/** Asks for `size` of a history, after the size that the witness says it has. */
async function push(child: Child, oracle: Oracle, size: number, fork: string): Promise<Answer | null> {
  let old = 0;
  for (let i = 0; i < 3; i++) {
    const answer = await child.ask(log.request(old, size, fork, FORK_AT));
    oracle.take(child.vkey, size, fork, answer);
    if (answer?.status !== 409 || Number(answer.body) > size) return answer;
    old = Number(answer.body);
  }
  throw new Error("the witness names one size after another");
}

test.each([
  // The second change is from 4 leaves to 6, where the histories part. A 409 begins a change, and signs nothing.
  ["begun", 3, null],
  ["signed", 2, null],
  ["written", 2, null],
  ["committed", 2, 6],
] as const)("killed when it has %s", async (step, n, kept) => {
  const oracle = new Oracle();
  const first = await new Child(step, String(n)).start();
  expect((await push(first, oracle, 4, ""))?.status).toBe(200);
  expect(await push(first, oracle, 6, "")).toBeNull();
  const second = await new Child().start();
  expect(second.vkey).toBe(first.vkey);
  // The other history now: it is signed only where nothing of the first was kept.
  const other = await push(second, oracle, 7, "fork");
  expect(other?.status).toBe(kept === null ? 200 : 422);
  const again = await push(second, oracle, 8, "");
  expect(again?.status).toBe(kept === null ? 422 : 200);
  oracle.holds();
  second.kill();
});

test("killed at any moment, fifteen times, while two histories are offered", async () => {
  const oracle = new Oracle();
  let size = FORK_AT;
  for (let round = 0; round < 15; round++) {
    const child = await new Child().start();
    let timer: NodeJS.Timeout | undefined;
    // At any moment of its first answers; or after some, of which each round then has one that is signed.
    const killSoon = () => {
      timer ??= setTimeout(() => child.kill(), round * 7);
    };
    if (round % 4 < 2) killSoon();
    for (let alive = true; alive; size++) {
      const answers = [
        await push(child, oracle, size, round % 2 ? "fork" : ""),
        await push(child, oracle, size, round % 2 ? "" : "fork"),
      ];
      alive = answers[1] !== null;
      killSoon();
    }
    clearTimeout(timer);
  }
  oracle.holds();
  expect(oracle.given.length).toBeGreaterThan(5);
});
