import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { ISocketFactoryArgs } from "kafkajs";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createSockets, type SocketSettings } from "../../../../infra/log/kafka/client.ts";

/** A broker that does what a test says; every connection that it took is kept. */
let server: Server;
let taken: Socket[];
beforeEach(async () => {
  taken = [];
  server = createServer({ allowHalfOpen: true }, (socket) => {
    taken.push(socket);
    socket.resume();
    socket.on("error", () => socket.destroy());
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
});
afterEach(async () => {
  for (const socket of taken) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
});

/** An answer of so many bytes behind its length, each of them `of`. */
function answer(length: number, of: number): Buffer {
  const bytes = Buffer.alloc(4 + length, of);
  bytes.writeInt32BE(length, 0);
  return bytes;
}
const request = (key = 3): Buffer => {
  const bytes = answer(8, 0);
  bytes.writeInt16BE(key, 4);
  return bytes;
};

/** As kafkajs opens one: it hears data, end, error and timeout. */
async function open(settings: Partial<SocketSettings> = {}) {
  const heard: string[] = [];
  const { port } = server.address() as AddressInfo;
  const arrived = once(server, "connection");
  const socket = await new Promise<Socket>((resolve) => {
    const args = { host: "127.0.0.1", port, ssl: undefined, onConnect: () => resolve(made) };
    const made = createSockets({ answerMs: 60_000, ...settings })(args as unknown as ISocketFactoryArgs);
    made.on("data", (bytes: Buffer) => heard.push(bytes.toString("hex")));
    made.on("end", () => heard.push("end"));
    made.on("error", (error: Error) => heard.push(error.message));
    made.on("timeout", () => heard.push("timeout"));
  });
  await arrived;
  return { socket, heard, broker: taken.at(-1)! };
}
const hex = (...all: Buffer[]): string => Buffer.concat(all).toString("hex");

test.each([1, 3, 4, 7, 11])(
  "an answer that ends after %i bytes is not handed on; its end is told once",
  async (bytes) => {
    const { socket, heard, broker } = await open();
    socket.write(request());
    broker.write(answer(8, 7).subarray(0, bytes));
    broker.end();
    await expect.poll(() => heard).toEqual(["end"]);
    await expect.poll(() => socket.destroyed).toBe(true);
  },
);

test("answers in any pieces are handed on whole, in their order", async () => {
  const { socket, heard, broker } = await open();
  const all = [answer(8, 1), answer(0, 2), answer(70_000, 3), answer(1, 4)];
  for (const _ of all) socket.write(request());
  const bytes = Buffer.concat(all);
  for (const [from, end] of [
    [0, 2],
    [2, 13],
    [13, 30_000],
    [30_000, bytes.length],
  ] as const) {
    broker.write(bytes.subarray(from, end));
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await expect.poll(() => heard.join("")).toBe(hex(...all));
  for (const piece of heard) expect(piece.length).toBeGreaterThanOrEqual(8);
  socket.end();
});

test("one that is closed while it hands on answers hands on no more of those that have come", async () => {
  const { socket, heard, broker } = await open();
  socket.write(request(3));
  socket.write(request(3));
  socket.once("data", () => socket.end());
  broker.write(Buffer.concat([answer(1, 4), answer(1, 5)]));
  await expect.poll(() => socket.destroyed).toBe(true);
  expect(heard).toEqual([hex(answer(1, 4))]);
});

test("one that was closed here says nothing more, and nothing is left of it", async () => {
  const { socket, heard, broker } = await open();
  socket.write(request());
  broker.write(answer(8, 7));
  await expect.poll(() => heard).toHaveLength(1);
  const over = once(broker, "close");
  socket.end();
  broker.write(answer(8, 9));
  broker.end();
  await over;
  expect([heard.length, socket.destroyed]).toEqual([1, true]);
});

test("one on which nothing was asked is closed in silence: it was opened twice", async () => {
  const { socket, heard, broker } = await open({ firstWordMs: 20 });
  await expect.poll(() => broker.readableEnded).toBe(true);
  expect([heard, socket.destroyed]).toEqual([[], true]);
});

test("one without an answer is ended with an error; whoever joins a group waits longer", async () => {
  const silent = await open({ answerMs: 50 });
  const joining = await open({ answerMs: 50 });
  joining.socket.write(request(11));
  silent.socket.write(request());
  silent.socket.write(request());
  await expect.poll(() => silent.heard).toEqual(["no answer of the broker for 50 ms"]);
  expect([joining.heard, joining.socket.destroyed, silent.socket.destroyed]).toEqual([[], false, true]);
  joining.socket.end();
});

test("one that is answered in time lives, however long it is quiet between requests", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const { socket, heard, broker } = await open({ answerMs: 400, firstWordMs: 400 });
    const answers = Array(2).fill(hex(answer(4, 5)));
    for (const _ of answers) {
      vi.advanceTimersByTime(399);
      const asked = once(broker, "data");
      socket.write(request());
      await asked;
      vi.advanceTimersByTime(399);
      const answered = once(socket, "data");
      broker.write(answer(4, 5));
      await answered;
      vi.advanceTimersByTime(600);
    }
    expect([heard, socket.destroyed]).toEqual([answers, false]);
    // The same clock ends one that is not answered in time.
    socket.write(request());
    vi.advanceTimersByTime(400);
    expect([heard.slice(2), socket.destroyed]).toEqual([[], true]);
  } finally {
    vi.useRealTimers();
  }
});
