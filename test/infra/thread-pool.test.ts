import { afterEach, expect, it } from "vitest";
import { AskedThread, ThreadPool } from "../../infra/thread-pool.ts";

const TEXT = `
import { parentPort } from "node:worker_threads";
parentPort.on("message", ({ ask, what, bytes }) => {
  if (what === "throw") throw new Error("it broke");
  if (what === "exit") process.exit(0);
  if (what === "late") setTimeout(() => parentPort.postMessage({ ask, said: what }), 20);
  if (what === "now") parentPort.postMessage({ ask, said: what, length: bytes?.length });
});
`;
const file = new URL(`data:text/javascript,${encodeURIComponent(TEXT)}`);
let begun: AskedThread | ThreadPool;
afterEach(() => begun.close());
const one = (): AskedThread => (begun = new AskedThread(file, "answers"));
const pool = (width: number): ThreadPool => (begun = new ThreadPool(file, "answers", width));

it("gives each its own answer, in whatever order they come", async () => {
  const thread = one();
  const [late, now] = [thread.ask({ what: "late" }), thread.ask({ what: "now" })];
  expect(thread.waiting).toBe(2);
  expect(await Promise.all([late, now])).toMatchObject([{ said: "late" }, { said: "now" }]);
  expect(thread.waiting).toBe(0);
});

it("takes memory that is moved to it", async () => {
  const thread = one();
  const bytes = new Uint8Array(1_000);
  expect(await thread.ask({ what: "now", bytes }, [bytes.buffer])).toMatchObject({ length: 1_000 });
  expect(bytes.length).toBe(0);
});

it.each<[string, RegExp]>([
  ["throw", /it broke/],
  ["exit", /a thread that answers ended/],
])("tells everybody when it dies by %s: those who wait, and whoever asks later", async (what, says) => {
  const thread = one();
  const asked = ["never", what, "never"].map((ask) => thread.ask({ what: ask }).catch((error: Error) => error.message));
  for (const said of await Promise.all(asked)) expect(said).toMatch(says);
  await expect(thread.ask({ what: "now" })).rejects.toThrow(says);
  expect(thread.waiting).toBe(0);
});

it("tells whoever waits when it is closed", async () => {
  const thread = one();
  const asked = thread.ask({ what: "never" }).catch((error: Error) => error.message);
  await thread.close();
  expect(await asked).toBe("a thread that answers ended");
});

it("a pool begins no more threads than it may, and asks the one with the fewest questions", async () => {
  const threads = pool(2);
  expect(threads.hasBegun).toBe(false);
  const answers = await Promise.all(["late", "late", "now", "now", "late"].map((what) => threads.ask({ what })));
  expect(answers).toMatchObject(["late", "late", "now", "now", "late"].map((said) => ({ said })));
  expect(threads.hasBegun).toBe(true);
});

it("a pool goes on without a thread that died: only who waited for that one is told", async () => {
  const threads = pool(2);
  const asked = [threads.ask({ what: "late" }), threads.ask({ what: "throw" })];
  expect((await Promise.allSettled(asked)).map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
  expect(await Promise.all([threads.ask({ what: "now" }), threads.ask({ what: "now" })])).toHaveLength(2);
});

it("a pool that is closed tells whoever waits, and whoever asks", async () => {
  const threads = pool(1);
  const asked = threads.ask({ what: "never" }).catch((error: Error) => error.message);
  await threads.close();
  expect(await asked).toBe("a thread that answers ended");
  await expect(threads.ask({ what: "now" })).rejects.toThrow("closed");
});
