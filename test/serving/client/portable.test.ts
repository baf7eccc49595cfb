import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { createContext, runInContext } from "node:vm";
import { type BuildResult, build } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { USDC } from "../../../pipelines/record/networks.ts";
import type * as Client from "../../../serving/client/index.ts";
import { VERSION } from "../../../serving/client/index.ts";
import { type LiveService, liveService, now } from "../../helpers/client.ts";
import { builtClient, installedClient, packedClient } from "../../helpers/client-package.ts";
import { cardOf, listingDraft, PAYEE, PublicRecord, rowOf } from "../../helpers/public-record.ts";
import { servingOver } from "../../helpers/serving.ts";

const ROOT = resolve(import.meta.dirname, "../../..");
const ENTRY = "serving/client/index.ts";

const bundle = (entry: string): Promise<BuildResult<{ write: false; metafile: true }>> =>
  build({
    absWorkingDir: ROOT,
    ...{ entryPoints: [entry], bundle: true, write: false, metafile: true, minify: true, logLevel: "silent" },
    ...{ platform: "browser", format: "iife", globalName: "touchstone" },
  });

const GOOD = { url: "https://seller.example/good" };
const FAILING = { url: "https://seller.example/failing" };
let record: PublicRecord;
let live: LiveService;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    [GOOD, FAILING].map((spec) => listingDraft(spec)),
    record.grades([cardOf(GOOD)], "B: it delivers."),
    record.grades([cardOf(FAILING, { band: "F" })], "F: it fails."),
  );
  await record.live([GOOD, FAILING].map((spec) => rowOf(spec)));
  live = await liveService(record);
});
afterAll(async () => {
  await live?.close();
  await record?.close();
});

test("nothing of Node, and no packages but the curve and RFC 8785, are in the library", async () => {
  const { metafile } = await bundle(ENTRY);
  const inputs = Object.keys(metafile.inputs).map((file) => file.replace(/^.*node_modules\//, "node_modules/"));
  expect(inputs.filter((file) => !file.startsWith("serving/client/")).sort()).toEqual([
    "infra/canonical-text.ts",
    "infra/errors.ts",
    "infra/keys/examine.ts",
    "infra/keys/jwk.ts",
    "infra/keys/portable.ts",
    "infra/url.ts",
    "node_modules/@noble/ed25519/index.js",
    "node_modules/canonicalize/lib/canonicalize.js",
    "pipelines/record/base58.ts",
    "pipelines/record/json.ts",
    "pipelines/record/money.ts",
    "pipelines/record/networks.ts",
    "pipelines/record/terms/challenges.ts",
    "pipelines/record/terms/entries.ts",
    "pipelines/record/terms/mpp.ts",
    "pipelines/record/terms/networks.ts",
    "pipelines/record/terms/offers.ts",
    "pipelines/record/terms/tools.ts",
    "pipelines/record/vocabulary.ts",
  ]);
  const text = await readFile(await builtClient(), "utf8");
  expect(text).not.toMatch(/\bnode:|\b(?:Buffer|process|require|__dirname|setImmediate)\b/);
  // What does need Node cannot be bundled in this way.
  await expect(bundle("infra/canonical.ts")).rejects.toThrow('Could not resolve "node:crypto"');
});

test("in a worker, where there are only the web's own globals, it guards, verifies and receives", async () => {
  const { outputFiles } = await bundle(await builtClient());
  const globals = {
    ...{ fetch, Request, Response, Headers, URL, URLSearchParams, AbortSignal, AbortController },
    ...{ TextEncoder, TextDecoder, crypto, atob, btoa, setTimeout, clearTimeout, performance },
  };
  const context = createContext({ ...globals });
  runInContext(`${outputFiles[0]!.text};globalThis.touchstone = touchstone`, context);
  const library = context.touchstone as typeof Client;
  expect(library.VERSION).toBe(VERSION);
  const service = new library.Service({ base: live.url, now });
  const [network, asset] = ["eip155:84532", USDC["eip155:84532"]!];
  const offers = [{ network, asset, amount: 20_000n, payTo: PAYEE, scheme: "exact", validFor_s: 300 }];
  const mayPay = library.guard(service);
  expect(await mayPay({ url: GOOD.url, offers })).toMatchObject({ allow: true, outcome: "allowed" });
  expect(await mayPay({ url: FAILING.url, offers })).toMatchObject({ allow: false, reason: "failing" });
  const { answer } = await mayPay({ url: GOOD.url, offers });
  expect(await library.verifyCheck(record.jwks, { ...answer, band: "A" })).toMatchObject({ reason: "bad_signature" });
  const lost = new library.Service({ base: "http://127.0.0.1:1" });
  expect(await library.guard(lost)({ url: GOOD.url, offers })).toMatchObject({ fault: "unreachable" });
  const take = library.noticeReceiver({ service, onNotice: () => {} });
  expect((await take(new Request("https://receiver.example/", { method: "POST", body: "{}" }))).status).toBe(400);
});

describe("installed in somebody's project", () => {
  /** What a module says of the library: that it asks, guards and verifies, with what it finds where it runs. */
  const PROGRAM = `
    import { guard, Service, VERSION, verifyCheck } from "touchstone-client";
    export async function said({ base, url, at, jwks }) {
      const service = new Service({ base, now: () => at });
      const { outcome, answer } = await guard(service)({ url, method: "GET", offers: [] });
      const forged = await verifyCheck(jwks, { ...answer, band: "A" });
      return [VERSION, outcome, (await verifyCheck(jwks, answer)).ok, forged.reason].join(" ");
    }`;
  const MAIN = `
    import { said } from "./said.mjs";
    console.log(await said(JSON.parse(process.argv[2])));`;
  const THREAD = `
    import { Worker } from "node:worker_threads";
    const code = 'import { parentPort, workerData } from "node:worker_threads";' +
      \`import(\${JSON.stringify(import.meta.resolve("./said.mjs"))}).then(({ said }) => said(workerData)).then((line) => parentPort.postMessage(line));\`;
    const worker = new Worker(new URL("data:text/javascript," + encodeURIComponent(code)), { workerData: JSON.parse(process.argv[2]) });
    worker.on("message", (line) => console.log(line));`;
  let dir: string;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "client-installed-"));
    await installedClient(await packedClient(dir), dir);
    const files = { "said.mjs": PROGRAM, "main.mjs": MAIN, "thread.mjs": THREAD };
    for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  test.each(["main.mjs", "thread.mjs"])("%s imports it without a loader, in this release of Node", async (file) => {
    const asked = JSON.stringify({ base: live.url, url: FAILING.url, at: now(), jwks: record.jwks });
    const { stdout } = await promisify(execFile)(process.execPath, [join(dir, file), asked]);
    expect(stdout).toBe(`${VERSION} refused true bad_signature\n`);
  });
});

describe("/client.mjs", () => {
  test("is the file of the package, byte for byte, and its page names the hash", async () => {
    const bytes = await readFile(await builtClient());
    const { get } = await servingOver(record);
    const response = await get("/client.mjs");
    expect([
      response.status,
      response.headers.get("content-type"),
      response.headers.get("access-control-allow-origin"),
    ]).toEqual([200, "text/javascript; charset=utf-8", "*"]);
    expect(Buffer.from(await response.arrayBuffer()).equals(bytes)).toBe(true);
    const page = await (await get("/docs/client")).text();
    expect(page).toContain(createHash("sha256").update(bytes).digest("hex"));
    expect(page).toContain(`sha256-${createHash("sha256").update(bytes).digest("base64")}`);
    expect(page).not.toMatch(/CLIENT_(?:SHA256|INTEGRITY)/);
  });

  test("where nothing was built it is not there, which is said in words", async () => {
    const { get } = await servingOver(record, { clientFile: null });
    const response = await get("/client.mjs");
    expect([response.status, ((await response.json()) as { detail: string }).detail]).toEqual([
      404,
      "it was not built: the service was started from its sources (npm run build)",
    ]);
    expect(await (await get("/docs/client")).text()).toContain("this service holds no built file");
  });
});
