import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import canonicalize from "canonicalize";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { EvidenceReceipt } from "../../../serving/work/web-evidence.ts";
import { webEvidence } from "../../../serving/work/web-evidence.ts";
import { did, NOW, page, refusal, type World, worldOf } from "./world.ts";

const TERMS = "<html><title>Terms</title><p>The money comes back within 30 days &#x1F600;.</html>";
const LONG = "x".repeat(900);

let world: World;
let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "receipts-"));
  world = await worldOf({
    "/terms": page(TERMS, {
      "content-type": "text/html; charset=utf-8",
      etag: '"1"',
      "set-cookie": "session=secret",
      "x-request-id": "17",
      link: LONG,
    }),
    "/packed": page(gzipSync(TERMS), { "content-type": "text/html", "content-encoding": "gzip" }),
    "/moved": page("gone on", { location: "/terms?x=1", "content-type": "text/plain" }, 301),
    "/json": page('{"price": "0.02"}', { "content-type": "application/json" }),
    "/picture": page(Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0, 0]), { "content-type": "image/png" }),
    "/empty": page("", {}, 204),
    "/proto": page("x", { "content-type": "text/plain", ["__proto__"]: "y", constructor: "z" }),
    "/reset": (_, response) => void response.destroy(),
    "/huge": page(Buffer.alloc(6 * 1024 * 1024, 97)),
  });
});
afterAll(async () => {
  await world.close();
  await rm(dir, { recursive: true, force: true });
});

const hash = (bytes: string | Buffer) => createHash("sha256").update(bytes).digest("hex");
const receiptOf = (path: string, more: object = {}): Promise<EvidenceReceipt> =>
  did(webEvidence, { url: `${world.origin}${path}`, ...more }, world);

describe("a receipt", () => {
  test("says what was answered, and by whom, and leaves nothing out in silence", async () => {
    const { signature, took_ms, ...receipt } = await receiptOf("/terms?a=1#part");
    expect(receipt).toEqual({
      schema: "svc.evidence.v1",
      url: `${world.origin}/terms?a=1#part`,
      final_url: `${world.origin}/terms?a=1`,
      redirects: "not followed",
      location: null,
      status: 200,
      headers: {
        "content-type": "text/html; charset=utf-8",
        date: expect.any(String),
        etag: '"1"',
        link: LONG.slice(0, 500),
      },
      headers_cut: ["link"],
      headers_left_out: expect.arrayContaining(["x-request-id"]),
      peer: { address: "127.0.0.1", tls: "none" },
      body: { sha256: hash(TERMS), bytes: Buffer.byteLength(TERMS) },
      excerpt: "The money comes back within 30 days 😀.",
      excerpt_missing: null,
      compared: null,
      fetched_at: NOW,
      answered_at: NOW,
      signing_key_id: world.signer.kid,
      canonicalization: "RFC8785",
    });
    expect(JSON.stringify(receipt)).not.toContain("secret");
    expect([took_ms >= 0, signature.length]).toEqual([true, 86]);
  });

  test("compares with what was seen before", async () => {
    const same = await receiptOf("/terms", { compare_to: hash(TERMS) });
    expect(same.compared).toEqual({ to: hash(TERMS), result: "same" });
    const other = await receiptOf("/terms", { compare_to: hash("older") });
    expect(other.compared).toEqual({ to: hash("older"), result: "different" });
  });

  test("is about decoded bytes, and about the address that was named and not where it leads", async () => {
    expect((await receiptOf("/packed")).body.sha256).toBe(hash(TERMS));
    expect(await receiptOf("/moved")).toMatchObject({
      status: 301,
      location: `${world.origin}/terms?x=1`,
      final_url: `${world.origin}/moved`,
      body: { sha256: hash("gone on") },
    });
  });

  test.each<[string, number, string | null, RegExp | null]>([
    ["/json", 200, '{"price": "0.02"}', null],
    ["/nowhere", 404, "nothing here", null],
    ["/picture", 200, null, /it is not pdf or html or text/],
    ["/empty", 204, null, /the body is empty/],
    ["/proto", 200, "x", null],
  ])("of %s too", async (path, status, excerpt, missing) => {
    const receipt = await receiptOf(path);
    expect([receipt.status, receipt.excerpt]).toEqual([status, excerpt]);
    if (missing) expect(receipt.excerpt_missing).toMatch(missing);
    else expect(receipt.excerpt_missing).toBeNull();
  });

  test("its bytes are those of an outside canonicalizer", async () => {
    const { signature, ...signed } = await receiptOf("/terms");
    const again = world.signer.sign(Buffer.from(canonicalize(signed)!));
    expect(signature).toBe(Buffer.from(again).toString("base64url"));
  });
});

const run = promisify(execFile);
/** Prints of a script of ours over a receipt, and how it ended. */
async function verdict(script: string, receipt: object, ...more: string[]): Promise<[number, string]> {
  const [saved, keys] = [join(dir, "receipt.json"), join(dir, "keys.json")];
  await writeFile(saved, JSON.stringify(receipt));
  await writeFile(keys, JSON.stringify(world.keys));
  try {
    return [0, (await run(process.execPath, [script, saved, keys, ...more])).stdout.trim()];
  } catch (error) {
    const { code, stdout } = error as { code: number; stdout: string };
    return [code, stdout.trim()];
  }
}

describe("anybody can verify a receipt", () => {
  test("with the script of the page, and hold a file against it", async () => {
    const text = await readFile(join(import.meta.dirname, "../../../docs/paid-operations.md"), "utf8");
    const script = join(dir, "verify-receipt.mjs");
    await writeFile(script, /^```js\n(.*?)\n```$/ms.exec(text)![1]!);
    const receipt = await receiptOf("/terms");
    const [same, other] = [join(dir, "same"), join(dir, "other")];
    await writeFile(same, TERMS);
    await writeFile(other, "something else");
    const good = `good: ${world.origin}/terms answered 200 with ${hash(TERMS)} at ${NOW}`;
    expect(await verdict(script, receipt)).toEqual([0, good]);
    expect(await verdict(script, receipt, same)).toEqual([0, good]);
    expect(await verdict(script, receipt, other)).toEqual([1, expect.stringContaining("the file is another one")]);
    const bad = "BAD: do not believe this receipt";
    expect(await verdict(script, { ...receipt, status: 404 })).toEqual([1, bad]);
    expect(await verdict(script, { ...receipt, extra: 1 })).toEqual([1, bad]);
    expect(await verdict(script, { ...receipt, body: { ...receipt.body, sha256: hash("") } })).toEqual([1, bad]);
  });

  test("with the script for check answers, as it is", async () => {
    const script = join(import.meta.dirname, "../../../docs/verify-a-check.mjs");
    const [code, says] = await verdict(script, await receiptOf("/terms"));
    expect([code, says]).toEqual([0, `good: signed by ${world.signer.kid} at ${NOW}`]);
  });
});

describe("what is no evidence is a problem", () => {
  test.each<[string, object, string, string[], RegExp]>([
    ["no url", {}, "bad_request", ["/url"], /url/],
    ["a field that is not named", { url: "ORIGIN/terms", follow: true }, "bad_request", ["/follow"], /follow/],
    [
      "a hash that is none",
      { url: "ORIGIN/terms", compare_to: "ABC" },
      "bad_request",
      ["/compare_to"],
      /64 lower-case/,
    ],
    ["an address of a private network", { url: "http://192.168.1.1/" }, "bad_request", ["/url"], /never fetched/],
    ["a name that is not one of the internet", { url: "http://x.internal/" }, "bad_request", ["/url"], /internal/],
    ["an answer that breaks off", { url: "ORIGIN/reset" }, "not_fetched", ["/url"], /no whole answer/],
    ["an answer that is too large", { url: "ORIGIN/huge" }, "not_fetched", ["/url"], /5242880 bytes/],
    ["nobody there", { url: "http://127.0.0.1:1/" }, "not_fetched", ["/url"], /no whole answer/],
  ])("%s", async (_, body, code, pointers, says) => {
    const sent = JSON.parse(JSON.stringify(body).replaceAll("ORIGIN", world.origin)) as unknown;
    const told = await refusal(webEvidence, sent, world);
    expect([told[0], told[2]]).toEqual([code, pointers]);
    expect(told[3]).toMatch(says);
  });
});
