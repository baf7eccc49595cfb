import { describe, expect, test } from "vitest";
import { reservationsOf, reservedMicro } from "../../../../pipelines/1-observe/plan/plan.ts";
import { type Caps, capDomain, Ledger, type Payment, recipientOf } from "../../../../pipelines/1-observe/plan/spend.ts";
import { capId } from "../../../../pipelines/record/ids.ts";
import type { ListedCap, SpentSum } from "../../../../pipelines/record/memory.ts";
import { formatMoney } from "../../../../pipelines/record/money.ts";
import type { DayPlan, PlanLine } from "../../../../pipelines/record/plan.ts";
import { addDays, dayStart } from "../../../../pipelines/record/time.ts";
import { PLATFORM_CAP_FACTOR } from "../../../../pipelines/record/url.ts";
import { fc } from "../../../helpers/histories.ts";
import { planDay } from "../../../helpers/plan-day.ts";
import { CAPS, DAY } from "../world.ts";

const CALLS = 4n;
const address = (n: number): string => `0x${n.toString(16).padStart(40, "0")}`;

const CLAIMS: ListedCap["claims"] = {
  ...{ url: "", method: null, tool: null, description: null, class: "any", offers: [], fixed_price: false },
  ...{ example: null, output_mime: null },
};

function endpoint(url: string, micro: bigint, payTo: string, change: Partial<ListedCap> = {}): ListedCap {
  return {
    ...{ cap: capId("GET", url), url, method: "GET", tool: null, claims: CLAIMS, sellerListing: null },
    ...{ sellerClaims: null, standing: [], firstSeen: "2026-10-01T00:00:00.000Z", paidBlocks: 0 },
    ...{ retest: { failing: false, passes: 0 }, lastPrice: formatMoney(micro), lastPayTo: payTo, lastTried: null },
    ...change,
  };
}

const planOf = (listed: readonly ListedCap[], caps: Caps, day = DAY): DayPlan =>
  planDay({ day, salt: Buffer.alloc(32, day), listed, caps, now: dayStart(day) });

const reserved = (plan: DayPlan, of: (line: PlanLine) => boolean = () => true): bigint =>
  plan.lines.filter(of).reduce((sum, line) => sum + reservedMicro(line), 0n);

const reasons = (plan: DayPlan): Record<string, number> => {
  const found: Record<string, number> = {};
  for (const { why } of plan.lines) if (why) found[why] = (found[why] ?? 0) + 1;
  return found;
};

/** A ledger of one process, with the day's plan set aside and nothing spent. */
async function opened(
  plan: DayPlan,
  caps: Caps,
  spent: readonly SpentSum[] = [],
  calls: bigint | null = null,
): Promise<Ledger> {
  const ever = spent.reduce((sum, { micro }) => sum + micro, 0n);
  const ledger = new Ledger(caps, ever, calls);
  await ledger.openDay(plan.day, { spentOn: async () => [...spent] }, reservationsOf(plan));
  return ledger;
}

/** Calls every endpoint four times at a price, whoever its 402 names, and says what was taken. */
function drain(
  ledger: Ledger,
  listed: readonly ListedCap[],
  micro: bigint,
  payTo: (one: ListedCap, n: number) => string,
): bigint {
  let taken = 0n;
  for (let n = 0; n < 4; n++) {
    for (const one of listed) {
      const payment = { cap: one.cap, ...recipientOf(new URL(one.url).host, payTo(one, n)), micro, block: n };
      if (ledger.spend(DAY, payment).ok) taken += micro;
    }
  }
  return taken;
}

describe("who could take the day's money", () => {
  const DEAR = 100_000n;
  const farm = (url: (i: number) => string, payTo: (i: number) => string): ListedCap[] =>
    Array.from({ length: 63 }, (_, i) => endpoint(url(i), DEAR, payTo(i)));
  const honest = Array.from({ length: 20 }, (_, i) => endpoint(`https://honest${i}.example/`, DEAR, address(900 + i)));

  test.each<[string, ListedCap[], bigint]>([
    [
      "63 endpoints on 13 subdomains of one registrable domain, with 40 payees",
      farm(
        (i) => `https://s${i % 13}.evil.example/${i}`,
        (i) => address(i % 40),
      ),
      CAPS.perDomainDay,
    ],
    [
      "63 ports of one name, and its name with a dot",
      farm(
        (i) => `https://evil.example${i % 2 ? "." : ""}:${8_000 + i}/`,
        (i) => address(i),
      ),
      CAPS.perDomainDay,
    ],
    [
      "63 ports of one address",
      farm(
        (i) => `http://203.0.113.7:${8_000 + i}/`,
        (i) => address(i),
      ),
      CAPS.perDomainDay,
    ],
    [
      "63 addresses of one IPv6 network",
      farm(
        (i) => `http://[2001:db8:0:1::${(i + 1).toString(16)}]/`,
        (i) => address(i),
      ),
      CAPS.perDomainDay,
    ],
    [
      "63 domains with one payee, written in two ways",
      farm(
        (i) => `https://evil${i}.example/`,
        (i) => (i % 2 ? address(0xabcdef) : `0x${address(0xabcdef).slice(2).toUpperCase()}`),
      ),
      CAPS.perPayeeDay,
    ],
    [
      "63 sellers of one hosting platform, each a domain and a payee of its own",
      farm(
        (i) => `https://evil${i}.github.io/`,
        (i) => address(i),
      ),
      CAPS.perDomainDay * BigInt(PLATFORM_CAP_FACTOR),
    ],
    [
      "63 sellers of one hosting platform, each a domain of its own, with one payee",
      farm(
        (i) => `https://evil${i}.github.io/`,
        () => address(1),
      ),
      CAPS.perPayeeDay,
    ],
  ])("%s: in the plan, and at the signature", async (_name, attackers, most) => {
    const evil = new Set(attackers.map(({ cap }) => cap));
    const isEvil = (line: PlanLine): boolean => evil.has(line.cap);
    for (const paidBlocks of [0, 3]) {
      const listed = [...attackers.map((one) => ({ ...one, paidBlocks })), ...honest];
      const plan = planOf(listed, CAPS);
      expect(reserved(plan, isEvil)).toBeLessThanOrEqual(most);
      expect(reserved(plan, isEvil) + CALLS * DEAR).toBeGreaterThan(most);
      // The others have their day.
      expect(plan.lines.filter((line) => line.covered && !isEvil(line))).toHaveLength(honest.length);
    }
    // A plan that knew of nobody: the ledger alone holds.
    const ledger = await opened(planOf([], CAPS), CAPS);
    expect(drain(ledger, attackers, DEAR, (one) => one.lastPayTo!)).toBe(most - (most % DEAR));
  });

  test("what the live 402 names counts, whatever was listed: 63 domains that all turn to one payee", async () => {
    const listed = farm(
      (i) => `https://evil${i}.example/`,
      (i) => address(i),
    );
    const ledger = await opened(planOf(listed, CAPS), CAPS);
    expect(drain(ledger, listed, DEAR, () => address(77_777))).toBeLessThanOrEqual(CAPS.perPayeeDay);
    const own = await opened(planOf(listed, CAPS), CAPS);
    // What is set aside for 62 of them, and two calls more.
    expect(drain(own, listed, DEAR, (one) => one.lastPayTo!)).toBe(CAPS.perDay);
  });

  test("the sentence of a refusal names the cap", async () => {
    const ledger = await opened(planOf([], CAPS), { ...CAPS, perDomainDay: 1n, perPayeeDay: 2n });
    const take = (host: string, micro: bigint) =>
      ledger.spend(DAY, { cap: host, ...recipientOf(host, "p"), micro, block: 0 });
    expect(take("a.evil.example", 2n)).toEqual({ ok: false, says: "over the cap of a domain and day of 0.000001" });
    expect([take("a.example", 1n), take("b.example", 1n)]).toEqual([{ ok: true }, { ok: true }]);
    expect(take("c.example", 1n)).toEqual({ ok: false, says: "over the cap of a payee and day of 0.000002" });
  });
});

test.each([
  ["a.b.evil.example", "evil.example"],
  ["a.evil.example:8443", "evil.example"],
  ["evil.example.", "evil.example"],
  ["one.github.io", "one.github.io"],
  ["github.io:8443", "github.io"],
  ["github.io.", "github.io"],
  ["203.0.113.7:8080", "203.0.113.7"],
  ["[2001:db8:0:12ff::1]:8080", "20010db8000012/56"],
  ["[2001:db8:0:1200::2]", "20010db8000012/56"],
  ["[::ffff:203.0.113.7]:8080", "203.0.113.7"],
  ["127.0.0.3:8080", "127.0.0.3:8080"],
  ["[::1]:8080", "[::1]:8080"],
  ["localhost:8080", "localhost:8080"],
])("the domain of %s is %s", (host, domain) => {
  expect(capDomain(host)).toBe(domain);
});

test("what is given back is free again: for the host, the domain, the payee and the day", async () => {
  const payment = { cap: "x", ...recipientOf("a.one.example", "p"), micro: 10n, block: 0 };
  const others: [keyof Caps, string, string][] = [
    ["perHostDay", "a.one.example", "q"],
    ["perDomainDay", "b.one.example", "q"],
    ["perPayeeDay", "c.two.example", "p"],
    ["perDay", "d.three.example", "q"],
    ["total", "d.three.example", "q"],
  ];
  for (const [cap, host, payTo] of others) {
    const ledger = await opened(planOf([], CAPS), { ...CAPS, [cap]: 10n });
    const other = { cap: "y", ...recipientOf(host, payTo), micro: 10n, block: 0 };
    expect([ledger.spend(DAY, payment).ok, ledger.spend(DAY, other).ok], cap).toEqual([true, false]);
    ledger.cancel(DAY, payment);
    expect([ledger.spend(DAY, other).ok, ledger.spend(DAY, payment).ok], cap).toEqual([true, false]);
  }
});

describe("the share of those never paid", () => {
  const many = (name: string, n: number, paidBlocks: number) =>
    Array.from({ length: n }, (_, i) => endpoint(`https://${name}${i}.example/`, 50_000n, address(i), { paidBlocks }));
  const isNew = (line: PlanLine): boolean => line.host.startsWith("new");

  test("is theirs when those paid before would take the whole day, and everybody's when they are few", () => {
    const caps = { ...CAPS, perPayeeDay: CAPS.perDay };
    const full = planOf([...many("old", 200, 5), ...many("new", 200, 0)], caps);
    expect(reserved(full, isNew)).toBe(5_000_000n);
    expect(reserved(full)).toBe(25_000_000n);
    const few = planOf([...many("old", 200, 5), ...many("new", 3, 0)], caps);
    expect([reserved(few, isNew), reserved(few)]).toEqual([600_000n, 25_000_000n]);
    const none = planOf([...many("old", 3, 5), ...many("new", 200, 0)], caps);
    expect([reserved(none, isNew), reserved(none)]).toEqual([24_400_000n, 25_000_000n]);
    const off = planOf([...many("old", 200, 5), ...many("new", 200, 0)], { ...caps, newShare: 0n });
    expect(reserved(off, isNew)).toBe(0n);
  });

  test("a domain's newcomers have a share of the domain's day, and leave the rest to those of it that were paid", () => {
    const at = (path: string, paidBlocks: number) =>
      endpoint(`https://${path}.one.example/${path}`, 50_000n, address(1), { paidBlocks });
    const listed = [1, 2, 3, 4, 5, 6, 7, 8, 9].flatMap((i) => [
      at(`old${i}`, 9),
      at(`old${i + 10}`, 9),
      at(`new${i}`, 0),
    ]);
    const plan = planOf(listed, CAPS);
    // A fifth of 2.50 holds two days of 0.20.
    expect([reserved(plan, isNew), reserved(plan)]).toEqual([400_000n, 2_400_000n]);
    expect(reasons(plan)).toEqual({ per_domain_day: 15 });
  });
});

describe("turns", () => {
  test("whoever was paid longest ago comes first, by the day; the random order of the day decides among those of one day", () => {
    const at = (name: string, lastTried: string | null, micro = 10_000n) =>
      endpoint(`https://${name}.example/`, micro, address(1), { paidBlocks: 5, lastTried });
    const one = { ...CAPS, perDay: 40_000n, newShare: 0n };
    const covered = (listed: ListedCap[]) =>
      planOf(listed, one).lines.flatMap((line) => (line.covered ? [line.host] : []));
    expect(covered([at("new", "2026-10-09T01:00:00.000Z"), at("old", "2026-10-08T23:00:00.000Z")])).toEqual([
      "old.example",
    ]);
    expect(covered([at("never", null), at("old", "2026-10-08T23:00:00.000Z")])).toEqual(["never.example"]);
    // The hour of a day was drawn at random: it says nothing.
    const [early, late] = ["2026-10-08T00:10:00.000Z", "2026-10-08T23:50:00.000Z"];
    expect(covered([at("dear", early, 10_000n), at("cheap", late, 9_000n)])).toEqual(["cheap.example"]);
  });
});

/** A market on shared domains and payees, and what its endpoints do when it is their turn. */
interface Seller {
  sub: number;
  domain: number;
  payee: number;
  micro: bigint;
  /** Is its payment ever made? One that asks for more than it said, say, is covered and never paid. */
  payable: boolean;
  paidBefore: boolean;
  /** Names another payee than its plan in all 402s of the day but one. */
  turns: boolean;
}

const seller: fc.Arbitrary<Seller> = fc.record({
  ...{ sub: fc.nat(2), domain: fc.nat(3), payee: fc.nat(3), micro: fc.bigInt({ min: 20n, max: 100n }) },
  payable: fc.boolean(),
  paidBefore: fc.boolean(),
  turns: fc.boolean(),
});
/** Every cap has room for the dearest endpoint's day in the share of those never paid, and in the rest. */
const capsOf: fc.Arbitrary<Caps> = fc
  .tuple(...[1, 2, 3, 4].map(() => fc.bigInt({ min: 2_000n, max: 4_000n })))
  .map((most) => {
    const [perHostDay, perDomainDay, perPayeeDay, perDay] = most as [bigint, bigint, bigint, bigint];
    return {
      perCall: 100n,
      perHostDay,
      perDomainDay,
      perPayeeDay,
      perDay: perDay * 2n,
      total: 10_000_000n,
      newShare: 200_000n,
    };
  });

/** One day of the market as several observers or one live through it, with restarts. @returns what was paid */
async function live(
  plan: DayPlan,
  caps: Caps,
  sellers: ReadonlyMap<string, Seller>,
  observers: number,
  restartEvery: number,
): Promise<{ spent: SpentSum[]; refused: { line: PlanLine; payment: Payment; says: string }[] }> {
  const spent: SpentSum[] = [];
  const refused: { line: PlanLine; payment: Payment; says: string }[] = [];
  const calls = observers > 1 ? CALLS : null;
  const ledgers: (Ledger | null)[] = Array.from({ length: observers }, () => null);
  let n = 0;
  for (let block = 0; block < 4; block++) {
    for (const line of plan.lines) {
      const call = line.calls.filter(({ kind }) => kind === "paid")[block];
      const one = sellers.get(line.cap)!;
      // Some are handed over in mid-day, so another observer makes the next call of the same endpoint.
      const which = (n + block) % observers;
      n++;
      if (n % restartEvery === 0) ledgers[which] = null;
      if (!call || !one.payable) continue;
      ledgers[which] ??= await opened(plan, caps, spent, calls);
      const payTo = one.turns && block !== 2 ? address(100 + (one.payee % 2)) : line.payee!;
      const payment = { cap: line.cap, ...recipientOf(line.host, payTo), micro: one.micro, block: call.block };
      const taken = ledgers[which].spend(plan.day, payment);
      if (taken.ok) spent.push({ cap: line.cap, host: line.host, payTo, micro: one.micro });
      else refused.push({ line, payment, says: taken.says });
    }
  }
  return { spent, refused };
}

function holdsCaps(caps: Caps, spent: readonly SpentSum[]): void {
  const sums = new Map<string, bigint>();
  const add = (key: string, micro: bigint) => sums.set(key, (sums.get(key) ?? 0n) + micro);
  for (const { host, payTo, micro } of spent) {
    const { domain, payee } = recipientOf(host, payTo);
    for (const key of [`h ${host}`, `d ${domain}`, `p ${payee}`, "all"]) add(key, micro);
  }
  const most: Record<string, bigint> = {
    h: caps.perHostDay,
    d: caps.perDomainDay,
    p: caps.perPayeeDay,
    a: caps.perDay,
  };
  for (const [key, sum] of sums) expect(sum <= most[key[0]!]!, `${key}: ${sum}`).toBe(true);
}

/** Whoever was never paid and is left out: what keeps it out is that its share of some cap is full. */
function holdsShare(caps: Caps, plan: DayPlan, known: ReadonlyMap<string, ListedCap>): void {
  const isNew = (line: PlanLine): boolean => known.get(line.cap)!.paidBlocks === 0;
  const sumOf = (of: (line: PlanLine) => boolean): bigint => reserved(plan, (line) => isNew(line) && of(line));
  for (const line of plan.lines) {
    if (line.covered || !isNew(line)) continue;
    const own = BigInt(line.price_micro!) * CALLS;
    const { domain } = recipientOf(line.host, null);
    const rooms: [bigint, bigint][] = [
      [sumOf((one) => one.host === line.host), caps.perHostDay],
      [sumOf((one) => capDomain(one.host) === domain), caps.perDomainDay],
      [sumOf((one) => one.payee === line.payee), caps.perPayeeDay],
      [sumOf(() => true), caps.perDay],
    ];
    const full = rooms.some(([sum, most]) => (sum + own) * 1_000_000n > most * caps.newShare);
    expect(full, `${line.cap} is left out though its share is free`).toBe(true);
  }
}

describe("a market, day after day", () => {
  const world = fc.record({
    sellers: fc.array(seller, { minLength: 1, maxLength: 40, size: "max" }),
    caps: capsOf,
    observers: fc.integer({ min: 1, max: 3 }),
    restartEvery: fc.integer({ min: 2, max: 50 }),
    /** All of them turn to one payee. */
    flock: fc.boolean(),
  });

  test("no cap is passed, no promise is broken without a cap that says so, newcomers have their share, all have their turn", async () => {
    await fc.assert(
      fc.asyncProperty(world, async ({ sellers, caps, observers, restartEvery, flock }) => {
        const known = new Map<string, ListedCap>();
        const of = new Map<string, Seller>();
        for (const [i, one] of sellers.entries()) {
          const url = `https://s${one.sub}.d${one.domain}.example/${i}`;
          const made = endpoint(url, one.micro, address(one.payee), { paidBlocks: Number(one.paidBefore) });
          known.set(made.cap, made);
          of.set(made.cap, flock ? { ...one, payable: true, payee: 0, turns: true } : one);
        }
        const covered = new Set<string>();
        // Each day brings at least one of those who wait longest before whoever is kept out by it.
        const most = 2 * sellers.length;
        let days = 0;
        for (let day = DAY; days < most && covered.size < known.size; day = addDays(day, 1), days++) {
          const plan = planOf([...known.values()], caps, day);
          holdsShare(caps, plan, known);
          const { spent, refused } = await live(plan, caps, of, observers, restartEvery);
          holdsCaps(caps, spent);
          for (const { line, payment, says } of refused) {
            // Only who is not covered, or turns to another payee, is refused; and it is told which cap it was.
            if (line.covered) expect(payment.payee).not.toBe(line.payee);
            if (line.covered) expect(says).toMatch(/of a payee and day|for this payee/);
          }
          for (const { cap, covered: is } of plan.lines) {
            const before = known.get(cap)!;
            if (!is) continue;
            covered.add(cap);
            const paid = spent.some((one) => one.cap === cap);
            known.set(cap, {
              ...before,
              paidBlocks: before.paidBlocks + Number(paid),
              lastTried: `${day}T12:00:00.000Z`,
            });
          }
        }
        expect([...known.keys()].filter((cap) => !covered.has(cap))).toEqual([]);
      }),
      { numRuns: 60 },
    );
  });

  test("the first in turn comes again within days that its neighbours' number bounds, however many are never payable", () => {
    // One domain, whose day holds ten endpoints, two of them out of the share of those never paid.
    const caps = { ...CAPS, perDomainDay: 4_000_000n, perHostDay: 4_000_000n, perPayeeDay: 4_000_000n };
    const known = new Map(
      Array.from({ length: 40 }, (_, i) => endpoint(`https://one.example/${i}`, 100_000n, address(1))).map((one) => [
        one.cap,
        one,
      ]),
    );
    const payable = new Set([...known.keys()].slice(0, 20));
    const turns = new Map<string, number[]>();
    for (let n = 0, day = DAY; n < 60; n++, day = addDays(day, 1)) {
      for (const { cap, covered } of planOf([...known.values()], caps, day).lines) {
        if (!covered) continue;
        turns.set(cap, [...(turns.get(cap) ?? []), n]);
        const one = known.get(cap)!;
        known.set(cap, {
          ...one,
          paidBlocks: one.paidBlocks + Number(payable.has(cap)),
          lastTried: `${day}T12:00:00.000Z`,
        });
      }
    }
    for (const cap of known.keys()) {
      const days = turns.get(cap) ?? [];
      const waits = [...days.slice(1), 60].map((day, i) => day - days[i]!);
      // Ten a day at first, then two of those that were never paid.
      expect(days[0], `${cap}: ${days}`).toBeLessThanOrEqual(15);
      // Twenty that were paid have eight places a day; twenty that never can be have two, and wait for the first round.
      expect(Math.max(...waits), `${cap}: ${days}`).toBeLessThanOrEqual(payable.has(cap) ? 4 : 16);
    }
  });
});
