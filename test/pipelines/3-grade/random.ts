import { windowStart } from "../../../pipelines/3-grade/params.ts";
import type { Endpoint } from "../../../pipelines/3-grade/pure.ts";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";
import { fc } from "../../helpers/histories.ts";

export const NOW = new Date("2026-11-15T12:00:00.000Z");
const DAY = 86_400_000;
const BLOCK = 21_600_000;

/** mulberry32: rows by the thousand from one number, so that a failure is named by that number. */
export function dice(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** How an endpoint behaves and how we look at it. */
export interface Profile {
  seed: number;
  rows: number;
  days: number;
  live: number;
  honest: number;
  right: number;
  settles: number;
  serves: number;
  paid: number;
  published: number;
  faults: number;
  moves: number;
}

const share = fc.constantFrom(0, 0.05, 0.3, 0.5, 0.8, 0.95, 1);
const mostly = fc.constantFrom(0.2, 0.9, 0.97, 1, 1);
export const profile: fc.Arbitrary<Profile> = fc.record({
  seed: fc.integer(),
  rows: fc.constantFrom(0, 1, 3, 40, 150, 400),
  days: fc.constantFrom(1, 12, 40, 90, 100),
  live: mostly,
  honest: mostly,
  right: mostly,
  settles: mostly,
  serves: mostly,
  paid: share,
  published: fc.constantFrom(0, 0, 0.1, 0.4),
  faults: fc.constantFrom(0, 0.02, 0.2),
  moves: fc.constantFrom(0, 0.1, 1),
});

const PRICES = [0.01, 0.0102, 0.010201, 0.02, 0.000001, 0.000123, 1 / 3, 12.5];
const SCORES = [0, 1, 1, 0.5, 0.8, 1 / 3, 0.4999995, 0.499999, 0.0000005];
const OWN_FAULTS = ["ours", "blocked", "blocked", "bad_input"];
const BUYER_FAULTS = ["unconfirmed", "not_reproduced", "bad_input"];

/** Rows of one endpoint: crowded blocks, equal moments, missing fields, weights and scores that are no round numbers. */
export function rowsOf(cap: string, like: Profile): Sample[] {
  const roll = dice(like.seed);
  const chance = (p: number) => roll() < p;
  const pick = <T>(from: readonly T[]): T => from[Math.floor(roll() * from.length)]!;
  const start = windowStart(NOW).getTime();
  const row = (n: number): Sample => {
    const kind = chance(like.published) ? 2 : chance(like.paid) ? 1 : 0;
    const fault = chance(like.faults) ? pick(kind === 2 ? BUYER_FAULTS : OWN_FAULTS) : null;
    const live = chance(like.live);
    const settled = kind > 0 && chance(like.settles);
    const delivered = kind === 0 ? null : chance(0.02) ? null : chance(like.serves);
    const known = chance(0.5);
    const moments = [start, start - 1, NOW.getTime(), NOW.getTime() - 1, NOW.getTime() - DAY, NOW.getTime() - DAY + 1];
    const spread = NOW.getTime() - Math.floor(roll() * like.days * DAY);
    // A third of the looks crowd into the same minutes, so blocks hold several rows and moments are shared.
    const crowded = Math.floor(spread / BLOCK) * BLOCK + Math.floor(roll() * 3) * 60_000;
    const t = new Date(chance(0.02) ? pick(moments) : chance(0.3) ? crowded : spread);
    return {
      obs_id: `${cap}-${String((n * 7919) % 100_003).padStart(6, "0")}`,
      t,
      kind,
      payer: kind === 2 ? pick(["ann", "bob", 'c"\\é', null]) : null,
      w: chance(0.05) ? null : pick([1, 1, 1, 0.25, 1 / 3, 4]),
      fault,
      live: chance(0.01) ? null : live,
      honest: chance(0.05) ? null : chance(like.honest),
      settled,
      delivered,
      refunded: kind === 1 && chance(0.1),
      delivery: delivered && !chance(0.05) ? (chance(like.right) ? 1 : pick(SCORES)) : null,
      outcome: kind > 0 && known ? (chance(like.right) ? 1 : pick(SCORES)) : null,
      schema_ok: delivered && chance(0.8) ? chance(like.right) : null,
      latency_ms: chance(0.05)
        ? null
        : chance(0.2)
          ? pick([0, 100, 300, 60_000])
          : Math.round(10 ** (2 + 3 * roll()) * 8) / 8,
      price: live && !chance(0.1) ? (chance(like.moves) ? pick(PRICES) : 0.01) : null,
      input: kind === 1 ? pick(["example", "known_answer", "synthetic", null]) : null,
      response_sha256: delivered && !chance(0.2) ? `hash-${cap}-${n}` : null,
      pay_to: live ? (chance(0.001) ? "0xother" : "0xpayee") : null,
    };
  };
  return Array.from({ length: like.rows }, (_, n) => row(n));
}

/** An endpoint of its own, a few of its rows withdrawn. */
export function endpointOf(cap: string, like: Profile): Endpoint {
  const rows = rowsOf(cap, like);
  const roll = dice(like.seed + 1);
  const all = roll() < 0.05;
  const withdrawn = new Set(rows.filter(() => all || roll() < 0.01).map(({ obs_id }) => obs_id));
  const pay_to = roll() < 0.2 ? null : `0x${Math.floor(roll() * 6)}`;
  const domain = roll() < 0.2 ? null : `shop${Math.floor(roll() * 6)}.example`;
  return { cap, pay_to, domain, disputed: roll() < 0.1, rows, withdrawn };
}
