import { expect, test } from "vitest";
import { letterLines, type MarketLetters, type SellerLetter } from "../../commands/letters.ts";

const one = (change: Partial<SellerLetter>): SellerLetter => ({
  seller: "honest",
  url: "http://127.0.0.2:20002/sum?a=1&b=2",
  capability_id: "cap_1",
  band: "A",
  tier: "OUTCOME_VERIFIED",
  composite: 0.566999,
  why: "A on OUTCOME_VERIFIED, composite 0.566.",
  flags: [],
  defects: [],
  samples: 208,
  ...change,
});
const tableOf = (...market: SellerLetter[]): string[] => {
  const simulated = { from: "2026-10-01", until: "2026-11-09T08:00:00.000Z" };
  const result: MarketLetters = { simulated, took_s: 61.5, tree_size: 700, market };
  return letterLines(result, "http://127.0.0.1:8402");
};

test("a line a seller under one head, its address and its reason beneath it, flags and defects named", () => {
  const why = `UNRATED: ${"3 of 30 paid calls so far ".repeat(12).trim()}.`;
  const nobody = { band: "UNRATED", seller: "newcomer", tier: null, composite: null, samples: 3, why };
  const lines = tableOf(one({}), one({ ...nobody, flags: ["dark", "no_example"], defects: ["terms_in_body"] }));
  expect(lines[1]).toBe("letter   seller    tier     composite  records");
  expect(lines[2]).toBe("A        honest    outcome  0.566      208");
  expect(lines[3]).toBe("    http://127.0.0.2:20002/sum?a=1&b=2");
  expect(lines[4]).toBe("    A on OUTCOME_VERIFIED, composite 0.566.");
  expect(lines[5]).toBe("UNRATED  newcomer  -        -          3");
  const flags = lines.indexOf("    flags: dark, no_example");
  expect(lines[flags + 1]).toBe("    defects: terms_in_body");
  const wrapped = lines.slice(7, flags);
  expect(wrapped.length).toBeGreaterThan(2);
  expect(wrapped.map((line) => line.trim()).join(" ")).toBe(why);
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(120);
});

test("says how long it took and what to ask next", () => {
  const text = tableOf(one({})).join("\n");
  expect(text).toContain("was simulated in 61.5 s; 700 leaves are published.");
  expect(text).toContain(
    "curl 'http://127.0.0.1:8402/v1/check?url=http%3A%2F%2F127.0.0.2%3A20002%2Fsum%3Fa%3D1%26b%3D2'",
  );
});
