import { resolve } from "node:path";
import { createContext, runInContext } from "node:vm";
import { type BuildResult, build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { USDC } from "../../../pipelines/record/networks.ts";
import type * as Client from "../../../serving/client/index.ts";
import { VERSION } from "../../../serving/client/index.ts";
import { type LiveService, liveService, now } from "../../helpers/client.ts";
import { cardOf, listingDraft, PAYEE, PublicRecord, rowOf } from "../../helpers/public-record.ts";

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

test("nothing of Node, and no package but the curve, is in the library", async () => {
  const { metafile, outputFiles } = await bundle(ENTRY);
  const inputs = Object.keys(metafile.inputs).map((file) => file.replace(/^.*node_modules\//, "node_modules/"));
  expect(inputs.filter((file) => !file.startsWith("serving/client/")).sort()).toEqual([
    "infra/canonical-text.ts",
    "infra/keys/examine.ts",
    "infra/keys/jwk.ts",
    "infra/keys/portable.ts",
    "infra/url.ts",
    "node_modules/@noble/ed25519/index.js",
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
  const [file] = outputFiles;
  expect(file!.text).not.toMatch(/\b(?:Buffer|process|require|__dirname|setImmediate)\b/);
  expect(file!.contents.length).toBeLessThan(64 * 1024);
  // What does need Node cannot be bundled in this way.
  await expect(bundle("infra/canonical.ts")).rejects.toThrow('Could not resolve "node:crypto"');
});

test("in a worker, where there are only the web's own globals, it guards, verifies and receives", async () => {
  const { outputFiles } = await bundle(ENTRY);
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

test("the version is the one that the page names", () => {
  expect(VERSION).toBe("2026.09.4");
});
