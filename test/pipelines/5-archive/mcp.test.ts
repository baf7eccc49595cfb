import { afterAll, beforeAll, expect, test } from "vitest";
import type { GradeLeaf } from "../../../pipelines/record/leaf.ts";
import { notOk } from "../../helpers/published.ts";
import { capOf, handshake, listing } from "../2-ingest/records.ts";
import { toolCap, toolListing, toolProbe } from "./tools.ts";
import { ArchiveWorld } from "./world.ts";

const D1 = "2026-11-10";

let world: ArchiveWorld;
beforeAll(async () => {
  world = await ArchiveWorld.open();
});
afterAll(() => world.close());

// Archives a day and audits it.
test("probes and grades of an MCP tool have files of their own, and the auditor finds them whole", async () => {
  const probes = ["01:00", "07:00"].map((time) =>
    toolProbe("t", `${D1}T${time}:00.000Z`, { tool: "zwei\n\u2028\u0001" }),
  );
  await world.ingest.append(
    listing("a", `${D1}T00:00:00.000Z`, { seller_controlled: true }),
    handshake("a", `${D1}T02:10:00.000Z`, { planned: "asked" }),
    toolListing("t", `${D1}T00:00:00.000Z`),
    ...probes,
  );
  await world.grade(`${D1}T23:00:00.000Z`);
  const { rows, removed } = await world.archive("2027-03-01T00:00:00.000Z");
  const files = await world.filed();
  const rowsOf = Object.fromEntries(files.map(({ manifest }) => [manifest.subject, manifest.rows]));
  expect(rowsOf).toEqual({ liveness_probes: 1, mcp_probes: 2, grades: 1, mcp_grades: 1 });
  expect([rows, removed]).toEqual([5, 3]);

  const linesOf = async <T>(subject: string): Promise<T[]> =>
    (await world.linesOf(files.find(({ manifest }) => manifest.subject === subject)!)).map(
      (line) => JSON.parse(line) as T,
    );
  const told = await linesOf<Record<string, unknown>>("mcp_probes");
  expect(told.map(({ record_id }) => record_id).sort()).toEqual(probes.map(({ eventId }) => eventId).sort());
  for (const line of told) {
    expect(line).toMatchObject({
      capability_id: toolCap("t"),
      initialize_ms: 12,
      tool: "zwei\n\u2028\u0001",
      tool_present: true,
    });
  }
  expect((await linesOf<GradeLeaf>("mcp_grades")).map(({ card }) => card.capability_id)).toEqual([toolCap("t")]);
  expect((await linesOf<GradeLeaf>("grades")).map(({ card }) => card.capability_id)).toEqual([capOf("a")]);
  expect(await world.ingest.lake.all("FROM event WHERE type IN ('handshake', 'mcp.probe')")).toEqual([]);

  expect(notOk(await world.audit())).toEqual([]);
  await world.prove();

  // A new lake does not bring them back.
  await world.ingest.ingest.rebuild();
  expect(await world.ingest.lake.all("FROM event WHERE type IN ('handshake', 'mcp.probe')")).toEqual([]);
  expect(await world.ingest.lake.all("SELECT sum(probes)::INTEGER AS n FROM seen")).toEqual([{ n: 3 }]);
});
