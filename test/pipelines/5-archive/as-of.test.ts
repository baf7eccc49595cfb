import { afterAll, beforeAll, expect, test } from "vitest";
import type { NewRecord } from "../../../infra/log/log.ts";
import { inputLine, type Sample } from "../../../pipelines/3-grade/sample.ts";
import { EndpointEvidence } from "../../../pipelines/audit/as-of.ts";
import type { EvidenceLine } from "../../../pipelines/record/evidence.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import { fc } from "../../helpers/histories.ts";
import {
  at,
  CAME,
  capOf,
  correction,
  dispute,
  followup,
  handshake,
  intent,
  later,
  NOTHING,
  reinstated,
  result,
  settlement,
} from "../2-ingest/records.ts";
import { PARTITIONS } from "../2-ingest/world.ts";
import { ArchiveWorld } from "./world.ts";

/**
 * The row of a sample as of any position of the log, from evidence files alone, is the row that the lake had then:
 * whatever the order in which its records came, on whatever days, and however often the days were closed in between.
 */
let world: ArchiveWorld;
beforeAll(async () => {
  world = await ArchiveWorld.open();
});
afterAll(() => world.close());

/** Records of one paid call and what is said of it, spread over three days; `pick` chooses what came and in which order. */
function recordsOf(name: string): NewRecord[] {
  const T = at("23:58:00");
  const paid = intent(name, T);
  const id = paid.eventId;
  const END = later(T, 4_000);
  const shown = (ms: number, over: object) =>
    followup(name, id, later(END, ms), { kind: "shown_again", shown_again: { ...NOTHING, watched: true, ...over } });
  const probe = handshake(name, at("05:00:00"));
  return [
    paid,
    probe,
    handshake(name, at("04:00:00"), { state: "malformed", pay_to: null, honest: null }),
    handshake(name, at("06:30:00", "2026-11-11"), { wall: true, live: false, state: "wall", pay_to: null }),
    result(name, id, END, NOTHING),
    result(name, id, later(END, 5), { ...NOTHING, status: 200, response_sha256: "cd".repeat(32), response_bytes: 9 }),
    result(name, id, later(END, 10), { ...NOTHING, watched: false, ended: "unknown", fault: "ours" }),
    settlement(name, id, later(T, 3_000), { final: false }),
    settlement(name, id, later(T, 200_000), { as_quoted: false }),
    shown(60_000, {}),
    shown(120_000, { ...CAME, latency_ms: 40 }),
    shown(500_000, { ...CAME, outcome: 1, watched: false }),
    followup(name, id, at("09:00:00", "2026-11-11"), { kind: "finality" }),
    followup(name, id, at("10:00:00", "2026-11-12"), { kind: "refund", refund: { tx: "0x1", amount_atomic: "20000" } }),
    correction(name, at("12:00:00", "2026-11-11"), { id: "c1", record_id: probe.eventId }),
    correction(name, at("12:30:00", "2026-11-11"), { id: "c2" }),
    dispute(name, at("11:00:00", "2026-11-11"), probe.eventId),
    reinstated(name, at("13:00:00", "2026-11-12"), "c2"),
  ];
}

interface Then {
  positions: Record<string, number>;
  rows: string[];
  withdrawn: string[];
  site: unknown;
}

/** What the lake says of an endpoint now. */
async function lakeNow(cap: string): Promise<Then> {
  const { lake, ingest } = world.ingest;
  const rows = await lake.all<Sample>("SELECT * EXCLUDE (row, cap) FROM every_sample WHERE cap = $cap", { cap });
  const withdrawn = await lake.all<{ obs_id: string }>("SELECT obs_id FROM withdrawal WHERE cap = $cap", { cap });
  const [site] = await lake.all<{ pay_to: string | null; disputed: boolean }>(
    "SELECT pay_to, disputed FROM site WHERE cap = $cap",
    { cap },
  );
  const part = String(partitionOf(cap, PARTITIONS));
  const positions = Object.entries(await ingest.positions()).map(([topic, next]) => [topic, next[part] ?? 0] as const);
  return {
    positions: Object.fromEntries(positions),
    rows: rows.map(textOf).sort(),
    withdrawn: withdrawn.map(({ obs_id }) => obs_id).sort(),
    site: site ?? { pay_to: null, disputed: false },
  };
}

/** The row with everything that a grade reads of it. */
const textOf = (row: Sample): string => inputLine(row) + JSON.stringify([row.input, row.response_sha256, row.pay_to]);

async function evidenceOf(caps: readonly string[]): Promise<Map<string, EndpointEvidence>> {
  const evidence = new Map(caps.map((cap) => [cap, new EndpointEvidence()]));
  // Lines of payee tables name no endpoint.
  for (const line of (await world.evidenceLines()) as EvidenceLine[]) evidence.get(line.capability_id)?.add(line);
  return evidence;
}

function asOf(evidence: EndpointEvidence, cap: string, positions: Record<string, number>): Omit<Then, "positions"> {
  const { rows, withdrawn, pay_to, disputed } = evidence.endpointAsOf(cap, positions, null);
  return { rows: rows.map(textOf).sort(), withdrawn: [...withdrawn].sort(), site: { pay_to, disputed } };
}

/**
 * Each endpoint's records in an order of its own, dealt in turns; after which of the turns the lake is asked, or days
 * closed.
 */
const plan = fc.record({
  orders: fc.array(fc.shuffledSubarray([...recordsOf("x").keys()], { minLength: 6 }), { minLength: 8, maxLength: 8 }),
  looks: fc.uniqueArray(fc.integer({ min: 0, max: 17 }), { minLength: 3, maxLength: 3 }),
  closes: fc.uniqueArray(fc.integer({ min: 0, max: 17 }), { minLength: 2, maxLength: 2 }),
});
const CLOSES = ["2026-11-11T06:00:00.000Z", "2026-11-12T07:00:00.000Z", "2026-11-13T08:00:00.000Z"];

let n = 0;
test("a row as of a card is what the lake had, at every position and in every order of arrival", async () => {
  await fc.assert(
    fc.asyncProperty(plan, async ({ orders, looks, closes }) => {
      const dealt = orders.map((order) => {
        const name = `seller-${n++}`;
        return { cap: capOf(name), records: recordsOf(name), order };
      });
      const seen: [string, Then][] = [];
      const look = async () => {
        await world.ingest.ingest.pass();
        for (const { cap } of dealt) seen.push([cap, await lakeNow(cap)]);
      };
      for (let turn = 0; turn < 18; turn++) {
        const next = dealt.flatMap(({ records, order }) => (turn < order.length ? [records[order[turn]!]!] : []));
        if (next.length > 0) await world.ingest.append(...next);
        if (looks.includes(turn)) await look();
        const at = closes.indexOf(turn);
        if (at >= 0) await world.closeDays(CLOSES[at]!);
      }
      await look();
      await world.closeDays(CLOSES[2]!);
      const evidence = await evidenceOf(dealt.map(({ cap }) => cap));
      for (const [cap, { positions, ...want }] of seen) {
        expect(asOf(evidence.get(cap)!, cap, positions)).toEqual(want);
      }
    }),
    { numRuns: 3, endOnFailure: true },
  );
});
