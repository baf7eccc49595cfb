import { FixedClock } from "../../infra/clock.ts";
import type { EgressRequest, EgressResult } from "../../infra/egress/egress.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import type { SignedTransfer } from "../../infra/rails/authorization.ts";
import type { PaymentNeed, Wallet } from "../../infra/rails/rails.ts";
import type { Outcome } from "../../infra/rails/sender.ts";
import type { Till } from "../../infra/rails/till.ts";
import { readInitializeAnswer, readReply } from "../../pipelines/1-observe/mcp/answers.ts";
import { type Expectation, evaluate } from "../../pipelines/1-observe/reading/checks.ts";
import { Schemas } from "../../pipelines/1-observe/reading/schema.ts";
import { Buying } from "../../pipelines/orders/buying.ts";
import type { OrderCaps } from "../../pipelines/orders/caps.ts";
import { claimKey } from "../../pipelines/orders/claim.ts";
import type { GasOf } from "../../pipelines/orders/gas.ts";
import type { Holding } from "../../pipelines/orders/holding.ts";
import type { Order } from "../../pipelines/orders/order.ts";
import { OrderLog, STALE_MS } from "../../pipelines/orders/order-log.ts";
import { OrderObjects } from "../../pipelines/orders/order-objects.ts";
import { ObjectSweep } from "../../pipelines/orders/order-objects-sweep.ts";
import { OrderTable } from "../../pipelines/orders/order-table.ts";
import type { PublishingCalls } from "../../pipelines/orders/publishing-calls.ts";
import { Recovery } from "../../pipelines/orders/recovery.ts";
import type { SellerQuote, SellerTools } from "../../pipelines/orders/seller.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import { feeOf, formatMoney } from "../../pipelines/record/money.ts";
import type { OrderStep } from "../../pipelines/record/order-step.ts";
import { MemoryStore } from "../pipelines/mirror/memory-store.ts";
import {
  ASSET,
  type FakeAuthorization,
  FakeChain,
  type FakeNode,
  NETWORK,
  newNonce,
  readAuth,
  type TestChain,
  type TestRail,
  written,
} from "./fake-chain.ts";
import { type AppendFault, FakeLog } from "./fake-log.ts";

export const TILL = "0xtill";
export const FLOAT = "0xfloat";
export const FLOAT_HAS = 1_000_000_000n;

export type SellerKind = "honest" | "thief" | "grabs later" | "gives for nothing" | "reprices" | "garbage";
export const SELLERS: readonly SellerKind[] = [
  ...(["honest", "thief", "grabs later", "gives for nothing", "reprices", "garbage"] as const),
];

/** A payment of a buyer, and what it buys. */
export interface FakePayment {
  auth: FakeAuthorization;
  seller: SellerKind;
  priceMicro: bigint;
  /** Of the request; absent: a GET. */
  body?: Uint8Array;
  /** The seller's tool is called, over MCP. */
  tool?: boolean;
  /** The facilitator calls it valid, whatever became of its nonce. */
  waved?: boolean;
  /** It is a payment into escrow. */
  escrow?: boolean;
}

/** End of the address of a seller's MCP server. */
const MCP = "/mcp";
interface McpMessage {
  id?: number;
  method: string;
  params?: { _meta: Record<string, unknown> };
}

const MUCH = 10n ** 12n;
const RICH: OrderCaps = {
  ...{ leastPrice: 0n, wastedPerPayerDay: MUCH, wastedPerNetworkDay: MUCH },
  ...{ bytesPerPayerDay: MUCH, bytesPerNetworkDay: MUCH },
  ...{ perPayer: MUCH, perNetwork: MUCH, open: MUCH, lossPerDay: MUCH },
  ...{ lossPerPayeeDay: MUCH, lossPerPlatformDay: MUCH, lossPerCapDay: MUCH },
};
const quiet = { warn() {}, error() {} };
const metrics = { count() {}, gauge() {}, time() {} };
const schemas = new Schemas();
const SHA = "0".repeat(64);

/** One process: it can stand still at any of its effects, for a while or for ever, and its appends can fail. */
export class FakeReplica {
  readonly buying: Buying;
  readonly recovery: Recovery;
  /** What it reads the chain through. */
  readonly rail: TestRail;
  /** What puts money into escrow: nothing does here. */
  readonly holding = {} as Holding;
  readonly sweep: ObjectSweep;
  /** How far its machine's clock is ahead of the log's, ms. */
  aheadMs = 0;
  /** What it reads the chain from: up to date and honest, until a test changes it. */
  readonly node: FakeNode = {};
  /** Effects until it stands still, and appends until one fails. */
  haltIn: number | null = null;
  faultIn: { appends: number; fault: AppendFault } | null = null;
  /** Objects until so many (default: one) of them are not written, or written without a word of it. */
  storeFault: { in: number; many?: number; writes: boolean } | null = null;
  readonly #halted: (() => void)[] = [];

  constructor(
    readonly world: OrderWorld<TestChain>,
    readonly name: string,
    caps: OrderCaps,
  ) {
    const { chain, log } = world;
    const append: FakeLog["append"] = async (records) => {
      await this.#gate();
      const due = this.faultIn && --this.faultIn.appends <= 0 ? this.faultIn.fault : null;
      if (due) this.faultIn = null;
      const appended = await log.append(records, due);
      await this.#gate();
      return appended;
    };
    const { clock } = world;
    const real = { now: () => new Date(log.now + this.aheadMs) };
    const reading = { append, read: log.read, bounds: log.bounds, partitions: 2 };
    const orders = new OrderLog(reading, clock, name, null, { real, sold: world.sold });
    const rail = world.railOf(this.node);
    this.rail = rail;
    const seller = {
      ...{ rail, float: (need?: PaymentNeed) => world.float(need) },
      egress: { fetch: (request: EgressRequest) => this.#at(() => world.sell(request)) },
      reader: { ask: async (name: keyof typeof READS, of: never) => ({ ok: true, value: READS[name](of) }) },
      loop: { begin: () => () => ({ stoodStill: false, atEnd: false }) },
      control: { call: async () => ({ url: "https://control.example", ok: world.isOnline, at: "" }) },
    } as unknown as SellerTools;
    const till: Till = {
      name: "fake",
      verify: async () => ({ valid: true, payer: "" }),
      settle: (payment) => this.#at(() => world.charge(payment)),
    };
    const { holding } = this;
    const { store } = world;
    const create = (key: string, bytes: Uint8Array) => this.#at(() => this.#create(key, bytes));
    const kept = { ...store, get: store.get, swap: store.swap.bind(store), delete: store.delete.bind(store), create };
    const objects = new OrderObjects(kept, metrics, [0]);
    this.sweep = new ObjectSweep({
      ...{ orders, store, clock, logger: quiet, metrics, keepDays: 30, maxBytes: 2 ** 30, ...world.sweeping },
    });
    const gas: GasOf = async (order, kind, tx) =>
      tx && !order.gas.some((one) => one.tx === tx) ? { gas: { kind, tx, wei: "1" } } : {};
    const readNonce: TestRail["stateOf"] = (query) => this.rail.stateOf(query);
    const deps = { orders, seller, till, holding, objects, caps, gas, clock, logger: quiet, metrics, readNonce };
    this.buying = new Buying({ ...deps, settlePollMs: [0], coverPollMs: [0, 1, 2, 5, 10] });
    this.recovery = new Recovery({
      ...{
        buying: this.buying,
        holding,
        rail,
        logger: world.logger,
        metrics,
        till: async () => ({ address: TILL, privateKey: "0x" }),
      },
      publishing: { record: (order: Order) => orders.step(order, { state: "recorded" }) } as PublishingCalls,
      authorizations: {
        signTransfer: async (_wallet, { to, amountAtomic, validForSeconds }) =>
          transferOf(chain, { to, amountAtomic, validForSeconds }),
        submitTransfer: (transfer) => this.#at(() => world.payBack(transfer)),
      },
    });
  }

  async #at<T>(act: () => T | Promise<T>): Promise<T> {
    await this.#gate();
    const came = await act();
    await this.#gate();
    return came;
  }

  async #create(key: string, bytes: Uint8Array) {
    const fault = this.storeFault && --this.storeFault.in < 0 ? this.storeFault : null;
    if (fault && fault.in <= -(fault.many ?? 1)) this.storeFault = null;
    if (fault && !fault.writes) throw new Error("the store is down");
    const made = await this.world.store.create(key, bytes);
    if (fault) throw new Error("the store's answer was lost");
    return made;
  }

  #gate(): Promise<void> {
    if (this.haltIn === null || --this.haltIn > 0) return Promise.resolve();
    this.haltIn = null;
    return new Promise((resolve) => this.#halted.push(resolve));
  }

  /** Does it stand still, or is about to, or will its log fail? */
  get stands(): boolean {
    return this.haltIn !== null || this.faultIn !== null || this.#halted.length > 0;
  }

  wake(): void {
    for (const go of this.#halted.splice(0)) go();
  }
}

/** What the reader's thread does, in this one. */
const READS = {
  evaluate: ({ result, want }: { result: EgressResult; want: Expectation }) => evaluate(result, want, schemas, false),
  welcome: readInitializeAnswer,
  reply: readReply,
};

function transferOf(
  chain: TestChain,
  { to, amountAtomic, validForSeconds }: { to: string; amountAtomic: bigint; validForSeconds: number },
): SignedTransfer {
  const times = { validAfter: "0", validBefore: String(chain.time + validForSeconds) };
  const authorization = { from: TILL, to, value: amountAtomic.toString(), ...times, nonce: newNonce() };
  return { authorization, signature: "0x" };
}

function stepsIn(record: LogRecord): readonly OrderStep[] {
  const read = readRecord(record);
  return read.ok ? [read.envelope.body as OrderStep] : [];
}

/** The chain, the log, the sellers and the facilitator, and what each effect must have found in the log. */
export class OrderWorld<C extends TestChain = FakeChain> {
  readonly log = new FakeLog();
  /** Time of the record, of all replicas. */
  readonly clock = new FixedClock(new Date("2026-11-23T12:00:00.000Z"));
  /** Bodies and answers, of all replicas. */
  readonly store = new MemoryStore();
  /** Other bounds for what is kept, of replicas that are made from now on. */
  sweeping: { keepDays?: number; maxBytes?: number } = {};
  /** Effects that no durable step had named, in words. */
  readonly unannounced: string[] = [];
  /** Payments that sellers hold and have not used. */
  readonly held: FakeAuthorization[] = [];
  readonly bought: { payment: FakePayment; order: string; state: Order["state"] }[] = [];
  /** The money that calls are sold for, of replicas that are made from now on; undefined: any. */
  sold: { network: string; asset: string } | undefined;
  /** Of the recovery of replicas that are made from now on. */
  logger = quiet;
  /** Do our control calls succeed? */
  isOnline = true;
  /** What the facilitator does next instead of its work. */
  tillFault: "says nothing" | "settles and says nothing" | "lies" | null = null;
  replicas: FakeReplica[] = [];
  #names = 0;

  constructor(
    replicas = 2,
    readonly caps: OrderCaps = RICH,
    readonly chain: C = new FakeChain() as TestChain as C,
  ) {
    this.chain.mint(FLOAT, FLOAT_HAS);
    for (let n = 0; n < replicas; n++) this.replicas.push(this.replica());
  }

  /** The wallet that pays sellers. */
  float = async (_need?: PaymentNeed): Promise<Wallet> => ({ address: FLOAT, privateKey: "0x" });
  /** What a replica reads the chain through. */
  railOf = (node: FakeNode): TestRail => this.chain.rail(node);
  /** Name of the client network that a wallet asks from. */
  network: (payer: string) => string = (payer) => `net of ${payer}`;

  /** Steps of a state as they stand in the log, those too that change nothing. */
  stepsOf = (state: OrderStep["state"]): OrderStep[] => this.#steps().filter((one) => one.state === state);

  replica = (): FakeReplica => new FakeReplica(this, `r${this.#names++}`, this.caps);

  /** Every record is looked at before every effect, and read once. */
  readonly #read = new WeakMap<LogRecord, readonly OrderStep[]>();

  #steps(): OrderStep[] {
    return this.log.all().flatMap((record) => {
      const known = this.#read.get(record) ?? stepsIn(record);
      this.#read.set(record, known);
      return known;
    });
  }

  /** A fold of the log as it stands now. */
  table(records = this.log.all()): OrderTable {
    const table = new OrderTable();
    for (const record of records) table.apply(record);
    return table;
  }

  /** A request to a seller: its endpoint, or a message to the MCP server that has its tool. */
  async sell({ url, headers = {}, body }: EgressRequest): Promise<EgressResult> {
    const answer = (status: number, text: string): EgressResult => ({
      ...{ outcome: "answered", status, headers: { "content-type": "application/json" }, body: Buffer.from(text) },
      ...{ headersMs: 1, totalMs: 2, remoteAddress: "203.0.113.1", url },
    });
    const kind = new URL(url).pathname.slice(1).replaceAll("-", " ") as SellerKind;
    const message = url.endsWith(MCP) ? (JSON.parse(Buffer.from(body!).toString()) as McpMessage) : null;
    if (message === null) {
      const { status, text } = await this.#paid(kind, headers["payment-signature"]!);
      return answer(status, text);
    }
    const { id, method, params } = message;
    const says = (result: object) => answer(200, JSON.stringify({ jsonrpc: "2.0", id, result }));
    if (method === "initialize") return says({ protocolVersion: "2025-06-18" });
    if (method !== "tools/call") return answer(202, "");
    const sent = params!._meta["x402/payment"];
    const header = typeof sent === "string" ? sent : Buffer.from(JSON.stringify(sent)).toString("base64");
    const { status, text } = await this.#paid(kind.slice(0, -MCP.length) as SellerKind, header);
    const content = text === "" ? [] : [{ type: "text", text }];
    if (status !== 402) return says({ content });
    return says({ isError: true, content, structuredContent: { x402Version: 2, accepts: [{}], error: "pay" } });
  }

  /** What a seller of this kind does with a payment, and what it answers. */
  async #paid(kind: SellerKind, header: string): Promise<{ status: number; text: string }> {
    if (!this.#steps().some((step) => step.state === "seller_intent" && step.signed_bytes === header)) {
      this.unannounced.push(`a seller was paid with ${header}`);
    }
    const auth = readAuth(header);
    const paid =
      kind === "honest" || kind === "thief" ? (await this.chain.submit(auth)) === null : kind === "gives for nothing";
    if (kind === "grabs later") this.held.push(auth);
    if (kind === "reprices") return { status: 402, text: "{}" };
    if (kind === "garbage") return { status: 200, text: "{not json" };
    if (!paid) return { status: 402, text: "{}" };
    return { status: 200, text: kind === "thief" ? "" : '{"sum":42}' };
  }

  charge = (payment: unknown): Promise<Outcome> => this.chargeAtChain(payment);

  async chargeAtChain(payment: unknown): Promise<Outcome> {
    const text = (payment as { payload: string }).payload;
    const auth = readAuth(text);
    const steps = this.#steps();
    const claim = steps.find(
      (one) => one.state === "claimed" && (one.payment as { payload?: string }).payload === text,
    );
    if (!steps.some((one) => one.order === claim?.order && one.state === "settle_intent")) {
      this.unannounced.push(`a buyer was charged with ${text}`);
    }
    const fault = this.tillFault;
    this.tillFault = null;
    if (fault === "says nothing") return { outcome: "unknown", says: "timeout" };
    if (fault === "lies") return { outcome: "sent", tx: "0xnone" };
    const said = await this.chain.charge(auth);
    return fault === "settles and says nothing" ? { outcome: "unknown", says: "timeout" } : said;
  }

  async payBack({ authorization }: SignedTransfer): Promise<Outcome> {
    const { validAfter, validBefore, value, ...rest } = authorization;
    const stands = [...this.table().all()].some((order) => order.refund?.nonce === authorization.nonce);
    if (!stands) this.unannounced.push(`a refund was sent that no order has: ${authorization.nonce}`);
    const numbers = { validAfter: Number(validAfter), validBefore: Number(validBefore), value: BigInt(value) };
    const refused = await this.chain.submit({ ...rest, ...numbers });
    return refused === null ? { outcome: "sent", tx: "0x" } : { outcome: "refused", reason: refused };
  }

  /** A new payment for a call of this seller, signed by this wallet. */
  pay(payer: string, seller: SellerKind, priceMicro = 10_000n, validS = 240): FakePayment {
    const nonce = newNonce();
    const times = { validAfter: 0, validBefore: this.chain.time + validS };
    const auth = { from: payer, to: TILL, value: priceMicro + feeOf(priceMicro), nonce, ...times };
    return { auth, seller, priceMicro };
  }

  /**
   * Posts it at a replica, which verifies it as a facilitator would. The order as it was told, or null.
   * @param shop origin of the seller; `to`: what else of it is otherwise
   */
  async post(
    replica: FakeReplica,
    payment: FakePayment,
    shop?: string,
    to: Partial<Pick<SellerQuote, "cap" | "payTo" | "lettered">> = {},
  ): Promise<Order | null> {
    const { auth } = payment;
    const key = claimKey({ network: NETWORK, asset: ASSET, from: auth.from, nonce: auth.nonce });
    const { orders } = replica.buying;
    const told = (order: Order) => {
      this.bought.push({ payment, order: order.id, state: order.state });
      return order;
    };
    try {
      await orders.catchUp(key);
      const known = orders.table.ofKey(key);
      if (known) return told(known);
      const { chain } = this;
      const isGood = (payment.waved || !(await chain.isUsed(auth))) && (await chain.balance(auth.from)) >= auth.value;
      if (!isGood || auth.validBefore < chain.time + 90) return null;
      const purchase = purchaseOf(payment, key, shop);
      const claim = { ...purchase.claim, client: this.network(auth.from) };
      return told(await replica.buying.buy({ ...purchase, claim, quote: ofShop(purchase.quote, shop, to) }));
    } catch {
      return null;
    }
  }

  /** Everything that can still come comes; then one process that was never there before brings all to its end. */
  async end(): Promise<OrderTable> {
    this.log.arrive();
    const last = this.replica();
    for (let look = 0; look < 40; look++) {
      this.log.now += STALE_MS;
      await last.recovery.look();
      await last.sweep.sweepSome();
      if (last.buying.orders.table.open().length === 0) break;
      await this.chain.pass(130);
    }
    return last.buying.orders.table;
  }
}

/** Each shop is a seller of its own. */
function ofShop(quote: SellerQuote, shop: string | undefined, to: Partial<SellerQuote>): SellerQuote {
  const { payTo = shop ? `${quote.payTo} of ${shop}` : quote.payTo } = to;
  const cap = shop ? `cap_${shop}` : quote.cap;
  return { ...quote, cap, ...to, payTo, entry: { ...quote.entry, payTo } };
}

const pathOf = (seller: SellerKind): string => seller.replaceAll(" ", "-");
/** Origin of a seller of this kind that a test gives no shop. */
const originOf = (seller: SellerKind): string => `https://${pathOf(seller)}.example`;

/** What the sums know of a seller of this kind that has no shop. */
export const sellerOfKind = (seller: SellerKind) => ({
  ...{ payTo: `0x${seller.replaceAll(" ", "")}`, cap: `cap_${seller}`, lettered: true },
  url: `${originOf(seller)}/${pathOf(seller)}`,
});

function purchaseOf(payment: FakePayment, key: string, shop = originOf(payment.seller)) {
  const { auth, seller, priceMicro, tool } = payment;
  const { payTo, cap } = sellerOfKind(seller);
  const url = `${shop}/${pathOf(seller)}${tool ? MCP : ""}`;
  const body = payment.body ?? (tool ? Buffer.from("{}") : undefined);
  const money = { price: formatMoney(priceMicro), fee: formatMoney(feeOf(priceMicro)), total: formatMoney(auth.value) };
  return {
    key,
    claim: {
      ...{
        operation: "via" as const,
        scheme: payment.escrow ? ("auth-capture" as const) : ("exact" as const),
        network: NETWORK,
        asset: ASSET,
        payer: auth.from,
        nonce: auth.nonce,
      },
      ...{ valid_after: auth.validAfter, valid_before: auth.validBefore, payment: { payload: written(auth) } },
      ...{ payment_sha256: SHA, requirements: { payTo: TILL }, request_sha256: SHA, quote: money, publish: false },
    },
    quote: {
      ...{ cap, priceMicro, payTo, context: {}, lettered: true },
      request: {
        url,
        method: body ? ("POST" as const) : ("GET" as const),
        headers: {},
        body: body ?? null,
        sha256: SHA,
        ...(tool ? { tool: { name: "add", arguments: {}, isInputUnknown: false } } : {}),
      },
      entry: {
        ...{ x402Version: 2 as const, scheme: "exact", network: NETWORK, asset: ASSET, payTo },
        ...{ amountAtomic: priceMicro, maxTimeoutSeconds: 60, extra: {}, raw: {} },
      },
      want: { class: "unclassified", known: null, schema: undefined, mime: "application/json" },
    },
  };
}
