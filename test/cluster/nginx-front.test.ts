import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../fixtures/cluster/ports.ts";
import { clientKey, parseProxies } from "../../serving/http/limits.ts";

/** infra/deploy/nginx-service.conf in a real nginx, before something that tells what reached it. */
let dir: string;
let port: number;
let nginx: ChildProcess;
let replica: Server;
let reached: IncomingMessage;

/** As a client who writes these lines itself; they may repeat. */
const ask = (...lines: [name: string, value: string][]): Promise<number> =>
  new Promise((resolve, reject) => {
    const headers = ["Host", "touchstone.example", ...lines.flat()];
    request({ host: "127.0.0.1", port, path: "/v1/check", headers }, (answer) => {
      answer.resume().once("end", () => resolve(answer.statusCode!));
    })
      .once("error", reject)
      .end();
  });

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "nginx-front-"));
  replica = createServer((asked, answer) => {
    reached = asked;
    answer.end("{}");
  });
  await new Promise<void>((done) => replica.listen(0, "127.0.0.1", done));
  const { port: behind } = replica.address() as { port: number };
  port = await freePort();
  const conf = await readFile(new URL("../../infra/deploy/nginx-service.conf", import.meta.url), "utf8");
  const own = conf.replace("replica:8402", `127.0.0.1:${behind}`).replace("listen 8080;", `listen 127.0.0.1:${port};`);
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
  replica.close();
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
  expect(clientKey("127.0.0.1", forwarded as string, parseProxies(["127.0.0.1"]))).toBe("127.0.0.1");
});
