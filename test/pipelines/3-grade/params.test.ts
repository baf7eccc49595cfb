import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { CHANGE_DELAYS_MS, CUSUM_LIMIT, PARAMS_SHA256, params, readParams } from "../../../pipelines/3-grade/params.ts";
import { SHARED_DESIGN } from "./vectors.ts";

const OWN = fileURLToPath(new URL("../../../pipelines/3-grade/grading-params.json", import.meta.url));
const SQL = fileURLToPath(new URL("../../../sql/grade/", import.meta.url));
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

describe("grading-params.json", () => {
  const text = readFileSync(OWN, "utf8");

  it("is the published file, byte for byte", () => {
    expect(sha256(text)).toBe(PARAMS_SHA256);
    expect(readParams(text)).toEqual(params);
    expect(() => readParams(JSON.stringify(JSON.parse(text)))).toThrow(/the method needs 355f7eec/);
  });

  it("is refused when one number differs", () => {
    const other = { ...params, hold_days: params.hold_days - 1 };
    expect(() => readParams(JSON.stringify(other))).toThrow(/the method needs 355f7eec/);
    expect(() => readParams("{}")).toThrow(/the method needs/);
  });

  it("is the file of the design folder, where that lies beside the repository", () => {
    const design = join(SHARED_DESIGN, "grading-params.json");
    if (!existsSync(design)) {
      console.warn(`NOT COMPARED with the design page: ${design} is not there; the hash alone stands for it`);
      expect(PARAMS_SHA256).toMatch(/^[0-9a-f]{64}$/);
      return;
    }
    const published = readFileSync(design, "utf8");
    expect(sha256(published)).toBe(PARAMS_SHA256);
    expect(text).toBe(published);
  });

  it("gives the numbers that it writes inside of words", () => {
    const hour = 3_600_000;
    expect(CHANGE_DELAYS_MS).toEqual({
      dark: 72 * hour,
      stalePaid: 30 * 24 * hour,
      unratedPaid: 60 * 24 * hour,
      unseen: 30 * 24 * hour,
      pendingTheft: 24 * hour,
      freshTheft: 30 * 24 * hour,
    });
    expect(CUSUM_LIMIT).toBe(Math.log(200));
  });
});

describe("sql/grade", () => {
  const files = readdirSync(SQL).sort();
  const code = files.map((name) => readFileSync(join(SQL, name), "utf8").replace(/--.*$/gm, "")).join("\n");

  it("writes no number of the method itself", () => {
    const literals = new Set(code.replace(/'[^']*'/g, "''").match(/(?<![\w.])\d+(\.\d+)?(e-?\d+)?(?![\w.])/g));
    // 0 and 1 are truth and count, 2 doubles; the rest is the printing of numbers: DECIMAL(18, 6), 1e-4, 1e15.
    expect([...literals].sort()).toEqual(["0", "0.0", "1", "1.0", "18", "1e-4", "1e15", "2", "6"].sort());
  });
});
