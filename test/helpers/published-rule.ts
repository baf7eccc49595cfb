import { createHmac } from "node:crypto";
import { expect } from "vitest";
import { parseMoney } from "../../pipelines/record/money.ts";
import type { DayPlan, PlanLine, PlannedCall } from "../../pipelines/record/plan.ts";
import { platformOf, registrableDomain } from "../../pipelines/record/url.ts";

/** The rule of docs/schedule.md, written down a second time from its words, for whoever holds a plan against it. */

/** Caps of a day as the settings have them. */
export type DayCaps = Readonly<
  Record<"per_call" | "per_host_day" | "per_domain_day" | "per_payee_day" | "per_day", string>
>;

/** The calls of one block that follow from the opened salt. @param n which block of the day, 0 to 3 */
export function callsByRule(salt: Uint8Array, line: PlanLine, block: number, n: number): PlannedCall[] {
  const bytes = createHmac("sha256", salt).update(line.cap).digest();
  const at = { block, minute: bytes.readUInt16BE(8) % 360 };
  const probe: PlannedCall = { ...at, kind: "probe", blind: false };
  const isDaily = line.base_per_day === 1;
  if (!line.covered || (isDaily && bytes[0]! % 4 !== n)) return [probe];
  return [probe, { ...at, kind: "paid", blind: bytes[isDaily ? 1 : 2 + n]! < 64 }];
}

type Room = readonly [why: string, key: string, most: bigint];

/** What an endpoint's day is counted in, with the cap of each. Hosts have a domain or are this machine's. */
function roomsOf({ host, payee }: PlanLine, caps: DayCaps): Room[] {
  const rooms: Room[] = [
    ["per_host_day", `host ${host}`, parseMoney(caps.per_host_day)],
    ["per_domain_day", `domain ${registrableDomain(`http://${host}/`)}`, parseMoney(caps.per_domain_day)],
    ["per_day", "day", parseMoney(caps.per_day)],
  ];
  // A platform of many domains has four times a domain's day, and is named as a domain's cap.
  const platform = platformOf(`http://${host}/`);
  if (host.endsWith(`.${platform}`) && registrableDomain(`http://${host}/`) !== platform) {
    rooms.push(["", `platform ${platform}`, 4n * parseMoney(caps.per_domain_day)]);
  }
  if (payee) rooms.push(["per_payee_day", `payee ${payee.toLowerCase()}`, parseMoney(caps.per_payee_day)]);
  return rooms;
}

/** What is covered fits into every cap; what is not is kept out by the cap that its line names, which its day passes. */
export function expectCovered({ lines }: DayPlan, caps: DayCaps): void {
  const sums = new Map<string, bigint>();
  const dayOf = ({ price_micro }: PlanLine): bigint => 4n * BigInt(price_micro ?? 0);
  for (const line of lines.filter(({ covered }) => covered)) {
    for (const [, key] of roomsOf(line, caps)) sums.set(key, (sums.get(key) ?? 0n) + dayOf(line));
  }
  for (const line of lines) {
    for (const [why, key, most] of roomsOf(line, caps)) {
      const sum = sums.get(key) ?? 0n;
      if (line.covered) expect([key, sum <= most]).toEqual([key, true]);
      if (line.why === why) expect([key, sum + dayOf(line) > most]).toEqual([key, true]);
    }
    if (line.why === "per_call") expect(BigInt(line.price_micro!)).toBeGreaterThan(parseMoney(caps.per_call));
  }
}
