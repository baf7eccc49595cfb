import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { runs } from "../../helpers/programs.ts";
import { ORIGIN } from "../../helpers/public-record.ts";
import { MUL, SUM, WatcherTestbed, watch } from "../../helpers/watchers.ts";

const CARDS = 60;
const KILLS = 8;

let bed: WatcherTestbed;
const children: ChildProcess[] = [];
beforeEach(async () => {
  bed = await WatcherTestbed.open();
});
afterEach(async () => {
  for (const child of children.splice(0)) await kill(child);
  await bed.close();
});

/** A process group of its own, so that nothing of it survives. */
function start(): ChildProcess {
  const args = [...runs("test/pipelines/6-notify/watcher-child.ts"), bed.dir, join(bed.dir, "log"), ORIGIN];
  const child = spawn(process.execPath, args, { detached: true, stdio: ["ignore", "ignore", "inherit"] });
  children.push(child);
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  process.kill(-child.pid!, "SIGKILL");
  await exited;
}

test("kill -9 at any moment, and two processes at once: every card comes, in order; what was recorded comes once", async () => {
  const serving = await bed.serving();
  const receiver = await bed.receiver();
  await watch(serving, receiver.url, [SUM.url, MUL.url]);
  for (let i = 0; i < CARDS; i++) await bed.card(i % 3 ? SUM : MUL, { composite: i / 100 });
  // A little slow, so that kills meet attempts under way.
  receiver.answer = (response) => void setTimeout(() => response.writeHead(204).end(), 15);
  const recordedAt: number[] = [];
  for (let n = 0; n < KILLS; n++) {
    const before = receiver.notices.length;
    const child = start();
    // Another one beside it, every other time.
    const second = n % 2 ? start() : null;
    await expect.poll(() => receiver.notices.length, { timeout: 120_000 }).toBeGreaterThan(before + (n % 4));
    await kill(child);
    if (second) await kill(second);
    const recorded = (await bed.told()).filter(({ type }) => type === "watcher.delivered").length;
    recordedAt.push(recorded);
    // What is on record before a start is not sent after it.
    const rest = receiver.notices.length;
    const done = new Set(
      (await bed.told()).flatMap(({ type, body }) => (type === "watcher.delivered" ? [body.notice] : [])),
    );
    const next = start();
    await expect
      .poll(() => receiver.notices.length > rest || receiver.ids.length === CARDS, { timeout: 120_000 })
      .toBe(true);
    await kill(next);
    expect(receiver.notices.slice(rest).filter(({ id }) => done.has(id))).toEqual([]);
  }
  start();
  // Two processes at once may both record one notice: each of the cards has to be on record.
  const delivered = async () =>
    new Set((await bed.told()).flatMap(({ type, body }) => (type === "watcher.delivered" ? [body.notice] : []))).size;
  await expect.poll(delivered, { timeout: 120_000 }).toBe(CARDS);
  expect(receiver.ids).toHaveLength(CARDS);
  for (const spec of [SUM, MUL]) {
    const first = receiver.ids.map((id) => receiver.notices.find((one) => one.id === id)!.body);
    const seqs = first.filter(({ asked }) => asked === spec.url).map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.map((_, i) => i + 1));
  }
  expect(receiver.notices.every(({ signedBy }) => signedBy.length === 2)).toBe(true);
  expect(recordedAt.at(-1)).toBeGreaterThan(0);
});
