import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { COSIGNATURE, ED25519, formatVkey } from "../../../infra/tree/note.ts";
import type { EvidenceAnswer, ReceiptProof } from "../../../serving/schemas/evidence.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import type { PublicRecord } from "../../helpers/public-record.ts";

/** web/evidence bought over HTTP by the protocol's own client, its body and proof fetched, and all of it checked offline. */
const PAGE = Buffer.from("<html><p>The money comes back within 30 days.</html>");
const ROOT = join(import.meta.dirname, "../../..");
const run = promisify(execFile);

let world: Awaited<ReturnType<typeof marketBeside>>;
let record: PublicRecord;
let service: Replica;
let dir: string;
let answer: EvidenceAnswer;
let proof: ReceiptProof;
let keys: { keys: Record<string, string>[] };
const site = createServer((request, response) => {
  if (request.url === "/moved") response.writeHead(302, { location: "/terms" }).end();
  else response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
});

/** An address of an answer, at this service. */
const here = (href: string): string => service.url + new URL(href).pathname;
const leafOf = (sha256: string) => ({ kind: "receipt", sha256 }) as const;

beforeAll(async () => {
  world = await marketBeside();
  dir = await mkdtemp(join(tmpdir(), "evidence-"));
  service = await sellingOver(world, []);
  record = service.record;
  await record.publish([leafOf("00".repeat(32))]);
  await new Promise<void>((resolve) => site.listen(0, "127.0.0.1", resolve));
  const buyer = await officialBuyer(world);
  const url = `http://127.0.0.1:${(site.address() as AddressInfo).port}/moved`;
  const bought = await buyer.fetch(`${service.url}/v1/web/evidence`, {
    ...{ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ url }) },
  });
  answer = (await bought.json()) as EvidenceAnswer;
});
afterAll(async () => {
  site.close();
  await service?.close();
  await world?.close();
  await rm(dir, { recursive: true, force: true });
});

test("its body is given to whoever has the address, and shown to nobody as a page", async () => {
  const body = await fetch(here(answer.body.href!));
  expect([body.status, Buffer.from(await body.arrayBuffer()).equals(PAGE)]).toEqual([200, true]);
  expect(Object.fromEntries(body.headers)).toMatchObject({
    ...{ "content-type": "application/octet-stream", "content-disposition": "attachment" },
    ...{ "x-content-type-options": "nosniff", "cache-control": "private, no-store" },
  });
  const head = await fetch(here(answer.body.href!), { method: "HEAD" });
  expect([head.status, await head.text()]).toEqual([200, ""]);
  const other = await fetch(here(answer.body.href!).replace(/.{4}$/, "0000"));
  expect([other.status, (await fetch(`${service.url}/v1/web/evidence/bodies/x`)).status]).toEqual([404, 400]);
});

test("until the publisher had its turn the proof is a 404 that says when to ask; a kill in between loses nothing", async () => {
  const early = await fetch(here(answer.proof.href));
  expect([early.status, early.headers.get("retry-after")]).toEqual([404, "10"]);
  // The record of the hash is in the log, and any publisher makes the leaf of it (test/pipelines/4-publish/receipts.test.ts).
  await record.publish([leafOf("11".repeat(32)), leafOf(answer.receipt_sha256), leafOf("22".repeat(32))]);
  await service.refresh();
  const found = await fetch(here(answer.proof.href));
  proof = (await found.json()) as ReceiptProof;
  expect([found.status, proof.index, proof.tree_size]).toEqual([200, 2, 4]);
  keys = (await (await fetch(`${service.url}/.well-known/svc-keys.json`)).json()) as typeof keys;
});

/** Prints of docs/verify-evidence.mjs over these, and how it ended. */
async function verdict(
  of: { answer?: object; proof?: object; keys?: object; policy?: string },
  body?: Buffer,
): Promise<[number, string]> {
  const files = [of.answer ?? answer, of.proof ?? proof, of.keys ?? keys];
  const paths = ["answer.json", "proof.json", "svc-keys.json"].map((name) => join(dir, name));
  for (const [i, path] of paths.entries()) await writeFile(path, JSON.stringify(files[i]));
  if (body) await writeFile(join(dir, "body"), body);
  const more: string[] = [];
  if (of.policy !== undefined) {
    await writeFile(join(dir, "policy"), of.policy);
    more.push("--witness-policy", join(dir, "policy"));
  }
  const script = join(ROOT, "docs/verify-evidence.mjs");
  try {
    const { stdout } = await run(process.execPath, [script, ...paths, ...(body ? [join(dir, "body")] : []), ...more]);
    return [0, stdout];
  } catch (error) {
    const { code, stdout } = error as { code: number; stdout: string };
    return [code, stdout];
  }
}

test("with answer, proof and keys anybody checks it offline", async () => {
  const { receipt } = answer;
  const good = `good: ${receipt.final_url} answered 200 with these bytes, said at ${receipt.fetched_at}, in the log by `;
  for (const body of [undefined, PAGE]) {
    const [code, says] = await verdict({}, body);
    expect([code, says]).toEqual([0, expect.stringContaining(good)]);
    expect(says).toContain("seen from one resolver and one address of this service");
  }
  const log = (purpose: string) => Buffer.from(keys.keys.find((key) => key.purpose === purpose)!.x ?? "", "base64url");
  const origin = proof.checkpoint.split("\n", 1)[0]!;
  const line = `log ${formatVkey({ name: origin, publicKey: log("log") }, ED25519)}\n`;
  const own = `witness own ${formatVkey({ name: `${origin}/witness`, publicKey: log("witness") }, COSIGNATURE)}\n`;
  const other = `witness other ${formatVkey({ name: "other.example", publicKey: log("cards") }, COSIGNATURE)}\n`;
  const seen = await verdict({ policy: `${line}${own}quorum own\n` }, PAGE);
  expect(seen).toEqual([0, expect.stringMatching(/, cosigned by 1 of the policy by \d{4}-/)]);
  const below = await verdict({ policy: `${line}${own}${other}group g all own other\nquorum g\n` });
  expect(below).toEqual([1, "BAD: below the quorum g: no cosignature of other\n"]);
  const without = { ...answer, body: { ...answer.body, base64: null } };
  expect(await verdict({ answer: without })).toEqual([0, expect.stringContaining("give their file")]);
});

const lines = (checkpoint: string): string[] => checkpoint.split("\n");
const withoutLine = (name: RegExp) => () => ({
  proof: {
    ...proof,
    checkpoint: lines(proof.checkpoint)
      .filter((line) => !name.test(line))
      .join("\n"),
  },
});
const flipped = (hex: string): string => (hex[0] === "0" ? "1" : "0") + hex.slice(1);

test.each<[string, () => Parameters<typeof verdict>[0], RegExp, Buffer?]>([
  ["another status", () => ({ answer: { ...answer, receipt: { ...answer.receipt, status: 404 } } }), /not signed/],
  ["one member more", () => ({ answer: { ...answer, receipt: { ...answer.receipt, more: 1 } } }), /not signed/],
  ["another body", () => ({}), /another one/, Buffer.from("else")],
  ["another body in the answer", () => ({ answer: { ...answer, body: { base64: "AAAA" } } }), /another one/],
  [
    "a leaf that names another receipt",
    () => ({ proof: { ...proof, leaf: proof.leaf.replace(/[0-9a-f]{64}/, "22".repeat(32)) } }),
    /another receipt/,
  ],
  [
    "a leaf that was written anew around the hash",
    () => ({ proof: { ...proof, leaf: proof.leaf.replace(/"at":"\d/, '"at":"1') } }),
    /tree head/,
  ],
  ["another position", () => ({ proof: { ...proof, index: 1 } }), /outside/],
  [
    "another hash on the path",
    () => ({ proof: { ...proof, path: [flipped(proof.path[0]!), proof.path[1]] } }),
    /tree head/,
  ],
  ["a path that is cut", () => ({ proof: { ...proof, path: proof.path.slice(1) } }), /tree head/],
  ["a path that goes on", () => ({ proof: { ...proof, path: [...proof.path, "00".repeat(32)] } }), /too long/],
  ["another size", () => ({ proof: { ...proof, tree_size: 5 } }), /tree head/],
  [
    "a tree head that nobody signed",
    () => ({ proof: { ...proof, checkpoint: proof.checkpoint.replace("\n\n", "\nmore\n\n") } }),
    /no witness/,
  ],
  ["no line of the witness", withoutLine(/^— \S+\/witness /), /no witness/],
  ["no line of the log", withoutLine(/^— (?!\S+\/witness )/), /not signed by the log/],
  [
    "no key of the witness",
    () => ({ keys: { keys: keys.keys.filter(({ purpose }) => purpose !== "witness") } }),
    /no witness/,
  ],
  [
    "a key of answers that had retired by then",
    () => ({
      keys: { keys: keys.keys.map((key) => ({ ...key, retired_at: "2026-01-02T00:00:00.000Z" })) },
    }),
    /not signed/,
  ],
])("%s is refused", async (_, of, says, body) => {
  const [code, printed] = await verdict(of(), body);
  expect([code, printed]).toEqual([1, expect.stringMatching(says)]);
  expect(printed).toMatch(/^BAD: /);
});

test("the page names the script and its three files as it takes them", async () => {
  const page = await readFile(join(ROOT, "docs/paid-operations.md"), "utf8");
  expect(page).toContain("node verify-evidence.mjs answer.json proof.json svc-keys.json");
});
