import { expect, it } from "vitest";
import { BoundedThread, OutOfBounds } from "../../infra/bounded-thread.ts";

/** A thread that answers, spins, sleeps, fills its memory, dies, or dies only the first time. */
const TEXT = `
import { readlinkSync } from "node:fs";
import { parentPort } from "node:worker_threads";
const taskOf = () => { try { return Number(readlinkSync("/proc/thread-self").split("/").at(-1)); } catch { return null; } };
let n = 0;
parentPort.on("message", ({ what, once, ms }) => {
  n++;
  if (what === "spin") for (;;);
  if (what === "backtrack") /^(a+)+$/.test("a".repeat(50) + "b");
  if (what === "sleep") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  if (what === "fill") for (const all = []; ; ) all.push(new Array(100_000).fill(n));
  if (what === "die" || (what === "die once" && Atomics.add(once, 0, 1) === 0)) process.exit(1);
  parentPort.postMessage({ what, n });
});
parentPort.postMessage({ ready: taskOf() });
`;
const file = (text: string) => new URL(`data:text/javascript,${encodeURIComponent(text)}`);
const open = (maxWaiting = 100, text = TEXT) =>
  new BoundedThread(file(text), { does: "answers", memory: { maxOldGenerationSizeMb: 32 }, maxWaiting });
const limits = (cpuMs = 200, urgent = true) => ({ cpuMs, urgent });

it.each(["spin", "backtrack", "fill", "die"])(
  "%s: that question has no answer, everybody else's was asked again and has one",
  async (what) => {
    const thread = open();
    const bad = thread.ask({ what }, limits(what === "fill" ? 60_000 : 200)).catch((error: unknown) => error);
    const good = Array.from({ length: 5 }, () => thread.ask({ what: "ok" }, limits()));
    expect(await bad).toBeInstanceOf(OutOfBounds);
    expect(await Promise.all(good)).toEqual([1, 2, 3, 4, 5].map((n) => ({ what: "ok", n })));
    expect(await thread.ask({ what: "later" }, limits())).toEqual({ what: "later", n: 6 });
  },
);

it("asks again what the thread died under once: that may have been anything", async () => {
  const thread = open();
  const once = new Int32Array(new SharedArrayBuffer(4));
  expect(await thread.ask({ what: "die once", once }, limits())).toEqual({ what: "die once", n: 1 });
});

it("gives a question up for the processor's time, and not for the clock's", async () => {
  // Sleeps without using a processor for ten times its limit, as where others have it.
  expect(await open().ask({ what: "sleep", ms: 2_000 }, limits(200))).toMatchObject({ what: "sleep" });
});

it("a stall of our own is no reason to give a question up", async () => {
  const thread = open();
  await thread.ask({ what: "ok" }, limits());
  const asked = thread.ask({ what: "sleep", ms: 100 }, limits(20));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
  expect(await asked).toMatchObject({ what: "sleep" });
});

it("answers what is urgent first", async () => {
  const thread = open();
  const order: string[] = [];
  const ask = (name: string, urgent: boolean) =>
    thread.ask({ what: name }, limits(200, urgent)).then(() => void order.push(name));
  await Promise.all([ask("a", false), ask("b", false), ask("c", true), ask("d", true)]);
  expect(order).toEqual(["c", "d", "a", "b"]);
});

it("no more may wait than it was told, and none of them is lost", async () => {
  const thread = open(3);
  const asked = Array.from({ length: 5 }, () => thread.ask({ what: "ok" }, limits()).catch(String));
  const said = await Promise.all(asked);
  expect(said.filter((one) => typeof one === "object")).toHaveLength(3);
  expect(said.slice(3)).toEqual(Array(2).fill("Error: more than 3 questions wait for a thread that answers"));
});

it("where no thread can be begun everybody is told so, which is nothing about the question", async () => {
  const thread = open(100, 'throw new Error("no loader")');
  const asked = [1, 2].map(() => thread.ask({ what: "ok" }, limits()).catch((error: unknown) => error));
  for (const error of await Promise.all(asked)) {
    expect(error).not.toBeInstanceOf(OutOfBounds);
    expect(String(error)).toMatch(/a thread that answers cannot be begun: no loader/);
  }
  await expect(thread.ask({ what: "ok" }, limits())).rejects.toThrow(/cannot be begun/);
});

it("what cannot be cloned is its asker's fault alone", async () => {
  const thread = open();
  const bad = thread.ask({ what: () => 1 }, limits()).catch((error: Error) => error.name);
  expect(await Promise.all([bad, thread.ask({ what: "ok" }, limits())])).toEqual([
    "DataCloneError",
    { what: "ok", n: 1 },
  ]);
});
