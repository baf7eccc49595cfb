import { spawn } from "node:child_process";
import { createServer, type RequestListener } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, type Server } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type LocalChain, startLocalChain } from "../../../fixtures/chain/local-chain.ts";
import { checkNetwork } from "../../../infra/rails/network-checks.ts";
import type { Network } from "../../../infra/rails/networks.ts";
import { certificate } from "../egress/stranger.ts";

/** Every way in which a node gives no answer, over real sockets, and the cause that is told of it. */
const json = { "content-type": "application/json" };
const rpc = (body: object) => JSON.stringify({ jsonrpc: "2.0", id: 1, ...body });
const ANSWERS: Record<string, RequestListener> = {
  "/html": (_, to) => to.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><h1>Welcome</h1>"),
  "/other": (_, to) => to.writeHead(200, json).end('{"hello":1}'),
  "/401": (_, to) => to.writeHead(401, json).end("{}"),
  "/404": (_, to) => to.writeHead(404).end("no such page"),
  "/429": (_, to) => to.writeHead(429).end(),
  "/503": (_, to) => to.writeHead(503).end("<h1>bad gateway</h1>"),
  "/limit": (_, to) => to.writeHead(200, json).end(rpc({ error: { code: -32005, message: "daily limit" } })),
};

const servers: Server[] = [];
async function listening(server: Server): Promise<number> {
  servers.push(server);
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return (server.address() as AddressInfo).port;
}

/** A port that swallows what is sent to it, as behind a firewall that drops: its line of connections is full. */
async function blackhole(): Promise<{ port: number; end(): void }> {
  const script =
    "const s=require('net').createServer();s.listen({port:0,host:'127.0.0.1',backlog:1},()=>console.log(s.address().port))";
  const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "ignore"] });
  const port = await new Promise<number>((done) => child.stdout.once("data", (text) => done(Number(text))));
  child.kill("SIGSTOP");
  const filling = Array.from({ length: 8 }, () => connect(port, "127.0.0.1").on("error", () => {}));
  await new Promise((done) => setTimeout(done, 100));
  return {
    port,
    end() {
      for (const socket of filling) socket.destroy();
      child.kill("SIGKILL");
    },
  };
}

let chain: LocalChain;
let hole: Awaited<ReturnType<typeof blackhole>>;
const at: Record<"pages" | "silent" | "closing" | "tls" | "nobody", number> = {} as never;
beforeAll(async () => {
  [chain, hole] = await Promise.all([startLocalChain({}), blackhole()]);
  at.pages = await listening(createServer((asked, to) => ANSWERS[asked.url!]!(asked, to)));
  at.silent = await listening(createTcpServer((socket) => socket.on("error", () => {})));
  at.closing = await listening(
    createTcpServer((socket) => socket.on("error", () => {}).once("data", () => socket.destroy())),
  );
  at.tls = await listening(createTlsServer(certificate("DNS:node.example"), () => {}));
  const gone = createTcpServer();
  at.nobody = await listening(gone);
  await new Promise((done) => gone.close(done));
});
afterAll(async () => {
  hole?.end();
  await chain?.stop();
  for (const server of servers) server.close();
});

const network = (rpcUrl: string, id = "eip155:8453"): Network => ({
  ...{ id, rpcUrls: [rpcUrl], agree: 1, confirmations: 1, gasCeiling: 1n },
  assets: [{ symbol: "USDC", address: `0x${"1".repeat(40)}`, decimals: 6, name: "", version: "" }],
});

test.concurrent.each<[string, () => string, RegExp, RegExp]>([
  [
    "a host that DNS does not know",
    () => "http://no-such-host.invalid/",
    /^DNS has no address .*(?:ENOTFOUND|EAI_AGAIN)/,
    /spelling/,
  ],
  ["nobody listens", () => `http://127.0.0.1:${at.nobody}/`, /^the connection is refused/, /port/],
  ["what is sent is dropped", () => `http://127.0.0.1:${hole.port}/`, /^timeout/, /firewall/],
  ["it takes the question and says nothing", () => `http://127.0.0.1:${at.silent}/`, /^timeout/, /firewall/],
  ["it closes", () => `http://127.0.0.1:${at.closing}/`, /^it closes the connection/, /https or http/],
  ["https to a port of http", () => `https://127.0.0.1:${at.pages}/html`, /^the TLS handshake failed/, /https or http/],
  [
    "a certificate that nobody signed",
    () => `https://127.0.0.1:${at.tls}/`,
    /^the TLS handshake failed .*SELF_SIGNED/,
    /certificate/,
  ],
  ["a page", () => `http://127.0.0.1:${at.pages}/html`, /^its answer is not JSON-RPC$/, /a page/],
  ["JSON that is none of a node", () => `http://127.0.0.1:${at.pages}/other`, /^its answer is not JSON-RPC$/, /a page/],
  ["a wrong key", () => `http://127.0.0.1:${at.pages}/401`, /status 401: access is denied/, /key/],
  ["a wrong path", () => `http://127.0.0.1:${at.pages}/404`, /status 404/, /path/],
  ["too many questions", () => `http://127.0.0.1:${at.pages}/429`, /status 429: too many/, /limit/],
  ["a gateway without a node", () => `http://127.0.0.1:${at.pages}/503`, /status 503: a fault of the node/, /later/],
  ["a port that no client of HTTP opens", () => "http://127.0.0.1:1/", /bad port/, /another one/],
  ["an error of the node's own", () => `http://127.0.0.1:${at.pages}/limit`, /limit/, /another one/],
])("%s: the cause is named", async (_, url, says, todo) => {
  const began = performance.now();
  const found = await checkNetwork(network(url()));
  expect(found).toEqual([
    {
      ...{ name: "network eip155:8453 node 1", standing: "warn" },
      ...{ says: expect.stringMatching(says), todo: expect.stringMatching(todo) },
    },
  ]);
  // The doctor waits 20 s for all nodes together.
  expect(performance.now() - began).toBeLessThan(20_000);
});

test("a node of another chain is broken, with both ids", async () => {
  const [found] = await checkNetwork(network(chain.rpcUrl));
  expect(found).toMatchObject({
    ...{ standing: "broken", says: "the settings say eip155:8453, and the node says eip155:84532" },
  });
});
