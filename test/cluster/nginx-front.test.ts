import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../fixtures/ports.ts";
import { clientKeyOf, parseProxies } from "../../serving/http/limits.ts";

/**
 * infra/deploy/nginx-service.conf in a real nginx, before two servers that tell what reached them, and a third one that is
 * dead.
 */
let dir: string;
let port: number;
let nginx: ChildProcess;
let replicas: Server[];
let reached: IncomingMessage;
/** Which of the servers answered, request by request. */
let answeredBy: number[] = [];

/** As a client who writes these lines itself; they may repeat. */
const ask = (...lines: [name: string, value: string][]): Promise<number> => send("GET", "/v1/check", ...lines);

const send = (method: string, path: string, ...lines: [name: string, value: string][]): Promise<number> =>
  new Promise((resolve, reject) => {
    const headers = ["Host", "touchstone.example", ...lines.flat()];
    request({ host: "127.0.0.1", port, method, path, headers }, (answer) => {
      answer.resume().once("end", () => resolve(answer.statusCode!));
    })
      .once("error", reject)
      .end();
  });

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "nginx-front-"));
  replicas = [0, 1].map((n) =>
    createServer((asked, answer) => {
      reached = asked;
      answeredBy.push(n);
      // /status/502 is answered with a 502, and so on.
      answer.statusCode = Number(/^\/status\/(\d{3})$/.exec(asked.url!)?.[1] ?? 200);
      answer.end("{}");
    }),
  );
  for (const replica of replicas) await new Promise<void>((done) => replica.listen(0, "127.0.0.1", done));
  const behind = replicas.map((replica) => (replica.address() as { port: number }).port);
  port = await freePort();
  const servers = [...behind, await freePort()];
  const conf = await readFile(new URL("../../infra/deploy/nginx-service.conf", import.meta.url), "utf8");
  const own = conf
    .replace(/server replica:8402 (.*;)/, (_, options) =>
      servers.map((to) => `server 127.0.0.1:${to} ${options}`).join("\n"),
    )
    .replace("listen 8080;", `listen 127.0.0.1:${port};`);
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${dir}/${name};`,
  );
  await writeFile(
    join(dir, "nginx.conf"),
    `${process.getuid?.() === 0 ? "user root;\n" : ""}pid ${dir}/pid;\n${own.replace("http {", `http {\n${temporary.join("\n")}`)}`,
  );
  nginx = spawn("nginx", ["-p", dir, "-c", join(dir, "nginx.conf"), "-g", "daemon off;"], { stdio: "inherit" });
  for (let tries = 0; tries < 4_800 && nginx.exitCode === null; tries++) {
    if (await ask().catch(() => null)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("nginx did not come up");
});

afterAll(async () => {
  const gone = new Promise((resolve) => nginx.once("exit", resolve));
  nginx.kill("SIGTERM");
  await gone;
  for (const replica of replicas) replica.close();
  await rm(dir, { recursive: true, force: true });
});

test.each<[string, [string, string][]]>([
  ["nothing", []],
  ["another address", [["X-Forwarded-For", "203.0.113.9"]]],
  ["a chain of proxies, ours among them", [["X-Forwarded-For", "203.0.113.9, 127.0.0.1, 127.0.0.1"]]],
  [
    "two lines",
    [
      ["X-Forwarded-For", "203.0.113.9"],
      ["x-forwarded-for", "203.0.113.10"],
    ],
  ],
  ["a name with other hyphens", [["X_Forwarded_For", "203.0.113.9"]]],
  ["the header of RFC 7239", [["Forwarded", "for=203.0.113.9"]]],
])("a client that says %s of itself is the one that it is", async (_, lines) => {
  expect(await ask(...lines)).toBe(200);
  const { "x-forwarded-for": forwarded, forwarded: standard } = reached.headers;
  expect([forwarded, standard]).toEqual(["127.0.0.1", undefined]);
  expect(JSON.stringify(reached.rawHeaders)).not.toContain("203.0.113.");
  // What a replica that believes this nginx makes of it: the client of the socket, whatever it wrote.
  expect(clientKeyOf("127.0.0.1", forwarded as string, parseProxies(["127.0.0.1"]))).toBe("127.0.0.1");
});

test.each([500, 502, 503, 504])(
  "a %i that a replica answers on purpose is handed on once, and leaves all replicas in use",
  async (status) => {
    for (const method of ["GET", "POST"]) {
      answeredBy = [];
      const statuses: number[] = [];
      for (let n = 0; n < 8; n++) statuses.push(await send(method, `/status/${status}`));
      expect([method, statuses, answeredBy.length]).toEqual([method, Array(8).fill(status), 8]);
    }
    answeredBy = [];
    for (let n = 0; n < 8; n++) expect(await ask()).toBe(200);
    expect(new Set(answeredBy)).toEqual(new Set([0, 1]));
  },
);
