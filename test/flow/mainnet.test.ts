import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { createPublicClient, http, parseAbiItem } from "viem";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { examine } from "../../commands/doctor.ts";
import { lettersOf, type SellerLetter } from "../../commands/letters.ts";
import { openServing, type ServingTier } from "../../commands/serving-tier.ts";
import { readLedger } from "../../fixtures/market/ledger.ts";
import { SimulatedClock, SwitchedClock } from "../../infra/clock.ts";
import { type Config, loadConfig } from "../../infra/config.ts";
import type { Finding } from "../../infra/finding.ts";
import { paidNetworks, railOn } from "../../infra/rails/networks.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import { WalletFolder } from "../../infra/rails/wallet-folder.ts";
import { originOf } from "../../infra/tree/checkpoint.ts";
import type { IntakeReport } from "../../pipelines/1-observe/observer.ts";
import { volatileRows } from "../../pipelines/2-ingest/volatile.ts";
import { archiveTrust } from "../../pipelines/5-archive/place.ts";
import { RecordReader, readCheckpoint } from "../../pipelines/published/reader.ts";
import type { RecordType } from "../../pipelines/record/bodies.ts";
import { type Envelope, readRecord } from "../../pipelines/record/envelope.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import type { DayPlan, PlannedCall } from "../../pipelines/record/plan.ts";
import { addDays, blockOf, dayOf, dayStart } from "../../pipelines/record/time.ts";
import { assemble, type MachineRoles } from "../../pipelines/roles/assemble.ts";
import { ensureKeys } from "../../pipelines/roles/data-folder.ts";
import { openParts, type Parts } from "../../pipelines/roles/parts.ts";
import type { FundedChain } from "../helpers/funded-chain.ts";
import { runs } from "../helpers/programs.ts";
import { callsByRule, expectCovered } from "../helpers/published-rule.ts";
import { readTerms } from "../pipelines/1-observe/readings.ts";
import { BASE, type Box, FUNDS, fundWallets, KINDS, KNOWN_FUNDS, openBox, POLYGON, payTo } from "./mainnet-box.ts";

/**
 * Mainnet in a box: nodes with the ids, the USDC addresses and the signing domains of Base and Polygon, and a node of
 * Tempo; nobody can mint, wallets were funded from outside. Sellers of four classes that are not arithmetic, one on
 * Polygon and one on Tempo are paid for real until their letters stand; then, one evening, the operator adds the
 * recorded Bazaar, whose stand-ins ask what real sellers asked and take the money on the same chains.
 */

/** Whole days before the evening: an A needs 31, and some more where a busy machine made answers late at first. */
const DAYS = 36;
/** Calls that the published rule has in so many days: four a day until thirty blocks are paid, then one. */
const callsIn = (days: number): number => (days < 8 ? 4 * days : 32 + (days - 8));
const EVENING = addDays(dayOf(new Date()), -3);
const BLIND = 220;
/** Small enough to keep somebody out. */
const SPEND = {
  per_call: "0.10",
  per_host_day: "0.08",
  per_domain_day: "0.09",
  per_payee_day: "0.12",
  per_day: "2.00",
};

let dir: string;
let box: Box;
let config: Config;
let folder: WalletFolder;
let parts: Parts;
let serving: ServingTier;
let roles: MachineRoles;
let rail: Rail;
let doctor: Finding[];
let letters: Map<string, SellerLetter>;
let report: IntakeReport;
let plan: DayPlan;
/** Of the days before the evening. */
const plans: DayPlan[] = [];
let leaves: Leaf[];
const tookMs: Record<string, number> = {};

const timed = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
  const began = performance.now();
  const done = await work();
  tookMs[what] = Math.round(performance.now() - began);
  return done;
};

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "mainnet-"));
  box = await timed("sellers", () => openBox(dir));
  const caps = Object.entries(SPEND).map(([name, most]) => [`TOUCHSTONE_SPEND_${name.toUpperCase()}`, most]);
  config = loadConfig(undefined, { ...box.settings, ...Object.fromEntries(caps) });
  folder = new WalletFolder(join(dir, "wallets"));
  folder.make(BLIND);
  ensureKeys(dir, dayStart(addDays(EVENING, -DAYS - 1)));
  // A check has 20 s. Beside a whole market a busy machine may not answer all of them in time; an operator asks again.
  for (let n = 0; n < 5 && (n === 0 || doctor.some(({ says }) => says === "no answer within 20 s")); n++)
    doctor = await timed("doctor", () => examine(config, "start"));
  const clock = new SwitchedClock(new SimulatedClock(dayStart(addDays(EVENING, -DAYS))));
  parts = await openParts(config, clock);
  rail = railOn(paidNetworks(config));
  const { keys, secret, logger, metrics } = parts;
  const wallets = await timed("funds", () => fundWallets(box, { folder, rail, secret, logger, metrics }));
  serving = await openServing({ ...parts, answers: keys.answers, ring: keys.ring }, clock);
  const money = { wallets, controlUrls: config.control_urls, pagesAt: serving.url, settlePollMs: [30, 100] };
  roles = await assemble(parts, clock, money);
  await timed("days", () => liveDays(clock));
  await roles.pipeline.writeVolatile();
  await serving.refresh();
  const urls = box.shops.map(({ name, origin }, n) => ({ name, urls: [origin + KINDS[n]!.paths[0]] }));
  const others = { polygon: box.sellers.polygon.url, tempo: box.onTempo.url };
  const all = [...urls, ...Object.entries(others).map(([name, url]) => ({ name, urls: [url] }))];
  letters = new Map((await lettersOf(serving.app, all)).map((one) => [one.seller, one]));
  await timed("evening", () => liveEvening(clock));
});

/** Whole days on the base schedule; a day is graded while the next one is observed. */
async function liveDays(clock: SwitchedClock): Promise<void> {
  const { pipeline } = roles;
  let graded = Promise.resolve();
  for (let n = DAYS; n > 0; n--) {
    const [from, end] = [dayStart(addDays(EVENING, -n)), new Date(dayStart(addDays(EVENING, 1 - n)).getTime() - 1)];
    clock.use(new SimulatedClock(from));
    await pipeline.intake([box.catalogue]);
    const drawn = await pipeline.getPublishedPlan(dayOf(from));
    plans.push(drawn);
    await pipeline.observe(drawn, from, end);
    await graded;
    clock.use(new SimulatedClock(end));
    graded = pipeline.grade(end).then(async () => {
      await pipeline.publishIndex();
      await pipeline.publishEvidence(end);
    });
    // Told where it is awaited.
    graded.catch(() => {});
  }
  await graded;
}

/** The Bazaar is added in the third block of the day, and its sellers are called in the last one; then a day passes. */
async function liveEvening(clock: SwitchedClock): Promise<void> {
  const { pipeline, observer, ingest } = roles;
  const at = (hours: number) => new Date(dayStart(EVENING).getTime() + hours * 3_600_000);
  const until = (hours: number) => new Date(at(hours).getTime() - 1);
  clock.use(new SimulatedClock(at(12)));
  if (box.bazaar) report = await timed("intake", () => observer.intakeCatalogue(box.bazaar!.url));
  await timed("ingest", () => ingest.pass());
  clock.use(new SimulatedClock(at(17.9)));
  plan = await timed("plan", () => pipeline.getPublishedPlan(EVENING));
  await timed("calls", () => pipeline.observe(plan, at(18), until(24)));
  clock.use(new SimulatedClock(until(24)));
  await timed("grade", () => pipeline.grade(until(24)));
  clock.use(new SimulatedClock(at(24)));
  // It opens the salt of the evening.
  await pipeline.getPublishedPlan(addDays(EVENING, 1));
  clock.use(new SimulatedClock(until(48)));
  await timed("again", () => pipeline.grade(until(48)));
  await pipeline.publishIndex();
  await timed("evidence", () => pipeline.publishEvidence(until(48)));
  const head = await readCheckpoint(parts.publicStore, archiveTrust(originOf(config.base_url), parts.keys));
  const reader = await RecordReader.open(parts.publicStore, head!);
  leaves = [];
  for await (const { leaf } of reader.leaves(0, head!.size)) leaves.push(leaf);
}

afterAll(async () => {
  await roles?.close();
  await serving?.close();
  await parts?.close();
  await box?.close();
  await rm(dir, { recursive: true, force: true });
});

/** Every record of a topic of this log, once, as it is now. */
async function readTopic(topic: string): Promise<Envelope<RecordType>[]> {
  const found = new Map<string, Envelope<RecordType>>();
  for (let partition = 0; partition < parts.log.partitions; partition++) {
    for (let from = 0; ; ) {
      const records = await parts.log.read(topic, partition, from, { maxRecords: 10_000, maxBytes: 64 * 1024 ** 2 });
      if (records.length === 0) break;
      from = records.at(-1)!.offset + 1;
      for (const record of records) {
        const read = readRecord(record);
        if (read.ok) found.set(read.envelope.event_id, read.envelope);
      }
    }
  }
  return [...found.values()];
}

const ofType = <T extends RecordType>(all: readonly Envelope<RecordType>[], type: T) =>
  all.filter((one): one is Envelope<T> => one.type === type);

/** The record as it stood when the evening was over. */
const topics = new Map<string, Promise<Envelope<RecordType>[]>>();
async function recorded<T extends RecordType>(topic: string, type: T): Promise<Envelope<T>[]> {
  const read = topics.get(topic) ?? readTopic(topic);
  topics.set(topic, read);
  return ofType(await read, type);
}

const counted = (words: readonly string[]): Record<string, number> => {
  const sum: Record<string, number> = {};
  for (const word of [...words].sort()) sum[word] = (sum[word] ?? 0) + 1;
  return sum;
};

test("doctor accepts the settings: nothing is broken, and every chain is what they say", () => {
  expect(doctor.filter(({ standing }) => standing === "broken")).toEqual([]);
  const names = doctor.flatMap(({ name, standing }) => (standing === "ok" ? [name] : []));
  expect(names).toEqual(
    expect.arrayContaining([
      ...["network eip155:8453 nodes in step", "network eip155:8453 confirmations", "network eip155:137 node 2"],
      ...["network eip155:42431 node 1", "control 1", "clock", "catalogue 1"],
    ]),
  );
});

describe("who is known for a month", () => {
  test.each(KINDS.map(({ name }) => name))("%s has an A", (name) => {
    const found = letters.get(name)!;
    expect(found, JSON.stringify(found)).toMatchObject({ band: "A", tier: "OUTCOME_VERIFIED", flags: [] });
  });

  test.each(["polygon", "tempo"])("a seller on %s has the letter that answers without a truth reach", (name) => {
    const found = letters.get(name)!;
    // Without a schema it stands at the edge between the two, and what a machine under load adds to its time decides.
    expect(found, JSON.stringify(found)).toMatchObject({
      ...{ band: expect.stringMatching(/^[BC]$/), tier: "DELIVERY_VERIFIED" },
      flags: expect.arrayContaining(["no_schema_advertised", "no_example"]),
    });
  });
});

const dollars = (all: readonly bigint[]): bigint => all.reduce((sum, one) => sum + one, 0n);
const USED = parseAbiItem("event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)");

/**
 * Did the rule have a paid call in the first minute of this day? A day's plan is drawn when its first minute has begun,
 * so it has none there.
 */
function isBegun({ day, lines }: DayPlan, cap: string): boolean {
  const line = lines.find((one) => one.cap === cap);
  const salts = leaves.flatMap((leaf) => (leaf.kind === "schedule" && leaf.opens ? [leaf.opens] : []));
  const salt = salts.find((one) => one.day === day)!.salt;
  const first = blockOf(dayStart(day));
  const isFirst = (one: PlannedCall) => one.kind === "paid" && one.block === first && one.minute === 0;
  if (!line || line.calls.some(isFirst)) return false;
  return callsByRule(Buffer.from(salt, "hex"), line, first, 0).some(isFirst);
}

/** Nonces that a token took, each with who signed, as the chain has them. */
async function usedOn({ rpcUrl, asset }: FundedChain) {
  const client = createPublicClient({ transport: http(rpcUrl) });
  const logs = await client.getLogs({ address: asset as `0x${string}`, event: USED, fromBlock: 0n });
  return logs.map(({ args, transactionHash }) => ({
    ...{ nonce: args.nonce!.toLowerCase(), payer: args.authorizer!.toLowerCase(), tx: transactionHash },
  }));
}

describe("money", () => {
  test("four calls a day until thirty blocks are paid, then one; each seller has what the chain says", async () => {
    const before = (await recorded("observations.paid", "paid.intent")).filter(
      ({ body }) => body.planned_at < dayStart(EVENING).toISOString(),
    );
    const ofSeller = (url: string) => before.filter((one) => one.body.url.startsWith(new URL(url).origin));
    const unpaid = (await recorded("observations.free", "handshake")).filter(({ body }) => body.planned === "paid");
    /** Calls of a seller that follow from the rule and the salts. */
    const callsOf = (url: string): number => {
      const paid = ofSeller(url);
      const cap = paid[0]!.cap!;
      const says = unpaid.flatMap((one) => (one.cap === cap ? [[one.body.fault, one.body.state, one.body.says]] : []));
      expect([url, says]).toEqual([url, []]);
      return paid.length + plans.filter((one) => isBegun(one, cap)).length;
    };
    for (const [n, { name }] of KINDS.entries()) {
      const paid = readLedger(box.shops[n]!.ledger.path).filter((line) => line.tx !== undefined);
      expect([name, callsOf(box.shops[n]!.origin)]).toEqual([name, callsIn(DAYS)]);
      const held = (await rail.balance(box.shops[n]!.payTo, { network: "eip155:8453", asset: BASE })).value;
      expect([name, held]).toEqual([name, dollars(paid.map(({ amount }) => BigInt(amount!)))]);
    }
    // Of the one on Tempo no listing says a price: the dearest calls of a day do not fit into the caps, its own do.
    const onOthers = [box.sellers.polygon.url, box.onTempo.url].map(callsOf);
    expect(onOthers).toEqual([callsIn(DAYS), callsIn(DAYS - 1)]);
    const onPolygon = (await rail.balance(payTo(12), { network: "eip155:137", asset: POLYGON })).value;
    expect(onPolygon).toBe(20_000n * BigInt(box.sellers.polygon.seen.paid.length));
    const { network, asset } = box.chains.tempo;
    const settled = (await recorded("observations.paid", "settlement")).filter(({ body }) => body.network === network);
    expect(settled).toHaveLength(box.onTempo.seen.paid);
    expect((await rail.balance(payTo(14), { network, asset })).value).toBe(15_000n * BigInt(box.onTempo.seen.paid));
  });

  test("nothing is paid twice: what a chain took was signed for one intent, and is settled once", async () => {
    const intents = await recorded("observations.paid", "paid.intent");
    const settlements = await recorded("observations.paid", "settlement");
    expect(new Set(settlements.map(({ body }) => body.intent)).size).toBe(settlements.length);
    expect(new Set(settlements.map(({ body }) => `${body.network} ${body.tx}`)).size).toBe(settlements.length);
    // One payment for each call of the plan: a slot is an endpoint's block.
    expect(new Set(intents.map(({ cap, body }) => `${cap} ${JSON.stringify(body.slot)}`)).size).toBe(intents.length);
    for (const chain of [box.chains.base, box.chains.polygon]) {
      const used = await usedOn(chain);
      const said = settlements.filter(({ body }) => body.network === chain.network);
      const inRecord = said.map(({ body }) => `${body.nonce.toLowerCase()} ${body.tx}`);
      expect(used.map(({ nonce, tx }) => `${nonce} ${tx}`).sort()).toEqual(inRecord.sort());
      const signed = new Map(intents.map(({ body }) => [body.nonce.toLowerCase(), body.wallet]));
      expect(used.filter(({ nonce, payer }) => signed.get(nonce) !== payer)).toEqual([]);
    }
  });

  test("what left the wallets is what the record says was settled, and nothing was minted", async () => {
    const settlements = await recorded("observations.paid", "settlement");
    const { known, blind } = folder.read();
    for (const { network, asset } of [box.chains.base, box.chains.polygon]) {
      const held = await Promise.all(
        [known!, ...blind].map(async ({ address }) => (await rail.balance(address, { network, asset })).value),
      );
      const said = settlements.filter(({ body }) => body.network === network);
      const left = FUNDS * (KNOWN_FUNDS + BigInt(blind.length)) - dollars(held);
      expect([network, left]).toEqual([network, dollars(said.map(({ body }) => BigInt(body.amount_atomic)))]);
    }
  });

  test("a blind wallet belongs to one endpoint and day, on each chain, and the known one pays the rest", async () => {
    const { known, uses } = folder.read();
    const byWallet = new Map(uses.map(({ address }) => [address, uses.filter((use) => use.address === address)]));
    for (const [address, of] of byWallet) {
      expect([address, new Set(of.map(({ day, cap }) => `${day} ${cap}`)).size]).toEqual([address, 1]);
    }
    const intents = (await recorded("observations.paid", "paid.intent")).filter(
      ({ body }) => body.quote.network !== box.chains.tempo.network,
    );
    for (const { body } of intents) {
      expect([body.wallet, body.blind]).toEqual([body.wallet, body.wallet !== known!.address]);
      if (body.blind) expect(byWallet.has(body.wallet)).toBe(true);
    }
    expect(intents.filter(({ body }) => body.blind).length).toBeGreaterThan(0);
  });
});

describe("on each network", () => {
  const PRICES: Record<string, string> = { "eip155:137": "0.020000", "eip155:42431": "0.015000" };

  test("a seller on Tempo alone is paid over mpp, and its rows are graded like any other's", async () => {
    const row = (await volatileRows(roles.lake, new Map())).find(({ url }) => url === box.onTempo.url)!;
    const paid_calls = box.onTempo.seen.paid;
    expect(row).toMatchObject({ price: "0.015000", unit: "USD", protocols: ["mpp"], paid_calls, unserved: 0 });
    const rows = await roles.lake.all<{ counted: boolean; settled: boolean; delivered: boolean; price: number }>(
      `SELECT DISTINCT is_counted(kind, fault, settled) AS counted, settled, delivered, price
       FROM samples WHERE cap = '${row.capability_id}'`,
    );
    expect(rows).toEqual([{ counted: true, settled: true, delivered: true, price: 0.015 }]);
  });

  test("the record says of each payment its own network and asset, settled by the chain's own log", async () => {
    const intents = await recorded("observations.paid", "paid.intent");
    const settlements = await recorded("observations.paid", "settlement");
    // Over x402 the facilitator sends, and over Tempo nobody is named: there the payer's own transaction is sent on.
    const senders = settlements.map(({ body }) => body.sender ?? body.network);
    expect(new Set(senders)).toEqual(
      new Set([box.shops[0]!.facilitator.address, box.sellers.polygon.facilitator, box.chains.tempo.network]),
    );
    const settledOf = new Map(settlements.map(({ body }) => [body.intent, body]));
    for (const { event_id, body } of intents) {
      const { network, asset, pay_to, amount_atomic, price } = body.quote;
      const settled = settledOf.get(event_id);
      expect(settled).toMatchObject({ network, from: body.wallet, to: pay_to.toLowerCase(), amount_atomic });
      expect(settled!.asset).toBe(asset.toLowerCase());
      if (PRICES[network]) expect([network, price]).toEqual([network, PRICES[network]]);
    }
  });

  test("a settlement is final when the chain itself says so, and a later look writes that down", async () => {
    const settlements = await recorded("observations.paid", "settlement");
    // No depth in blocks is set: Base and Polygon have a word of their own for it, and a block of Tempo is final.
    expect(paidNetworks(config).map(({ confirmations }) => confirmations)).toEqual(["finalized", "finalized", 1]);
    const open = settlements.filter(({ body }) => !body.final).length;
    expect(open).toBeGreaterThan(0);
    await expect
      .poll(
        async () => {
          await roles.ingest.pass();
          await roles.observer.followUpCalls();
          const finals = ofType(await readTopic("observations.paid"), "paid.followup");
          return finals.filter(({ body }) => body.kind === "finality").length;
        },
        { interval: 500 },
      )
      .toBe(open);
  });

  test("a price on a network that we do not pay on is read all the same, and nothing is signed for it", async () => {
    const seen = await recorded("observations.free", "handshake");
    const said = (one: "avalanche" | "solana") =>
      seen
        .flatMap(({ body }) => body.terms?.offers ?? [])
        .find(({ pay_to, amount_atomic }) => {
          const { payTo: to, amount } = box.sellers[one].terms;
          return amount_atomic === amount && pay_to?.toLowerCase() === to.toLowerCase();
        });
    expect(said("avalanche")).toMatchObject({ price: "0.010000", payable: false });
    expect(said("solana")).toMatchObject({ price: "0.040000", payable: false });
    for (const seller of [box.sellers.avalanche, box.sellers.solana]) {
      expect(seller.seen.asked).toBeGreaterThan(0);
      expect(seller.seen.paid).toEqual([]);
    }
  });
});

describe("the evening of the recorded Bazaar", () => {
  const ofMarket = (): Set<string> => {
    const { port } = new URL(box.bazaar!.url);
    return new Set(plan.lines.flatMap(({ cap, host }) => (host.endsWith(`:${port}`) ? [cap] : [])));
  };

  test("is read whole, page by page, through a 429", () => {
    if (!box.bazaar) return;
    console.info(
      `mainnet in a box: ${JSON.stringify({ ...box.bazaar.served, said: box.bazaar.said, took_ms: tookMs })}`,
    );
    expect(box.bazaar.served).toEqual(COUNTS.served);
    expect(box.bazaar.said[429]).toBe(1);
    expect(report.says).toBeUndefined();
    expect(counted(report.rejected.map(({ reason }) => reason))).toEqual(COUNTS.rejected);
  });

  test("every stand-in that asks is live, is read with its protocol, and is accused of nothing", async () => {
    if (!box.bazaar) return;
    const caps = ofMarket();
    const all = (await recorded("observations.free", "handshake")).filter(({ cap }) => caps.has(cap!));
    expect(new Set(all.map(({ cap }) => cap))).toEqual(caps);
    // What else there is are rows without entries, or none with an amount: nobody's word can be read there.
    expect([...new Set(all.map(({ body }) => body.state))].sort()).toEqual(["asked", "malformed"]);
    expect(all.filter(({ body }) => body.state === "malformed").length).toBeLessThan(all.length * 0.08);
    const protocols = all.flatMap(({ body: { terms } }) => (terms ? [terms.protocols.join("+") || "none"] : []));
    expect(counted(protocols)).toEqual({ mpp: COUNTS.mpp, x402: all.length - COUNTS.mpp });
    const accused = all.filter(({ body: { live, honest, state, wall, fault } }) => {
      return wall || fault !== null || (state === "asked" && (!live || honest === false));
    });
    expect(accused.map(({ body: { terms, differs, says } }) => ({ offers: terms?.offers, differs, says }))).toEqual([]);
  });

  test("defects of a 402 that came over the wire are those of the same bytes read at once", async () => {
    if (!box.bazaar) return;
    const caps = ofMarket();
    const codes = (defects: readonly { defect: string }[]) => defects.map(({ defect }) => defect);
    const direct = box.bazaar.sent.map(({ url, headers, body }) =>
      codes(readTerms({ headers, body: Buffer.from(body) }, rail, url).terms.defects),
    );
    const free = (await recorded("observations.free", "handshake")).map(({ cap, body }) => ({
      cap,
      terms: body.terms,
    }));
    const paid = (await recorded("observations.paid", "paid.intent")).map(({ cap, body }) => ({
      ...{ cap, terms: body.first_leg.terms },
    }));
    const found = [...free, ...paid].flatMap(({ cap, terms }) => (caps.has(cap!) ? [codes(terms?.defects ?? [])] : []));
    const asTexts = (all: string[][]): string[] => all.map((one) => one.join()).sort();
    expect(asTexts(found)).toEqual(asTexts(direct));
    const sum = counted(found.flat());
    expect(Object.keys(sum).sort()).toEqual(COUNTS.defects);
  });

  test("who is covered follows from the salt and the caps, and who is not has a cap that it does not fit into", () => {
    const schedules = leaves.filter((leaf) => leaf.kind === "schedule");
    const committed = schedules.find(({ day }) => day === EVENING)!;
    const salt = Buffer.from(schedules.find(({ opens }) => opens?.day === EVENING)!.opens!.salt, "hex");
    expect(createHash("sha256").update(salt).digest("hex")).toBe(committed.salt_hash);
    expect(committed.covered).toBe(plan.lines.filter(({ covered }) => covered).length);
    for (const line of plan.lines) {
      expect(line.calls).toEqual(callsByRule(salt, line, blockOf(dayStart(EVENING)) + 3, 3));
    }
    expectCovered(plan, SPEND);
    const reasons = counted(plan.lines.map(({ why }) => why ?? "covered"));
    console.info(`mainnet in a box: plan ${JSON.stringify(reasons)}`);
    if (box.bazaar) expect(Object.keys(reasons)).toEqual(expect.arrayContaining(COUNTS.reasons));
  });

  test("who is planned is paid, no more than was set aside, and what it took is what the record says", async () => {
    if (!box.bazaar) return;
    const caps = ofMarket();
    const intents = (await recorded("observations.paid", "paid.intent")).filter(({ cap }) => caps.has(cap!));
    const settlements = await recorded("observations.paid", "settlement");
    const settled = new Map(settlements.map(({ body }) => [body.intent, body]));
    const planned = plan.lines.filter(({ cap, calls }) => caps.has(cap) && calls.some(({ kind }) => kind === "paid"));
    const tried = new Set(intents.map(({ cap }) => cap));
    const unpaid = planned.filter(({ cap }) => !tried.has(cap));
    expect([unpaid, box.bazaar.refused]).toEqual([[], []]);
    expect(planned.length).toBeGreaterThan(200);
    const aside = new Map(plan.lines.map(({ cap, price_micro }) => [cap, BigInt(price_micro ?? 0)]));
    expect(intents.filter(({ cap, body }) => parseMoney(body.quote.price) > aside.get(cap!)!)).toEqual([]);
    const results = (await recorded("observations.paid", "paid.result")).filter(({ cap }) => caps.has(cap!));
    const failed = results.filter(({ body: { live, honest, delivered } }) => !live || honest === false || !delivered);
    expect(failed.map(({ body }) => body)).toEqual([]);
    expect(box.bazaar.taken.map(({ tx }) => tx).sort()).toEqual(
      intents.flatMap(({ event_id }) => settled.get(event_id)?.tx ?? []).sort(),
    );
    expect(box.bazaar.taken).toHaveLength(intents.length);
    expect(new Set(box.bazaar.taken.map(({ network }) => network))).toEqual(new Set(["eip155:8453"]));
  });
});

/** Flags that say something of a seller, and not of how much is known of it. */
const ACCUSES = new Set([
  ...["took_the_money", "money_pending", "refunded", "refuses_payment", "early_fail", "recent_failures"],
  ...["listing_mismatch", "pay_to_changed", "deeper_tier_worse", "blocks_prober", "dark"],
  ...["payee_took_the_money", "domain_took_the_money"],
]);

test("no honest seller is flagged, on no card, and none has a letter below C", async () => {
  // Nobody can read what these ask, so they are not live.
  const seen = await recorded("observations.free", "handshake");
  const mute = new Set(seen.flatMap(({ cap, body }) => (body.state === "malformed" ? [cap] : [])));
  const cards = leaves.flatMap((leaf) => (leaf.kind === "grade" ? [leaf.card] : []));
  expect(cards.length).toBeGreaterThan(DAYS);
  const accused = cards.filter(
    ({ flags = [], band }) => flags.some((flag) => ACCUSES.has(flag)) || /^[DF]$/.test(band),
  );
  const said = accused.map(({ capability_id, band, flags }) => ({ capability_id, band, flags }));
  expect(said.filter(({ capability_id }) => !mute.has(capability_id))).toEqual([]);
});

test("touchstone audit finds nothing in what was published", async () => {
  const audit = [...runs("touchstone.ts"), "audit", join(dir, "public")];
  const { stdout } = await promisify(execFile)(process.execPath, audit, { cwd: resolve(import.meta.dirname, "../..") });
  expect(stdout).toMatch(/^ok {6}cards, recomputed: [1-9]/m);
  expect(stdout).toMatch(/^proven: /m);
});

/** Of the half of the corpus that stands beside the tree. */
const COUNTS = {
  served: { sites: 249, sellers: 234, rows: 1_313 },
  // One host lists 434 endpoints, and in its own document again.
  rejected: { domain_full: 468, not_http: 7 },
  mpp: 15,
  defects: [
    ...["bad_asset", "bad_entry", "bad_pay_to", "bad_timeout", "malformed_terms", "missing_amount", "missing_domain"],
    // Of Solana: one recorded seller lists an entry without `extra.feePayer`.
    ...["missing_fee_payer", "network_form", "no_payable_entry", "no_terms", "testnet_only"],
  ],
  reasons: ["covered", "nothing_to_pay", "per_call", "per_day", "per_host_day", "per_payee_day"],
};
