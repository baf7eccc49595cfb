import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ManualClock } from "../helpers/serving.ts";
import { deliver, postJson, SUM, WatcherTestbed } from "../helpers/watchers.ts";
import { PYTHON } from "./judges.ts";

/** What a receiver gets, verified by the official libraries of Standard Webhooks and by the verifiers of the page. */
const PAGE = resolve(import.meta.dirname, "../../docs/watchers.md");
const SECRET = `whsec_${randomBytes(32).toString("base64")}`;
let bed: WatcherTestbed;
let server: Server;
let dir: string;

interface Got {
  headers: IncomingHttpHeaders;
  body: string;
}
const got: Got[] = [];

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "notices-"));
  bed = await WatcherTestbed.open();
  await bed.card(SUM, { band: "A" });
  server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString("utf8");
    got.push({ headers: request.headers, body });
    response.end((JSON.parse(body) as { challenge?: string }).challenge ?? "");
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  // Verifiers go by their own clock.
  const clock = new ManualClock(new Date().toISOString());
  const serving = await bed.serving({ clock });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  expect((await postJson(serving, "/v1/watchers", { url, watch: [SUM.url], secret: SECRET })).status).toBe(201);
  await bed.card(SUM, { band: "D" });
  await deliver(bed.notifier({ clock }));
  expect(got.map(({ body }) => JSON.parse(body).type)).toEqual(["watcher.challenge", "card.changed"]);
  await writeFile(join(dir, "keys.json"), JSON.stringify(bed.record.jwks));
});
afterAll(async () => {
  server?.close();
  await bed?.close();
  await rm(dir, { recursive: true, force: true });
});

const LIBRARIES: Record<string, (message: string) => number | null> = {
  JavaScript: (message) =>
    spawnSync(process.execPath, [join(import.meta.dirname, "js/webhook.mjs"), SECRET], { input: message }).status,
  Python: (message) =>
    spawnSync(PYTHON, [join(import.meta.dirname, "python/webhook.py"), SECRET], { input: message }).status,
};

test.each(Object.keys(LIBRARIES))(
  "the official library of %s takes challenge and notice, and no other body",
  (name) => {
    const verify = LIBRARIES[name]!;
    for (const one of got) expect(verify(JSON.stringify(one))).toBe(0);
    const [, { headers, body }] = got as [Got, Got];
    expect(verify(JSON.stringify({ headers, body: body.replace('"D"', '"A"') }))).toBe(1);
    const [, ...others] = String(headers["webhook-signature"]).split(" ");
    expect(others.every((one) => one.startsWith("v1a,"))).toBe(true);
    const bare = { ...headers, "webhook-signature": others.join(" ") };
    expect(verify(JSON.stringify({ headers: bare, body }))).toBe(1);
  },
);

describe("the page's verifiers", () => {
  const code = async (language: string) =>
    new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "ms").exec(await readFile(PAGE, "utf8"))![1]!;
  const programs: Record<string, string[]> = {};
  beforeAll(async () => {
    await writeFile(join(dir, "verify_notice.py"), await code("python"));
    programs.python = [PYTHON, join(dir, "verify_notice.py")];
    const folder = join(dir, "verify-notice");
    await mkdir(folder);
    await writeFile(join(folder, "main.go"), await code("go"));
    await writeFile(join(folder, "go.mod"), "module example/verify-notice\n\ngo 1.26\n");
    execFileSync("go", ["build", "-o", join(dir, "verifier"), "."], { cwd: folder, stdio: "inherit" });
    programs.go = [join(dir, "verifier")];
  });

  test.each(["python", "go"])("in %s take a notice alone, unchanged and new", (language) => {
    const [program, ...args] = programs[language]!;
    const run = ({ headers, body }: Got, timestamp = String(headers["webhook-timestamp"])) => {
      const of = [String(headers["webhook-id"]), timestamp, String(headers["webhook-signature"])];
      return spawnSync(program!, [...args, join(dir, "keys.json"), ...of], { input: body }).status;
    };
    const [challenge, notice] = got as [Got, Got];
    expect(run(notice)).toBe(0);
    expect(run(challenge)).toBe(1);
    expect(run({ ...notice, body: notice.body.replace('"D"', '"A"') })).toBe(1);
    expect(run(notice, String(Number(notice.headers["webhook-timestamp"]) - 1_000))).toBe(1);
  });
});
