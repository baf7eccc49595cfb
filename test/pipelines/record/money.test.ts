import { describe, expect, test } from "vitest";
import { atomicToMicro, feeOf, formatMoney, parseAtomic, parseMoney } from "../../../pipelines/record/money.ts";
import { fc } from "../../helpers/histories.ts";

const micro = fc.bigInt({ min: 0n, max: 10n ** 18n - 1n });

describe("money", () => {
  test("text and micro-units are the same amount both ways", () => {
    fc.assert(
      fc.property(micro, (amount) => {
        expect(parseMoney(formatMoney(amount))).toBe(amount);
      }),
    );
  });

  test("what is printed is the interface's form: digits, a dot, six digits", () => {
    fc.assert(
      fc.property(micro, (amount) => {
        expect(formatMoney(amount)).toMatch(/^\d{1,12}\.\d{6}$/);
      }),
    );
  });

  test.each([
    ["0.02", 20_000n],
    ["1.5", 1_500_000n],
    ["000.000001", 1n],
    ["999999999999.999999", 10n ** 18n - 1n],
  ])("%s", (text, amount) => {
    expect(parseMoney(text)).toBe(amount);
  });

  test.each([
    "1",
    ".5",
    "1.",
    "-1.0",
    "+1.0",
    "1e3",
    "1.0000001",
    "1000000000000.0",
    "$1.00",
    " 1.0",
    "1,0",
    "NaN",
    "١.٠",
  ])("%s is no money", (text) => {
    expect(() => parseMoney(text)).toThrow("not money: ");
  });

  test("a negative or too large amount is never printed", () => {
    expect(() => formatMoney(-1n)).toThrow("not money: ");
    expect(() => formatMoney(10n ** 18n)).toThrow("not money: ");
  });
});

describe("atomic units", () => {
  test.each([
    ["10000", 10_000n],
    ["0", 0n],
    ["9".repeat(78), BigInt("9".repeat(78))],
  ])("%s", (text, amount) => {
    expect(parseAtomic(text)).toBe(amount);
  });

  test.each(["", "0.001", "$0.01", "-1", "1e18", "0x10", "9".repeat(79), 40_000, null, {}])("%j is none", (value) => {
    expect(parseAtomic(value)).toBeNull();
  });

  test("18 decimals convert only when nothing is lost", () => {
    expect(atomicToMicro(10n ** 18n, 18)).toBe(1_000_000n);
    expect(atomicToMicro(10n ** 18n + 1n, 18)).toBeNull();
    expect(atomicToMicro(123n, 2)).toBe(1_230_000n);
    expect(atomicToMicro(10n ** 78n, 18)).toBeNull();
  });
});

test("the fee is 10 % rounded up, at least 0.002", () => {
  expect(feeOf(10_000n)).toBe(2000n);
  expect(feeOf(20_000n)).toBe(2000n);
  expect(feeOf(20_001n)).toBe(2001n);
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 10n ** 12n }), (price) => {
      expect(feeOf(price) >= 2000n).toBe(true);
      expect(feeOf(price) * 10n >= price).toBe(true);
      expect((feeOf(price) - 1n) * 10n < price || feeOf(price) === 2000n).toBe(true);
    }),
  );
});
