import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import Connection from "kafkajs/src/network/connection.js";
import socketFactory from "kafkajs/src/network/socketFactory.js";
import Encoder from "kafkajs/src/protocol/encoder.js";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import "../../../../infra/log/kafka/connection.ts";

/** A request as any other. */
const heartbeat = (of: { groupId: string; memberId: string }) => ({
  apiKey: 12,
  apiVersion: 0,
  apiName: "Heartbeat",
  encode: async () => new Encoder().writeString(of.groupId).writeInt32(0).writeString(of.memberId),
});

/** A server that answers each request with its number, as `answer` says; every connection that it took is kept. */
let server: Server;
const taken: Socket[] = [];
let answer: (socket: Socket, bytes: Buffer, nth: number) => void;
let asked = 0;

beforeEach(async () => {
  asked = 0;
  answer = (socket, bytes) => void socket.write(bytes);
  server = createServer({ allowHalfOpen: true }, (socket) => {
    taken.push(socket);
    socket.on("error", () => socket.destroy());
    let rest: Buffer = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      rest = Buffer.concat([rest, chunk]);
      for (
        ;
        rest.length >= 4 && rest.length >= 4 + rest.readInt32BE(0);
        rest = rest.subarray(4 + rest.readInt32BE(0))
      ) {
        const bytes = Buffer.alloc(12);
        bytes.writeInt32BE(8, 0);
        // Length, key of the call, its version, and then the number that the answer is known by.
        bytes.writeInt32BE(rest.readInt32BE(8), 4);
        bytes.writeInt32BE(++asked, 8);
        answer(socket, bytes, asked);
      }
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
});
afterEach(async () => {
  for (const socket of taken.splice(0)) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
});

const silent = { namespace: () => silent, debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const open = (requestTimeout = 60_000): Connection =>
  new Connection({
    host: "127.0.0.1",
    port: (server.address() as AddressInfo).port,
    logger: silent,
    socketFactory: socketFactory(),
    connectionTimeout: 60_000,
    requestTimeout,
  });
/** @returns the number of the answer */
async function ask(one: Connection): Promise<number> {
  await one.connect();
  const decode = (payload: Buffer) => payload.readInt32BE(0);
  const response = { decode, parse: async (number: unknown) => number };
  return (await one.send({ request: heartbeat({ groupId: "g", memberId: "m" }), response })) as number;
}
const refused = { name: "KafkaJSConnectionClosedError" };

describe("a connection", () => {
  test.each([1, 3, 4, 7, 11])("that ends after %i bytes of an answer: the next one is understood", async (bytes) => {
    const one = open();
    answer = (socket, all, nth) => void (nth === 1 ? socket.end(all.subarray(0, bytes)) : socket.write(all));
    await expect(ask(one)).rejects.toMatchObject(refused);
    expect([await ask(one), await ask(one)]).toEqual([2, 3]);
    await one.disconnect();
  });

  test("that was closed here: the end of its old socket, and what it still says, are not the new one's", async () => {
    const one = open();
    await ask(one);
    await one.disconnect();
    answer = (socket, all, nth) => {
      // The old one speaks while the new one waits for its answer.
      if (nth === 2) {
        taken[0]!.write(Buffer.from([0, 0, 1]));
        taken[0]!.end();
        setTimeout(() => socket.write(all), 100);
      } else socket.write(all);
    };
    expect([await ask(one), await ask(one)]).toEqual([2, 3]);
    await one.disconnect();
  });

  test("that many requests find closed is opened once, and nothing is left of it", async () => {
    const one = open();
    const answers = await Promise.all(Array.from({ length: 8 }, () => ask(one)));
    expect(answers.sort((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(taken).toHaveLength(1);
    const over = once(taken[0]!, "end");
    await one.disconnect();
    await over;
  });

  test("that is silent for the time of a request is given up: what waits behind it fails, the next is answered", async () => {
    const one = open(200);
    answer = (socket, all) => void (socket === taken[0] ? undefined : socket.write(all));
    const first = ask(one);
    await one.connect();
    const ends = await Promise.allSettled([first, ask(one), ask(one)]);
    expect(ends.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
    // Its own clock is short: on a slow machine a request may be late once more.
    for (let n = 0; ; n++) {
      const said = await ask(one).catch((error: Error) => error);
      if (typeof said === "number") break;
      expect(n).toBeLessThan(100);
    }
    expect(taken.length).toBeGreaterThan(1);
    await one.disconnect();
  });
});
