import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { correct, dispute, reinstate } from "../../commands/corrections.ts";
import { EXIT, exitCodeOf } from "../../commands/exit.ts";
import type { OptionsOf } from "../../commands/table.ts";
import { systemClock } from "../../infra/clock.ts";
import { type Config, loadConfig } from "../../infra/config.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { createBlankClaims } from "../../pipelines/1-observe/probe/unplanned.ts";
import { createIngest } from "../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { readRecord, sealEnvelope } from "../../pipelines/record/envelope.ts";
import { capId, partitionOf, recordId } from "../../pipelines/record/ids.ts";
import { ensureKeys } from "../../pipelines/roles/data-folder.ts";
import { openParts, type Parts } from "../../pipelines/roles/parts.ts";
import { capOf, handshake, intent, later, listing, result, urlOf } from "../pipelines/2-ingest/records.ts";
import { SELLER, STRANGER, signedDispute } from "../pipelines/corrections/world.ts";

const NAME = "corrected";
const CAP = capOf(NAME);
const T = "2026-11-10T00:00:00.000Z";
const probe = handshake(NAME, T, { pay_to: SELLER.address });
const call = intent(NAME, later(T, 60_000));
const came = result(NAME, call.eventId, later(T, 61_000));
const unseen = `rec_${"0".repeat(26)}`;

let dir: string;
let config: Config;
let parts: Parts;
const lines: string[] = [];
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "correct-command-"));
  config = { ...loadConfig(undefined, {}), data_dir: dir, base_url: "https://touchstone.test", log_level: "silent" };
  ensureKeys(dir, new Date("2026-01-01T00:00:00.000Z"));
  parts = await openParts(config, systemClock);
  await parts.log.append([listing(NAME, T), probe, listing("only-listed", T)]);
  await parts.log.append([toolListing("mcp", "sum"), toolListing("mcp", "mean"), toolListing("one-tool", "sum")]);
  // The probe is in a segment of the chain, what follows is only in the log yet; the lake stays in another's hands.
  const lake = await openLake(join(dir, "elsewhere.duckdb"), { memoryLimit: "256MB", threads: 1, init: INGEST_TABLES });
  await createIngest({ ...parts, lake, clock: systemClock }).pass();
  await lake.close();
  await parts.log.append([call, came]);
  vi.spyOn(process.stdout, "write").mockImplementation((text) => lines.push(String(text)) > 0);
});
afterAll(async () => {
  vi.restoreAllMocks();
  await parts.close();
  rmSync(dir, { recursive: true, force: true });
});
beforeEach(() => {
  lines.length = 0;
});

/** A listing of a tool of an MCP server. */
function toolListing(name: string, tool: string) {
  const cap = capId("POST", urlOf(name), tool);
  const claims = { ...createBlankClaims(urlOf(name), "POST"), tool };
  const source = { source: "catalogue", source_id: `${name} ${tool}`, seller_controlled: false };
  const body = { ...source, normalised_url: urlOf(name), claims, defects: [] };
  const event_id = recordId("listing", cap, tool);
  const envelope = {
    v: 1,
    type: "listing",
    event_id,
    cap,
    key: cap,
    observed_at: T,
    producer: "test/1",
    body,
  } as const;
  return sealEnvelope(envelope, parts.log.partitions);
}

/** What the log holds of the endpoint's topic `corrections`. */
async function inLog(): Promise<({ type: string } & Record<string, unknown>)[]> {
  const records = await parts.log.read("corrections", partitionOf(CAP, parts.log.partitions), 0);
  return records.flatMap((record) => {
    const read = readRecord(record);
    return read.ok ? [{ type: read.envelope.type, ...(read.envelope.body as Record<string, unknown>) }] : [];
  });
}
const withdraw = (over: Partial<OptionsOf<"correct">>, endpoint = CAP) =>
  correct(config, endpoint, { fault: "our_clock", says: "our clock ran fast", json: true, ...over });
const codeOf = async (work: Promise<void>): Promise<number> =>
  work.then(
    () => EXIT.ok,
    (error: unknown) => exitCodeOf(error),
  );

describe("touchstone correct", () => {
  test.each<[string, () => Promise<void>, number]>([
    ["an unknown endpoint", () => withdraw({ allBeforeNow: true }, capOf("nobody")), EXIT.unknown],
    ["an unknown url", () => withdraw({ allBeforeNow: true }, urlOf("nobody")), EXIT.unknown],
    ["a text that is neither", () => withdraw({ allBeforeNow: true }, "seller"), EXIT.usage],
    [
      "a method that the url does not have",
      () => withdraw({ allBeforeNow: true, method: "POST" }, urlOf(NAME)),
      EXIT.unknown,
    ],
    [
      "a tool that the server does not have",
      () => withdraw({ allBeforeNow: true }, `${urlOf("mcp")}#max`),
      EXIT.unknown,
    ],
    // The endpoint is found, and has no record that could be withdrawn.
    ["a tool without a record", () => withdraw({ allBeforeNow: true }, `${urlOf("mcp")}#sum`), EXIT.already],
    ["the only tool, by its url", () => withdraw({ allBeforeNow: true }, urlOf("one-tool")), EXIT.already],
    ["a server with several tools", () => withdraw({ allBeforeNow: true }, urlOf("mcp")), EXIT.usage],
    [
      "an endpoint by a url with a fragment that is no tool",
      () => withdraw({ allBeforeNow: true }, `${urlOf("only-listed")}#top`),
      EXIT.already,
    ],
    ["a record of nobody", () => withdraw({ record: [probe.eventId, unseen] }), EXIT.unknown],
    ["a part of a paid call", () => withdraw({ record: [came.eventId] }), EXIT.usage],
    ["neither records nor all", () => withdraw({}), EXIT.usage],
    ["records and all", () => withdraw({ record: [probe.eventId], allBeforeNow: true }), EXIT.usage],
    ["a fault that is none of ours", () => withdraw({ record: [probe.eventId], fault: "seller" }), EXIT.usage],
    ["no words", () => withdraw({ record: [probe.eventId], says: "" }), EXIT.usage],
    ["all of an endpoint without a record", () => withdraw({ allBeforeNow: true }, capOf("only-listed")), EXIT.already],
  ])("refuses %s and writes nothing", async (_, work, code) => {
    expect(await codeOf(work())).toBe(code);
    expect([await inLog(), lines]).toEqual([[], []]);
  });

  test("withdraws records of segment and log together, once; the url names the endpoint as well", async () => {
    await withdraw(
      { record: [probe.eventId, call.eventId, probe.eventId], gradeAt: "2026-11-11T00:00:00Z" },
      urlOf(NAME),
    );
    const done = JSON.parse(lines.join("")) as { withdrawn: number; of: number; look: string };
    expect(done).toMatchObject({ withdrawn: 2, of: 2, look: `https://touchstone.test/v1/trust/${CAP}` });
    const both = await inLog();
    expect(both).toMatchObject([
      { type: "correction", record_id: probe.eventId, observed_at: T, grade_at: "2026-11-11T00:00:00.000Z" },
      { type: "correction", record_id: call.eventId, observed_at: later(T, 60_000), fault: "our_clock" },
    ]);
    expect(await codeOf(withdraw({ record: [call.eventId] }))).toBe(EXIT.already);
    expect(await codeOf(withdraw({ allBeforeNow: true }))).toBe(EXIT.already);
    expect(await inLog()).toHaveLength(2);
  });
});

describe("touchstone reinstate", () => {
  test("takes one correction back, once; then its record can be withdrawn again", async () => {
    const [first] = await inLog();
    const id = String(first!.id);
    expect(await codeOf(reinstate(config, "cor_unknown", { says: "x" }))).toBe(EXIT.unknown);
    expect(await codeOf(reinstate(config, id, { says: " " }))).toBe(EXIT.usage);
    await reinstate(config, id, { says: "it was right" });
    expect(lines.join("")).toContain(`Taken back: ${id}`);
    expect(await codeOf(reinstate(config, id, { says: "again" }))).toBe(EXIT.already);
    await withdraw({ record: [probe.eventId], json: false });
    expect(lines.join("")).toContain("Withdrawn: 1 of 1 records");
    expect((await inLog()).map((one) => one.type)).toEqual(["correction", "correction", "reinstated", "correction"]);
  });
});

describe("touchstone dispute", () => {
  const file = (value: unknown): string => {
    const path = join(dir, "dispute.json");
    writeFileSync(path, typeof value === "string" ? value : JSON.stringify(value));
    return path;
  };
  const disputes = async () => (await inLog()).filter((one) => one.type === "dispute");
  const now = () => new Date();

  test.each<[string, () => Promise<unknown>, number]>([
    ["no JSON", async () => "{", EXIT.unreadable],
    ["another service", () => signedDispute(NAME, now(), { service: "https://other.test" }), EXIT.unreadable],
    ["an endpoint of nobody", () => signedDispute("nobody", now()), EXIT.unknown],
    ["a record of nobody", () => signedDispute(NAME, now(), { record_id: unseen }), EXIT.unknown],
    ["a stranger", () => signedDispute(NAME, now(), {}, STRANGER), EXIT.signature],
    [
      "a stranger in the payee's name",
      () => signedDispute(NAME, now(), { pay_to: SELLER.address }, STRANGER),
      EXIT.signature,
    ],
  ])("refuses %s", async (_, make, code) => {
    expect(await codeOf(dispute(config, file(await make()), {}))).toBe(code);
    expect(await disputes()).toEqual([]);
  });

  test("records one that a payTo of any 402 signed, once", async () => {
    expect(await codeOf(dispute(config, join(dir, "absent.json"), {}))).toBe(EXIT.unreadable);
    const signed = await signedDispute(NAME, now(), { record_id: call.eventId });
    await dispute(config, file(signed), { json: true });
    const [one] = await disputes();
    expect(one).toMatchObject({ ...signed, received_at: expect.any(String) });
    expect(JSON.parse(lines.join(""))).toMatchObject({ capability_id: CAP, dispute: one!.id });
    expect(await codeOf(dispute(config, file(signed), {}))).toBe(EXIT.already);
    expect(await disputes()).toHaveLength(1);
  });
});
