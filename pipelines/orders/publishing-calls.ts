import { createHmac, randomBytes } from "node:crypto";
import { compress } from "zstd-napi";
import { sha256hex } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { putPacked } from "../4-publish/writes.ts";
import { callKey } from "../published/objects.ts";
import { commitmentHash, commitmentRecord, SALT_BYTES } from "../record/commitment.ts";
import { type Envelope, envelopeOf, sealEnvelope } from "../record/envelope.ts";
import { isBuyersOwn } from "../record/expectation.ts";
import { crockford130 } from "../record/ids.ts";
import type { BoughtRequest, StepOf } from "../record/order-step.ts";
import { callToRecord, type Leg, type Order } from "./order.ts";
import { type OrderLog, StepNotSeen } from "./order-log.ts";
import type { OrderObjects } from "./order-objects.ts";
import { neededBy } from "./order-objects-sweep.ts";

/** Salts of the commitments to request and answer, 64 hex digits each. */
export type Salts = Record<"request" | "response", string>;

export interface PublishingDeps {
  orders: Pick<OrderLog, "read" | "step">;
  /** Body and answer of the call; what is needed no more once it is recorded is removed. */
  objects: Pick<OrderObjects, "get" | "remove">;
  log: Pick<Log, "append" | "partitions">;
  /** `call/` of it is written, nothing else. */
  publicStore: Store;
  /** Opaque name of a buyer's wallet ({@link payerNames}). */
  nameOf(wallet: string): string;
  logger: Pick<Logger, "warn" | "error">;
  metrics: Pick<Metrics, "count">;
}

/** How long bytes that are gone are looked for before the call is given up, real ms: a store may be the wrong one. */
const LOST_MS = 86_400_000;

const PRODUCER = "orders";

/** Salts of an order that is not published: drawn once, and durable with its claim. */
export const newSalts = (): Salts => {
  const drawn = () => randomBytes(SALT_BYTES).toString("hex");
  return { request: drawn(), response: drawn() };
};

/**
 * Names of buyers' wallets: one for all calls of a wallet, in every replica. An HMAC and not a hash, since addresses are
 * public: whoever has a list of them could hash them all and compare. Under a key of its own, so that nothing that else
 * hangs on the secret (wallets do) can ever be printed as a name.
 * @param secret of the whole service, at least 32 bytes
 */
export function payerNames(secret: Uint8Array): (wallet: string) => string {
  const key = createHmac("sha256", secret).update("touchstone/payer-names/1").digest();
  return (wallet) => `buyer_${crockford130(createHmac("sha256", key).update(wallet.toLowerCase()).digest())}`;
}

/**
 * What stands for the request in the record, and what its sha256 is over: `METHOD url` (of a tool `TOOL url name`), a
 * newline and the body. Headers are two that every client sends.
 */
export const requestBytes = (
  { method, url, tool }: Pick<BoughtRequest, "method" | "url" | "tool">,
  body: Uint8Array,
): Buffer => Buffer.concat([Buffer.from(tool === undefined ? `${method} ${url}\n` : `TOOL ${url} ${tool}\n`), body]);

/**
 * The salts of an order, as its claim has them: the same ones however often they are asked for, for as long as the log is
 * kept. null of a published call, and of an order without a call.
 * @throws StepNotSeen
 */
export async function saltsOf(orders: Pick<OrderLog, "read">, order: Order): Promise<Salts | null> {
  const { salts } = await orders.read("claimed", { partition: order.partition, offset: order.claimedAt });
  return salts ? { request: salts.request, response: salts.response } : null;
}

/** A call as it was bought. */
interface Bought {
  leg: Leg;
  result: NonNullable<Leg["result"]>;
  intent: StepOf<"seller_intent">;
  request: Buffer;
  /** null: no bytes came. */
  response: Buffer | null;
}

/**
 * Brings bought calls into the record (orders.md, Publish): whole, where the buyer asked for that, else as two salted
 * commitments. Made once in effect: every object is named by its content, and every record has the id and the moment that
 * the order gives it, so whoever does it again after a crash, or beside a replica that is not dead yet, writes copies. The
 * step `recorded` comes last, and whoever finds an order without it does everything again.
 */
export class PublishingCalls {
  constructor(private readonly deps: PublishingDeps) {}

  /**
   * The call of an order that we act on. Nothing is done where {@link callToRecord} names none.
   * @throws OrderLost, StepNotSeen, PublicConflict, and what store and log throw: then it is tried at the next look
   */
  async record(order: Order): Promise<void> {
    const leg = callToRecord(order);
    if (!leg?.result) return;
    const { orders, log, metrics } = this.deps;
    const bought = await this.#bought(order, leg, leg.result);
    if (!bought) return this.#lost(order);
    const records = order.publish ? [await this.#published(order, bought)] : await this.#committed(order, bought);
    // The objects before the record that names them: nobody is ever sent to bytes that are not there.
    if (records.length > 0) await log.append(records.map((envelope) => sealEnvelope(envelope, log.partitions)));
    await orders.step(order, { state: "recorded" });
    await this.#removeUnneeded(order);
    metrics.count("touchstone_orders_recorded_total", {
      published: `${order.publish}`,
      pass: `${leg.result.pass}`,
    });
  }

  /** @returns null when bytes of it are not there, or are not what the steps say */
  async #bought(order: Order, leg: Leg, result: Bought["result"]): Promise<Bought | null> {
    const { orders, objects } = this.deps;
    const intent = await orders.read("seller_intent", { partition: order.partition, offset: order.intentAt! });
    const { body_sha256: sha256, body_bytes: size = 0 } = intent.request;
    const body = sha256 ? await objects.get(order, leg.leg, "request", { sha256, size }) : Buffer.alloc(0);
    const named = result.sha256 === null ? null : { sha256: result.sha256, size: result.size };
    const response = named && (await objects.get(order, leg.leg, "answer", named));
    if (!body || (named && !response)) return null;
    const request = requestBytes(intent.request, body);
    const whole = intent.leg === leg.leg && sha256hex(request) === intent.request.sha256;
    return whole ? { leg, result, intent, request, response } : null;
  }

  /** Its bytes are gone. Looked for again for a day; then it is said so, and the order ends without a record of its call. */
  async #lost(order: Order): Promise<void> {
    const { orders, logger, metrics } = this.deps;
    if (systemClock.now().getTime() - order.movedAt < LOST_MS)
      throw new StepNotSeen(`bytes of ${order.id} are not in the store of orders`);
    await orders.step(order, { state: "recorded", lost: true });
    logger.error({ order: order.id }, "the bytes of a bought call are gone: it never enters the record");
    metrics.count("touchstone_orders_calls_lost_total");
  }

  /** Its answer stays only where the buyer was charged for it. What fails here is done by the next sweep. */
  async #removeUnneeded(order: Order): Promise<void> {
    const { objects, logger } = this.deps;
    try {
      for (const { leg } of order.legs)
        for (const kind of ["request", "answer"] as const)
          if (neededBy(order, leg, kind) === null) await objects.remove(order, leg, kind);
    } catch (error) {
      logger.warn({ err: error, order: order.id }, "what an order needs no more could not be removed yet");
    }
  }

  async #published(order: Order, bought: Bought): Promise<Envelope<"paid.published">> {
    const { leg, result, intent, request, response } = bought;
    await this.#put(intent.request.sha256, request);
    if (response && result.sha256 !== null) await this.#put(result.sha256, response);
    const body = {
      ...{ order: order.id, leg: leg.leg, payer: this.deps.nameOf(order.payer) },
      ...{ url: intent.request.url, method: intent.request.method, price: leg.price, pay_to: leg.payTo },
      ...{ network: intent.network, asset: intent.asset, tx: leg.tx!, status: result.status },
      // What a buyer expects beside our own checks is its own: no seller is told of in the record for it.
      pass: result.pass || result.unmet === true,
      ...{ delivered: result.delivered, delivery: result.delivery ?? null, schema_ok: result.schema_ok ?? null },
      ...{
        latency_ms: result.latency_ms,
        checks: result.checks.filter((one) => !isBuyersOwn(one)),
        content_type: result.content_type,
      },
      ...{ request_sha256: intent.request.sha256, request_bytes: request.length },
      ...{ response_sha256: result.sha256, response_bytes: response?.length ?? 0 },
    };
    const slot = `${order.id}/${leg.leg}`;
    const of = { cap: leg.cap, key: leg.cap, slot, at: new Date(result.at), producer: PRODUCER };
    return envelopeOf({ type: "paid.published", ...of, body });
  }

  /** Two of an answered call, one where no bytes came. An order from before there were salts has none. */
  async #committed(order: Order, bought: Bought): Promise<Envelope<"paid.commitment">[]> {
    const salts = await saltsOf(this.deps.orders, order);
    if (!salts) return [];
    const { leg, result, request, response } = bought;
    const sealed = (salt: string, bytes: Buffer) =>
      commitmentRecord(leg.cap, commitmentHash(Buffer.from(salt, "hex"), bytes), new Date(result.at), PRODUCER);
    return [sealed(salts.request, request), ...(response ? [sealed(salts.response, response)] : [])];
  }

  async #put(sha256: string, bytes: Uint8Array): Promise<void> {
    await putPacked(this.deps.publicStore, callKey(sha256), compress(Buffer.from(bytes), { compressionLevel: 3 }));
  }
}
