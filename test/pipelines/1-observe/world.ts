import { createHash } from "node:crypto";
import { FixedClock } from "../../../infra/clock.ts";
import type { Egress, EgressRequest, EgressResult } from "../../../infra/egress/egress.ts";
import type { Log, LogRecord, NewRecord } from "../../../infra/log/log.ts";
import type { LoopStall } from "../../../infra/loop-watch.ts";
import type {
  AsOf,
  Block,
  PayableEntry,
  Payers,
  PayersQuery,
  PaymentNeed,
  Rail,
  Settlement,
  SignedPayment,
  Wallet,
  Wallets,
} from "../../../infra/rails/rails.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import {
  createObserver,
  type Observer,
  type ObserverConfig,
  type ObserverParts,
} from "../../../pipelines/1-observe/observer.ts";
import type { Caps } from "../../../pipelines/1-observe/plan/spend.ts";
import { isPassing } from "../../../pipelines/1-observe/plan/steps.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { type Envelope, readRecord } from "../../../pipelines/record/envelope.ts";
import type {
  AwaitedIntent,
  ClassCall,
  Debts,
  FailedClass,
  ListedCap,
  Memory,
  OpenIntent,
  PaidPayee,
  StandingListing,
  Verdict,
} from "../../../pipelines/record/memory.ts";
import { parseMoney } from "../../../pipelines/record/money.ts";
import { BLOCK_MS, dayOf } from "../../../pipelines/record/time.ts";
import { STEADY_LOOP } from "../../helpers/steady-loop.ts";

export const NETWORK = "eip155:84532";
export const ASSET = "0x036cbd53842c5426634e7929541ec2318f3dcf7e";
export const PAY_TO = "0x209693bc6afc0c5328ba36faf03c514ef312287c";
export const DAY = "2026-11-02";
/** Who sends the transactions that settle. */
export const FACILITATOR = "0x4444444444444444444444444444444444444444";

/** A log in memory. `refuse` makes appends reject, after storing the first `keep` records of the batch. */
export class FakeLog implements Log {
  readonly id = "fake";
  readonly partitions = 1;
  readonly records: LogRecord[] = [];
  refuse: ((records: readonly NewRecord[]) => { keep: number } | null) | null = null;

  async append(records: readonly NewRecord[]) {
    const refused = this.refuse?.(records) ?? null;
    const kept = refused ? records.slice(0, refused.keep) : records;
    for (const record of kept) {
      this.records.push({ ...record, offset: this.records.length, appendedAt: new Date(0) });
    }
    if (refused) throw new Error("the disk is full");
    return records.map(({ topic, partition, eventId }, offset) => ({ topic, partition, offset, eventId }));
  }
  async read() {
    return this.records;
  }
  async bounds() {
    return { start: 0, end: this.records.length };
  }
  async truncate() {}
  async close() {}

  /** First copy of every record, as readers see them. */
  envelopes(): Envelope[] {
    const seen = new Set<string>();
    return this.records.flatMap((record) => {
      const read = readRecord(record);
      if (!read.ok) throw new Error(`the observer wrote a record that cannot be read: ${read.reason}`);
      if (seen.has(read.envelope.event_id)) return [];
      seen.add(read.envelope.event_id);
      return [read.envelope];
    });
  }

  bodies<T extends Envelope["type"]>(type: T): BodyOf<T>[] {
    return this.envelopes().flatMap((one) => (one.type === type ? [one.body as BodyOf<T>] : []));
  }
}

/** What the lake would answer, read straight from the log. */
export class LogMemory implements Memory {
  constructor(private readonly log: FakeLog) {}

  async listed(): Promise<ListedCap[]> {
    const caps = new Map<string, ListedCap>();
    const firstSeen = new Map<string, string>();
    for (const { type, cap, body, event_id, observed_at } of this.log.envelopes()) {
      if ((type === "handshake" || type === "mcp.probe") && cap && !firstSeen.has(cap)) firstSeen.set(cap, observed_at);
      if (type !== "listing" || !cap) continue;
      const listing = body as BodyOf<"listing">;
      const { claims, seller_controlled } = listing;
      const before = caps.get(cap);
      caps.set(cap, {
        cap,
        url: listing.normalised_url,
        method: claims.method ?? "GET",
        tool: claims.tool,
        claims: before?.sellerClaims ?? claims,
        sellerListing: seller_controlled ? event_id : (before?.sellerListing ?? null),
        sellerClaims: seller_controlled ? claims : (before?.sellerClaims ?? null),
        standing: [...(before?.standing ?? []), event_id],
        firstSeen: null,
        paidBlocks: 0,
        retest: { failing: false, passes: 0 },
        lastPrice: null,
        lastPayTo: null,
        lastTried: null,
      });
    }
    const results = new Map(this.log.bodies("paid.result").map((one) => [one.intent, one]));
    for (const { type, cap, body, event_id, observed_at } of this.log.envelopes()) {
      const one = cap ? caps.get(cap) : undefined;
      if (!one) continue;
      one.firstSeen = firstSeen.get(one.cap) ?? null;
      if (type === "handshake" || type === "mcp.probe") {
        const { price, pay_to, planned } = body as BodyOf<"handshake">;
        one.lastPrice = price ?? one.lastPrice;
        one.lastPayTo = pay_to ?? one.lastPayTo;
        if (planned === "paid") one.lastTried = observed_at;
      }
      if (type === "paid.intent") one.lastTried = observed_at;
      const result = type === "paid.intent" ? results.get(event_id) : undefined;
      if (!result || (result.fault !== null && result.fault !== "blocked")) continue;
      one.paidBlocks++;
      const { failing, passes: n } = one.retest;
      if (!isPassing(result)) one.retest = { failing: true, passes: 0 };
      else if (failing) one.retest = n >= 2 ? { failing: false, passes: 0 } : { failing: true, passes: n + 1 };
    }
    return [...caps.values()];
  }

  async readLeftSellerUrls(): Promise<string[]> {
    return [];
  }

  async listingsOf(source: string): Promise<StandingListing[]> {
    const rows: StandingListing[] = [];
    for (const { type, cap, body, event_id, observed_at } of this.log.envelopes()) {
      if (type !== "listing" && type !== "delisting") continue;
      const {
        source: name,
        source_id,
        normalised_url: url = null,
      } = body as Partial<BodyOf<"listing">> & BodyOf<"delisting">;
      if (name !== source) continue;
      for (const row of rows) row.newest &&= row.source_id !== source_id;
      const at = Date.parse(observed_at);
      rows.push({ source_id, cap: cap!, event_id, gone: type === "delisting", newest: true, url, at });
    }
    return rows;
  }

  async recordedIdsOn(day: string): Promise<Set<string>> {
    const done = new Set<string>();
    for (const { type, body, event_id } of this.log.envelopes()) {
      if (type !== "handshake" && type !== "mcp.probe" && type !== "paid.intent") continue;
      const { slot } = body as BodyOf<"handshake">;
      if (dayOf(new Date(slot.block * BLOCK_MS)) === day) done.add(event_id);
    }
    return done;
  }

  async passedInputs(): Promise<string[]> {
    const passed = new Set(this.log.bodies("paid.result").flatMap((one) => (isPassing(one) ? [one.intent] : [])));
    return this.#intents().flatMap(({ eventId, cap, intent }) =>
      passed.has(eventId) && intent.input === "synthetic" ? [`${cap} ${intent.request_sha256}`] : [],
    );
  }

  #intents(): OpenIntent[] {
    return this.log
      .envelopes()
      .flatMap(({ type, event_id, cap, observed_at, body }) =>
        type === "paid.intent"
          ? [{ eventId: event_id, cap: cap!, observedAt: observed_at, intent: body as BodyOf<"paid.intent"> }]
          : [],
      );
  }

  async openIntents(): Promise<OpenIntent[]> {
    const closed = new Set(this.log.bodies("paid.result").map((one) => one.intent));
    return this.#intents().filter((one) => !closed.has(one.eventId));
  }

  async awaitingSettlement(): Promise<AwaitedIntent[]> {
    const closed = new Set(this.log.bodies("paid.result").map((one) => one.intent));
    const seen = new Map(this.log.bodies("settlement").map((one) => [one.intent, one]));
    const final = new Set(this.log.bodies("paid.followup").flatMap((one) => (one.kind === "finality" ? [one.of] : [])));
    return this.#intents()
      .filter(({ eventId }) => closed.has(eventId) && !final.has(eventId) && !seen.get(eventId)?.final)
      .map((one) => ({ ...one, seen: seen.get(one.eventId) ?? null }));
  }

  /** Does a test look at retries? Else every endpoint's is known, so that each call is one request. */
  retriesDue = false;
  async wasRetriedSince(cap: string, since: string): Promise<boolean> {
    const found = this.log
      .envelopes()
      .some((one) => one.cap === cap && one.observed_at >= since && (one.body as BodyOf<"paid.followup">).retried);
    return !this.retriesDue || found;
  }

  /** What a test says that the lake would find. */
  payeesFound: PaidPayee[] = [];
  async payees(): Promise<PaidPayee[]> {
    return this.payeesFound;
  }
  async walletsPaying(payTo: string): Promise<string[]> {
    return this.#intents().flatMap(({ intent }) => (intent.quote.pay_to === payTo ? [intent.wallet] : []));
  }
  verdictsFound: Verdict[] = [];
  async findVerdicts(): Promise<Verdict[]> {
    return this.verdictsFound;
  }

  async readDebts(): Promise<Debts> {
    const results = new Map(this.log.bodies("paid.result").map((one) => [one.intent, one]));
    const seen = new Map(this.log.bodies("settlement").map((one) => [one.intent, one]));
    const later = this.log.bodies("paid.followup");
    const intents = new Map(this.#intents().map((one) => [one.eventId, one.intent]));
    const refunds = later.flatMap(({ of, refund }) => {
      const { wallet, quote } = intents.get(of) ?? {};
      return refund && wallet && quote ? [{ intent: of, tx: refund.tx, payee: quote.pay_to, wallet }] : [];
    });
    const owed = this.#intents().flatMap((one) => {
      const [result, transfer] = [results.get(one.eventId), seen.get(one.eventId)];
      const shown = later.filter((row) => row.of === one.eventId && row.kind === "shown_again");
      const came = result?.delivered || shown.some((row) => row.shown_again?.delivered);
      const back = refunds.some((row) => row.intent === one.eventId);
      return result && transfer && result.fault !== "ours" && shown.length > 0 && !came && !back
        ? [{ ...one, seen: transfer }]
        : [];
    });
    return { owed, refunds };
  }

  /** What a test says that the lake would find. */
  failedClassesFound: FailedClass[] = [];
  callsOfClassFound: ClassCall[] = [];
  async failedClasses(): Promise<FailedClass[]> {
    return this.failedClassesFound;
  }
  async callsOfClass(): Promise<ClassCall[]> {
    return this.callsOfClassFound;
  }

  async spentOn(day: string) {
    return this.#intents()
      .filter(({ intent }) => intent.planned_at.slice(0, 10) === day)
      .map(({ cap, intent: { url, quote } }) => ({
        ...{ cap, host: new URL(url).host, payTo: quote.pay_to, micro: parseMoney(quote.price) },
      }));
  }
}

/** A chain and a rail on it: signatures are nonces, and settling one puts a Transfer down. */
export class FakeRail implements Rail {
  readonly network = NETWORK;
  readonly asset = ASSET;
  down = false;
  /** What a wallet has to hold beside the price, atomic units. */
  fee = 0n;
  block = 100;
  time = 1_800_000_000;
  readonly signed: SignedPayment[] = [];
  readonly settled = new Map<string, Settlement>();
  readonly transfersBack: Settlement[] = [];
  final = true;

  #ask(): void {
    if (this.down) throw Object.assign(new Error("the chain does not answer"), { name: "ChainDown" });
  }
  feeReserve(): bigint {
    return this.fee;
  }
  canPay(entry: PayableEntry): boolean {
    const { scheme, network, asset, amountAtomic } = entry;
    const known = scheme === "exact" || entry.challenge?.method === "evm";
    return known && network === NETWORK && asset.toLowerCase() === ASSET && amountAtomic > 0n;
  }
  async sign(entry: PayableEntry, wallet: Wallet): Promise<SignedPayment> {
    const nonce = `0x${createHash("sha256").update(`${this.signed.length} ${Math.random()}`).digest("hex")}`;
    const value = { nonce, from: wallet.address, to: entry.payTo, amount: entry.amountAtomic.toString() };
    const headerValue = Buffer.from(JSON.stringify(value)).toString("base64");
    const signed: SignedPayment = {
      headerName: entry.challenge ? "AUTHORIZATION" : entry.x402Version === 1 ? "X-PAYMENT" : "PAYMENT-SIGNATURE",
      headerValue: entry.challenge ? `Payment ${headerValue}` : headerValue,
      from: wallet.address,
      nonce,
      validAfter: 0,
      validBefore: this.time + entry.maxTimeoutSeconds,
      amountAtomic: entry.amountAtomic,
    };
    this.signed.push(signed);
    return signed;
  }
  /** What a seller's facilitator does. The same nonce settles once. False when the chain is down or the nonce is used. */
  settle(header: string, change: Partial<Settlement> = {}): boolean {
    const { nonce, from, to, amount } = JSON.parse(Buffer.from(header.replace(/^Payment /, ""), "base64").toString());
    if (this.down || this.settled.has(nonce)) return false;
    this.block++;
    const tx = `0x${createHash("sha256").update(nonce).digest("hex")}`;
    const at = { tx, blockNumber: this.block, blockTime: this.time, final: this.final };
    const what = { from, to, sender: FACILITATOR, amountAtomic: BigInt(amount), asset: ASSET, network: NETWORK };
    this.settled.set(nonce, { ...at, ...what, ...change });
    return true;
  }
  /** As of the newest block, or one that a test sets: then a node that lags behind it answers. */
  asOf: Block | null = null;
  #read<T>(value: T): AsOf<T> {
    this.#ask();
    const block = this.asOf ?? { number: this.block, time: this.time };
    return { value, head: block, final: block };
  }
  async settlementOf({ nonce }: { nonce: string }): Promise<AsOf<Settlement | null>> {
    const seen = this.settled.get(nonce) ?? null;
    return this.#read(seen && this.asOf && seen.blockNumber > this.asOf.number ? null : seen);
  }
  async transfers(query: { from: string; to: string; sinceBlock: number }): Promise<AsOf<Settlement[]>> {
    const last = this.asOf?.number ?? Infinity;
    const isAsked = ({ from, to, blockNumber }: Settlement) =>
      from === query.from && to === query.to && blockNumber >= query.sinceBlock && blockNumber <= last;
    return this.#read(this.transfersBack.filter(isAsked));
  }
  /** What the chain has of every payee; null: nothing yet. */
  paid: Payers | null = null;
  async payersOf(_query: PayersQuery): Promise<Payers | null> {
    this.#ask();
    return this.paid;
  }
  async head() {
    this.#ask();
    return { number: this.block, time: this.time };
  }
  async transfersIn() {
    return this.#read([]);
  }
  /** What every wallet holds, atomic units. */
  funds = 10n ** 12n;
  async balance(): Promise<AsOf<bigint>> {
    this.#ask();
    const block = { number: this.block, time: this.time };
    return { value: this.funds, head: block, final: block };
  }
}

export class FakeWallets implements Wallets {
  readonly blinds: string[] = [];
  /** What each wallet was asked for, atomic units. */
  readonly needs: bigint[] = [];
  async known(need?: PaymentNeed): Promise<Wallet> {
    if (need) this.needs.push(need.amountAtomic);
    return { address: "0x1111111111111111111111111111111111111111", privateKey: "0x00" };
  }
  async blind(cap: string, day: string, _least?: bigint, need?: PaymentNeed): Promise<Wallet> {
    if (need) this.needs.push(need.amountAtomic);
    this.blinds.push(`${cap} ${day}`);
    const address = `0x${createHash("sha256").update(`${cap} ${day}`).digest("hex").slice(0, 40)}`;
    return { address, privateKey: "0x00" };
  }
}

export interface Asked extends EgressRequest {
  /** The payment as the intent has it, when one was sent: in a header, or in a tool's call. */
  payment: string | undefined;
  json: unknown;
}

export type Handler = (asked: Asked, n: number) => EgressResult | Promise<EgressResult>;

/** Strangers by origin. Unknown ones cannot be reached. */
export class FakeEgress implements Egress {
  readonly asked: Asked[] = [];
  readonly sellers = new Map<string, Handler>();
  before: ((asked: Asked) => void) | null = null;
  /** What the loop did that took the times of what is answered from here on. */
  loop: LoopStall = { stoodStill: false, atEnd: false };

  async fetch(request: EgressRequest): Promise<EgressResult> {
    const headers = Object.fromEntries(Object.entries(request.headers ?? {}).map(([k, v]) => [k.toLowerCase(), v]));
    const json = request.body ? JSON.parse(Buffer.from(request.body).toString()) : undefined;
    const inCall = json?.params?._meta?.["x402/payment"];
    const inTool =
      typeof inCall === "object"
        ? Buffer.from(JSON.stringify(inCall)).toString("base64")
        : (inCall as string | undefined);
    const payment = headers["payment-signature"] ?? headers["x-payment"] ?? headers.authorization ?? inTool;
    const asked: Asked = { ...request, headers, payment, json };
    this.before?.(asked);
    const n = this.asked.filter((one) => one.url === request.url && one.method === request.method).length;
    this.asked.push(asked);
    const seller = this.sellers.get(new URL(request.url).origin);
    const result = await (seller ? seller(asked, n) : transport("no route to host"));
    return this.loop.stoodStill ? { ...result, loop: this.loop } : result;
  }
  validate() {
    return { ok: true as const };
  }
  async close() {}

  paid(): Asked[] {
    return this.asked.filter((one) => one.payment !== undefined);
  }
}

export const answer = (
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
  totalMs = 20,
): EgressResult => ({
  outcome: "answered",
  status,
  headers: { "content-type": "application/json", ...headers },
  body: body instanceof Uint8Array ? body : Buffer.from(typeof body === "string" ? body : JSON.stringify(body)),
  headersMs: totalMs,
  totalMs,
  remoteAddress: "192.0.2.1",
  url: "",
});

export const transport = (says: string, sent = false): EgressResult => ({
  outcome: "transport",
  says,
  totalMs: 5,
  sent,
});
export const timeout = (): EgressResult => ({ outcome: "timeout", says: "no answer", totalMs: 30_000, sent: true });

export const entry = (change: Record<string, unknown> = {}) => ({
  scheme: "exact",
  network: NETWORK,
  amount: "10000",
  asset: ASSET,
  payTo: PAY_TO,
  maxTimeoutSeconds: 60,
  extra: { name: "USDC", version: "2" },
  ...change,
});

/** A version 2 answer with terms in the header. */
export const terms402 = (accepts: unknown[] = [entry()], rest: Record<string, unknown> = {}): EgressResult => {
  const value = { x402Version: 2, resource: { url: "https://seller.example/sum" }, accepts, ...rest };
  return answer(402, "{}", { "payment-required": Buffer.from(JSON.stringify(value)).toString("base64") });
};

export const OUTPUT_SCHEMA = {
  type: "object",
  properties: { sum: { type: "number" } },
  required: ["sum"],
};

/** An item of a seller's own listing: adds two numbers. */
export const item = (change: Record<string, unknown> = {}) => ({
  resource: "/sum",
  method: "GET",
  x402Version: 2,
  description: "adds two numbers",
  class: "arithmetic",
  accepts: [entry()],
  example: { query: { a: "1", b: "2" } },
  outputSchema: OUTPUT_SCHEMA,
  mimeType: "application/json",
  ...change,
});

export const wellKnown = (...items: unknown[]) => ({ version: 1, x402Version: 2, items });

export const sumOf = (url: string): number => {
  const { searchParams } = new URL(url);
  return Number(searchParams.get("a")) + Number(searchParams.get("b"));
};

/** A seller that keeps its word: lists itself, asks, settles, answers; the same proof shown again gets the answer again. */
export function honest(rail: FakeRail, change: { item?: Record<string, unknown>; accepts?: unknown[] } = {}): Handler {
  return (asked) => {
    if (new URL(asked.url).pathname === "/.well-known/x402") return answer(200, wellKnown(item(change.item)));
    if (asked.payment === undefined) return terms402(change.accepts);
    rail.settle(asked.payment);
    return answer(200, { sum: sumOf(asked.url) });
  };
}

/** As honest, with another answer to a paid call. */
export const paying =
  (rail: FakeRail, answerPaid: Handler, change: Parameters<typeof honest>[1] = {}): Handler =>
  (asked, n) =>
    asked.payment === undefined ? honest(rail, change)(asked, n) : answerPaid(asked, n);

export const CONTROL = "https://control.example";
export const SELLER = "https://seller.example";

export interface FakeWorld {
  log: FakeLog;
  memory: LogMemory;
  rail: FakeRail;
  wallets: FakeWallets;
  egress: FakeEgress;
  clock: FixedClock;
  acks: string[];
  observer: Observer;
  /** A new process on the same log, chain and sellers; `parts` of its own stand in the place of the world's. */
  restart(change?: Partial<ObserverConfig>, parts?: Partial<ObserverParts>): Observer;
}

/** The defaults of the settings. */
export const CAPS: Caps = {
  ...{ perCall: 100_000n, perHostDay: 2_000_000n, perDomainDay: 2_500_000n, perPayeeDay: 6_250_000n },
  ...{ perDay: 25_000_000n, total: 1_000_000_000n, newShare: 200_000n },
};
/** What the observers of tests have in common. */
export const CONFIG = { producer: "test", caps: CAPS, spentBefore: 0n, secret: Buffer.alloc(32, 1) };

export function fakeWorld(change: Partial<ObserverConfig> = {}): FakeWorld {
  const log = new FakeLog();
  const rail = new FakeRail();
  const egress = new FakeEgress();
  egress.sellers.set(CONTROL, () => answer(200, { ok: true }));
  const clock = new FixedClock(`${DAY}T00:00:00.000Z`);
  const acks: string[] = [];
  const memory = new LogMemory(log);
  const wallets = new FakeWallets();
  const logger = createLogger("silent");
  const start = (more: Partial<ObserverConfig> = {}, parts: Partial<ObserverParts> = {}): Observer =>
    createObserver({
      loop: STEADY_LOOP,
      log,
      egress,
      rail,
      wallets,
      clock,
      memory,
      logger,
      metrics: createMetrics(),
      onAck: (ids) => acks.push(...ids),
      config: {
        ...CONFIG,
        controlUrls: [`${CONTROL}/ok`],
        hostsAtOnce: 4,
        secret: Buffer.alloc(32, 7),
        settlePollMs: [],
        ...change,
        ...more,
      },
      ...parts,
    });
  return { log, memory, rail, wallets, egress, clock, acks, observer: start(), restart: start };
}
