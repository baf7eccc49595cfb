import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { canonicalText } from "../../../infra/canonical.ts";
import type { NewRecord } from "../../../infra/log/log.ts";
import { lakePositions } from "../../../pipelines/2-ingest/load.ts";
import { makeProbeFiles, readDaySpans } from "../../../pipelines/5-archive/probe-files.ts";
import { PROBE_SUBJECTS, type ProbeSubject } from "../../../pipelines/5-archive/read-back.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { SEED } from "../../helpers/drawn.ts";
import { fc } from "../../helpers/histories.ts";
import { handshake, later, TERMS } from "../2-ingest/records.ts";
import { openTestWorld, PARTITIONS, type World } from "../2-ingest/world.ts";
import { toolProbe } from "./tools.ts";

const D1 = "2026-11-10";
const ROWS = 160;

let world: World;
beforeAll(async () => {
  world = await openTestWorld();
});
afterAll(() => world.close());

/** What strangers put where a name is expected. */
const odd = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        "\u0000",
        "\u001f",
        "\n",
        "\r",
        "\t",
        "\b",
        "\u007f",
        "\u2028",
        "\u2029",
        "\ufeff",
        '"',
        "\\",
        "/",
      ),
      fc.constantFrom(
        "\\u00",
        '","record_id":"rec_',
        "}\n{",
        "é",
        "漢",
        "🜚",
        "<",
        "\ue000",
        "\ufffd",
        "{}",
        "[]",
        "null",
      ),
      fc.string({ maxLength: 4 }),
    ),
    { maxLength: 8 },
  )
  .map((parts) => parts.join(""));
/** Numbers that engines print in different ways. */
const number = fc.oneof(
  fc.constantFrom(
    0,
    0.1 + 0.2,
    1e-7,
    1.5e-5,
    5e-324,
    1e15,
    123456789012345680,
    1e21,
    1e300,
    2 ** 53,
    99.99999999999999,
  ),
  fc.double({ min: 0, max: 1e6, noNaN: true }),
  fc.integer({ min: 0, max: 60_000 }),
);
const offer = fc
  .record({ network: odd, network_raw: odd, asset: fc.option(odd), payable: fc.boolean() })
  .map((over) => ({ ...TERMS.offers[0]!, ...over }));
const terms = fc
  .record({
    offers: fc.array(offer, { maxLength: 3 }),
    protocols: fc.subarray<"x402" | "mpp">(["x402", "mpp"]),
  })
  .map((over) => ({ ...TERMS, ...over }));
const seen = fc.record({
  state: fc.constantFrom("asked" as const, "wall" as const, "silent" as const),
  wall: fc.boolean(),
  fault: fc.constantFrom(null, "ours" as const, "blocked" as const),
  status: fc.option(fc.oneof(fc.constantFrom(402, 0, 2 ** 53 - 1, -1), fc.integer())),
  latency_ms: fc.option(number),
  price: fc.option(fc.constantFrom("0.020000", "999999999999.999999")),
  terms: fc.option(terms),
  says: odd,
});
const tool = fc.record({ initialize_ms: fc.option(number), tool: odd, tool_present: fc.option(fc.boolean()) });

interface Row {
  event_id: string;
  cap: string;
  t: number;
  body: string;
}

/** What was appended, as the log has it. */
function appendedRow({ value }: Pick<NewRecord, "value">): Row {
  const { event_id, cap, key, observed_at, body } = JSON.parse(Buffer.from(value).toString("utf8"));
  return { event_id, cap: cap ?? key, t: Date.parse(observed_at), body: JSON.stringify(body) };
}

async function filesOf(subject: ProbeSubject, day: string, rowsAFile?: number) {
  const ends = (await lakePositions(world.lake))[PROBE_SUBJECTS[subject].topic]!;
  const parts = await Promise.all(
    Array.from({ length: PARTITIONS }, async (_, part) => ({
      ...{ part, first: 0, next: ends[String(part)] ?? 0 },
      spans: await readDaySpans(world.lake, subject, day, part),
    })),
  );
  const from = { printer: world.lake, privateStore: world.store, logId: world.log.id };
  return (await makeProbeFiles(from, { subject, day, parts }, rowsAFile ? { rowsAFile } : {})).files;
}

/** What the design says of a row (records.md, Archive rows), by the book: member by member, printed by RFC 8785. */
function rowOf({ event_id, cap, t, body }: Row, isTool: boolean): string {
  const said = JSON.parse(body) as BodyOf<"mcp.probe">;
  const row: Record<string, unknown> = { record_id: event_id, capability_id: cap };
  row.observed_at = new Date(t).toISOString();
  row.fault = said.fault;
  if (said.fault === null && said.wall) row.fault = "blocked";
  row.counts = row.fault !== "ours";
  for (const name of ["state", "status", "latency_ms"] as const) row[name] = said[name];
  row.amount = said.price;
  // Of what we would have signed; where that names none, of what was offered first.
  const [first] = said.terms?.offers ?? [];
  const [signable] = said.terms?.offers.filter((one) => one.payable) ?? [];
  row.asset = signable?.asset ?? first?.asset ?? null;
  const networks = said.terms?.offers.map((one) => Buffer.from(one.network).toString("hex")) ?? [];
  row.networks = [...new Set(networks)].sort().map((hex) => Buffer.from(hex, "hex").toString());
  row.protocols = said.terms === null ? [] : said.terms.protocols;
  row.terms_sha256 = said.terms === null ? null : said.terms.sha256;
  if (isTool) for (const name of ["initialize_ms", "tool", "tool_present"] as const) row[name] = said[name];
  return canonicalText(row);
}

/** Ways to write the same value that a foreign producer may have: none of them is RFC 8785. */
const WRITINGS: ((text: string) => string)[] = [
  (text) => text,
  (text) => JSON.stringify(JSON.parse(text), null, 1),
  (text) =>
    text.replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`),
  (text) => text.replace(/("status"):(\d{1,9})(?=,)/g, "$1:$2.0"),
  (text) => text.replace(/("latency_ms"):(\d{1,9})(?=,)/g, "$1:$2e0"),
];
const written = (record: NewRecord & { eventId: string }, how: number) => ({
  ...record,
  value: Buffer.from(WRITINGS[how % WRITINGS.length]!(Buffer.from(record.value).toString("utf8"))),
});

test.each<[ProbeSubject, string]>([
  ["liveness_probes", "handshake"],
  ["mcp_probes", "mcp.probe"],
])(
  "%s: whatever strangers say and however it is written, a line is what RFC 8785 makes of the record",
  async (subject, type) => {
    const drawn = fc.sample(fc.tuple(seen, tool), { numRuns: ROWS, seed: SEED });
    const records = drawn.map(([over, told], n) => {
      const time = later(`${D1}T00:00:00.000Z`, n * 60_000);
      const made =
        type === "handshake" ? handshake(`s${n % 7}`, time, over) : toolProbe(`s${n % 7}`, time, { ...over, ...told });
      return written(made, n);
    });
    await world.append(...records);
    await world.ingest.pass();
    const rows = records.map(appendedRow).sort((a, b) => (a.cap + a.event_id < b.cap + b.event_id ? -1 : 1));
    const files = await filesOf(subject, D1, 50);
    expect(files.map((file) => file.rows)).toEqual([50, 50, 50, 10]);
    const text = (
      await Promise.all(files.map(async ({ path }) => decompress(await readFile(path)).toString("utf8")))
    ).join("");
    const lines = text.split("\n").slice(0, -1);
    expect(lines).toEqual(rows.map((row) => rowOf(row, type === "mcp.probe")));
    const values = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(values.map((value) => canonicalText(value))).toEqual(lines);
    const bodies = new Map(rows.map(({ event_id, body }) => [event_id, JSON.parse(body) as BodyOf<"mcp.probe">]));
    for (const { record_id, latency_ms, status, ...value } of values) {
      const body = bodies.get(String(record_id))!;
      expect([latency_ms, status]).toEqual([body.latency_ms, body.status]);
      if (type === "mcp.probe") expect([value.tool, value.initialize_ms]).toEqual([body.tool, body.initialize_ms]);
    }
  },
);

test("half of a surrogate pair never becomes a row: its record is set aside, its neighbours are filed", async () => {
  const DAY = "2026-11-12";
  const good = handshake("good", `${DAY}T01:00:00.000Z`);
  const bad = handshake("bad", `${DAY}T01:00:00.000Z`, { says: "HALF" });
  const half = Buffer.from(Buffer.from(bad.value).toString("utf8").replace('"HALF"', '"\\ud83d"'));
  await world.append(good, { ...bad, value: half });
  await world.ingest.pass();
  const files = await filesOf("liveness_probes", DAY);
  const [file, ...more] = files;
  expect([file?.rows, more]).toEqual([1, []]);
  expect(decompress(await readFile(file!.path)).toString("utf8")).toContain(good.eventId);
});
