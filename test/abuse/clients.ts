import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/**
 * The clients of a stranger: a process of its own on loopback, with source addresses of its own, all of it bounded in
 * number and time. They ask about every hostile seller, hold sockets, read and write slowly, and break off.
 *
 * Usage: clients.ts <port of the service> <port of the hostile sellers> <seconds> <attack>...
 */
const [service, sellers, seconds, ...attacks] = process.argv.slice(2);
const PORT = Number(service);
const UNTIL = Date.now() + 1_000 * Number(seconds);
const DOMAINS = 12;
const CLIENTS = 60;

/** What came back, by first line of the answer: the parent asserts that none is a 5xx but 503. */
const answers = new Map<string, number>();
const count = (what: string): void => void answers.set(what, (answers.get(what) ?? 0) + 1);

const addressOf = (n: number): string => `127.1.${1 + (n % 4)}.${1 + (n % CLIENTS)}`;

function open(n: number): Socket {
  const socket = connect({ host: "127.0.0.1", port: PORT, localAddress: addressOf(n) });
  socket.on("error", () => {});
  return socket;
}

/** One request as text; the status of what comes back is counted. @returns when it is over */
async function send(n: number, text: string, keep = 0): Promise<void> {
  const socket = open(n);
  let seen = "";
  socket.on("data", (chunk) => {
    if (seen.length < 16) seen += chunk.toString("latin1").slice(0, 16);
  });
  socket.write(text);
  await Promise.race([new Promise((done) => socket.once("close", done)), sleep(keep || 5_000)]);
  count(/^HTTP\/1\.1 (\d{3})/.exec(seen)?.[1] ?? "no answer");
  socket.destroy();
}

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nhost: service\r\nconnection: close\r\n\r\n`;

async function every(ms: number, work: (n: number) => Promise<unknown>): Promise<void> {
  const pending = new Set<Promise<unknown>>();
  for (let n = 0; Date.now() < UNTIL; n++) {
    if (pending.size < 100) {
      const one = work(n).catch(() => {});
      pending.add(one);
      void one.finally(() => pending.delete(one));
    }
    await sleep(ms);
  }
}

const NINES = "9".repeat(300);
const ODD = [
  `/segment/${NINES}`,
  `/tile/0/${NINES}`,
  `/tile/entries/${NINES}`,
  `/v1/archive?page=${NINES}`,
  `/v1/trust/feed?cursor=0000000000000000:${NINES}`,
  "/%00",
  "/%",
  `/v1/check?url=${encodeURIComponent(`http://${"a.".repeat(900)}com/`)}`,
  `/v1/check?url=${encodeURIComponent(`http://x.com/${"*/".repeat(900)}`)}`,
  `/${"a/".repeat(4_000)}`,
];

await Promise.all([
  // Every hostile seller is asked about, again and again, under domains of its own.
  every(50, (n) => {
    const host = `${attacks[n % attacks.length]}.abuse-${Math.floor(n / attacks.length) % DOMAINS}.com:${sellers}`;
    return send(n, get(`/v1/check?url=${encodeURIComponent(`http://${host}/x/${n}`)}`));
  }),
  // Four networks that fill the line of asks with names that nobody has.
  every(50, (n) => {
    const url = encodeURIComponent(`http://q${n}-nobody.com/`);
    return send(n % 4, get(`/v1/check?url=${url}`));
  }),
  every(100, (n) => send(n, get(ODD[n % ODD.length]!))),
  // Posts that break off, and posts that trickle.
  every(250, async (n) => {
    const socket = open(n);
    socket.write(
      "POST /v1/disputes HTTP/1.1\r\nhost: service\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{",
    );
    await sleep(100);
    socket.resetAndDestroy();
  }),
  every(1_000, async (n) => {
    const socket = open(n);
    socket.write(
      "POST /v1/disputes HTTP/1.1\r\nhost: service\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n",
    );
    for (let i = 0; i < 60 && !socket.destroyed; i++) {
      socket.write(" ");
      await sleep(1_000);
    }
    socket.destroy();
  }),
  // Sockets that say nothing, headers that never end, and readers of everything that read nothing.
  every(100, async (n) => {
    const socket = open(n);
    await sleep(20_000);
    socket.destroy();
  }),
  every(500, async (n) => {
    const socket = open(n);
    for (let i = 0; i < 20 && !socket.destroyed; i++) {
      socket.write(i === 0 ? "GET / HTTP/1.1\r\n" : `x-${i}: y\r\n`);
      await sleep(1_000);
    }
    socket.destroy();
  }),
  every(500, async (n) => {
    const socket = open(n);
    socket.write(get(n % 2 ? "/v1/trust/feed" : "/v1/trust/index"));
    socket.once("data", () => socket.pause());
    await sleep(30_000);
    socket.destroy();
  }),
]);
process.stdout.write(`${JSON.stringify(Object.fromEntries(answers))}\n`);
process.exit(0);
