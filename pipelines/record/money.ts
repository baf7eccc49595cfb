import { Failure } from "../../infra/errors.ts";

/**
 * The form of money on the wire: dollars as a decimal text. In memory money is a BigInt of micro-units (millionths of
 * a dollar).
 */
const MONEY = /^\d{1,12}\.\d{1,6}$/;

/** Makes the error for a text or a number that is no amount of money. */
const createNotMoneyError = (given: unknown): Failure =>
  new Failure("failed", `not money: ${JSON.stringify(String(given).slice(0, 60))}`);

/**
 * Parses money: "0.02" gives 20000n.
 * @throws Failure
 */
export function parseMoney(text: string): bigint {
  if (typeof text !== "string" || !MONEY.test(text)) throw createNotMoneyError(text);
  const [wholePart, fraction] = text.split(".") as [string, string];
  return BigInt(wholePart) * 1_000_000n + BigInt(fraction.padEnd(6, "0"));
}

/**
 * Formats money with six decimals: 20000n gives "0.020000".
 * @throws Failure below zero, or for more than twelve digits before the dot
 */
export function formatMoney(micro: bigint): string {
  if (micro >= 10n ** 18n) throw createNotMoneyError(micro);
  return formatSum(micro);
}

/**
 * Formats a sum of money, which may have more than twelve digits before the dot, with six decimals.
 * @throws Failure below zero
 */
export function formatSum(micro: bigint): string {
  if (micro < 0n) throw createNotMoneyError(micro);
  const text = micro.toString().padStart(7, "0");
  return `${text.slice(0, -6)}.${text.slice(-6)}`;
}

/** Parses what {@link formatSum} prints. @throws Failure */
export function parseSum(text: string): bigint {
  if (!/^\d{1,40}\.\d{6}$/.test(text)) throw createNotMoneyError(text);
  return BigInt(text.replace(".", ""));
}

/** An amount in a token's atomic units, which the chain holds as uint256: up to 78 digits. */
const ATOMIC = /^\d{1,78}$/;

/** Parses a whole number of atomic units; null for anything else, such as "0.001" or "$1". */
export function parseAtomic(text: unknown): bigint | null {
  return typeof text === "string" && ATOMIC.test(text) ? BigInt(text) : null;
}

/** Converts atomic units of an asset with `decimals` to micro-units; null when the result is not exact or too large. */
export function atomicToMicro(atomic: bigint, decimals: number): bigint | null {
  if (atomic < 0n || decimals < 0 || decimals > 36) return null;
  if (decimals <= 6) {
    const micro = atomic * 10n ** BigInt(6 - decimals);
    return micro < 10n ** 18n ? micro : null;
  }
  const unit = 10n ** BigInt(decimals - 6);
  if (atomic % unit !== 0n) return null;
  const micro = atomic / unit;
  return micro < 10n ** 18n ? micro : null;
}

/** Returns the service's fee on a seller's price, micro-units: 10 %, rounded up, at least 0.002 dollars (orders.md). */
export const feeOf = (price: bigint): bigint => {
  const tenth = (price + 9n) / 10n;
  return tenth > 2000n ? tenth : 2000n;
};
