import { afterEach, expect, test, vi } from "vitest";
import { EndpointEvidence } from "../../../pipelines/audit/as-of.ts";
import type { EvidenceLine } from "../../../pipelines/record/evidence.ts";

afterEach(() => void vi.restoreAllMocks());

const at = (minute: number): string => new Date(Date.UTC(2026, 10, 1, 0, minute)).toISOString();
const sample = (n: number) => ({ obs_id: `rec_${n}`, topic: "handshakes", position: n, first: n, t: at(n), kind: 1 });
const record = (n: number, field: string, value: object) => ({
  ...{ of: "cap_x", topic: "corrections", position: n, observed_at: at(n), field, value },
});
function evidenceOf(...lines: object[]): EndpointEvidence {
  const evidence = new EndpointEvidence();
  for (const line of lines) evidence.add(line as EvidenceLine);
  return evidence;
}
const asOf = (evidence: EndpointEvidence) =>
  evidence.endpointAsOf("cap_x", { handshakes: 10_000, corrections: 10_000 }, null);

test("a correction withdraws its own record, and one without a record everything before it was issued", () => {
  const samples = [1, 2, 3, 4].map(sample);
  const own = record(1, "correction", { id: "c1", record_id: "rec_4", issued_at: at(9) });
  const early = record(2, "correction", { id: "c2", issued_at: at(1) });
  const late = record(3, "correction", { id: "c3", record_id: null, issued_at: at(3) });
  const withdrawn = (...records: object[]) => [...asOf(evidenceOf(...samples, ...records)).withdrawn];
  expect(withdrawn()).toEqual([]);
  expect(withdrawn(own)).toEqual(["rec_4"]);
  expect(withdrawn(late, own, early)).toEqual(["rec_1", "rec_2", "rec_4"]);
  expect(withdrawn(late, own, early, record(4, "reinstated", { correction: "c3" }))).toEqual(["rec_4"]);
});

test("a dispute is open until a correction of its record, or of all records, follows", () => {
  const dispute = record(5, "dispute", { record_id: "rec_1" });
  const correction = (minute: number, record_id: string | null) =>
    record(minute, "correction", { id: `c${minute}`, record_id, issued_at: at(minute) });
  const isDisputed = (...records: object[]) => asOf(evidenceOf(...records)).disputed;
  expect([isDisputed(), isDisputed(dispute)]).toEqual([false, true]);
  expect([isDisputed(dispute, correction(5, "rec_1")), isDisputed(dispute, correction(6, null))]).toEqual([
    false,
    false,
  ]);
  expect([isDisputed(dispute, correction(4, "rec_1")), isDisputed(dispute, correction(6, "rec_2"))]).toEqual([
    true,
    true,
  ]);
  expect(isDisputed(dispute, correction(6, "rec_1"), record(7, "reinstated", { correction: "c6" }))).toBe(true);
});

test("each row is compared once, however many corrections a service wrote", () => {
  const rows = 200;
  const corrections = Array.from({ length: rows }, (_, n) =>
    record(n, "correction", { id: `c${n}`, issued_at: at(0) }),
  );
  const evidence = evidenceOf(...Array.from({ length: rows }, (_, n) => sample(n)), ...corrections);
  const read = vi.spyOn(Date.prototype, "getTime");
  expect(asOf(evidence).withdrawn.size).toBe(0);
  expect(read.mock.calls.length).toBeLessThan(10 * rows);
});
