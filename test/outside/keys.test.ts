import { execFile, spawnSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type AgentCard, verifyAgentCardSignature } from "@a2a-js/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type LiveService, liveService } from "../helpers/client.ts";
import { PublicRecord } from "../helpers/public-record.ts";
import { goProgram, PYTHON } from "./judges.ts";

/** Keys and agent card as served, read by PyJWT, go-jose and both official libraries of A2A. */
const run = promisify(execFile);

interface Served {
  signatures: unknown[];
  keys: { kid: string }[];
}
const read = async (path: string) => (await (await fetch(live.url + path)).json()) as Served;
let record: PublicRecord;
let live: LiveService;
let dir: string;
let said: {
  published: string[];
  loaded: string[];
  interfaces: string[];
  changed: string;
  plain: boolean;
  token: string;
};

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "keys-"));
  record = await PublicRecord.open();
  live = await liveService(record);
  const { stdout } = await run(PYTHON, [join(import.meta.dirname, "python/keys.py"), live.url]);
  said = JSON.parse(stdout);
});
afterAll(async () => {
  await live?.close();
  await record?.close();
  await rm(dir, { recursive: true, force: true });
});

test("PyJWT loads every key of the keys document", () => {
  expect(said.published.length).toBeGreaterThanOrEqual(4);
  expect(said.loaded).toEqual(said.published);
});

test("the A2A SDK of Python verifies the card as served, misses no required member, and refuses another card", () => {
  expect(said.interfaces).toEqual([expect.stringMatching(/^https:/)]);
  expect(said.changed).toBe("refused");
});

test("the card verifies as a JWS over its plain RFC 8785 bytes", () => {
  expect(said.plain).toBe(true);
});

test("go-jose loads every key, verifies the card, and refuses a changed signature", async () => {
  const jose = goProgram("jose", dir);
  const file = join(dir, "keys.json");
  await writeFile(file, JSON.stringify(await read("/.well-known/svc-keys.json")));
  const { loaded, payload } = JSON.parse((await run(jose, [file, said.token])).stdout);
  expect(loaded).toEqual(said.published);
  const { signatures: _, ...card } = await read("/.well-known/agent-card.json");
  expect(payload).toEqual(card);
  const at = said.token.lastIndexOf(".") + 5;
  const changed = said.token.slice(0, at) + (said.token[at] === "A" ? "B" : "A") + said.token.slice(at + 1);
  expect(spawnSync(jose, [file, changed]).status).toBe(1);
});

test("the A2A SDK of JavaScript verifies the card as served", async () => {
  const card = (await read("/.well-known/agent-card.json")) as unknown as AgentCard;
  const { keys } = await read("/.well-known/svc-keys.json");
  const verify = verifyAgentCardSignature(async (kid) => keys.find((key) => key.kid === kid) as never);
  await verify(card);
  await expect(verify({ ...card, name: "another" })).rejects.toThrow();
});
