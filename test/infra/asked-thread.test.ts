import { afterEach, expect, it } from "vitest";
import { AskedThread } from "../../infra/asked-thread.ts";

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
let thread: AskedThread;
afterEach(() => thread.close());

it("gives each its own answer, in whatever order they come", async () => {
  thread = new AskedThread(file, "answers");
  const [late, now] = [thread.ask({ what: "late" }), thread.ask({ what: "now" })];
  expect(thread.waiting).toBe(2);
  expect(await Promise.all([late, now])).toMatchObject([{ said: "late" }, { said: "now" }]);
  expect(thread.waiting).toBe(0);
});

it("takes memory that is moved to it", async () => {
  thread = new AskedThread(file, "answers");
  const bytes = new Uint8Array(1_000);
  expect(await thread.ask({ what: "now", bytes }, [bytes.buffer])).toMatchObject({ length: 1_000 });
  expect(bytes.length).toBe(0);
});

it.each<[string, RegExp]>([
  ["throw", /it broke/],
  ["exit", /a thread that answers ended/],
])("tells everybody when it dies by %s: those who wait, and whoever asks later", async (what, says) => {
  thread = new AskedThread(file, "answers");
  const asked = ["never", what, "never"].map((one) => thread.ask({ what: one }).catch((error: Error) => error.message));
  for (const said of await Promise.all(asked)) expect(said).toMatch(says);
  await expect(thread.ask({ what: "now" })).rejects.toThrow(says);
  expect(thread.waiting).toBe(0);
});

it("tells whoever waits when it is closed", async () => {
  thread = new AskedThread(file, "answers");
  const asked = thread.ask({ what: "never" }).catch((error: Error) => error.message);
  await thread.close();
  expect(await asked).toBe("a thread that answers ended");
});
