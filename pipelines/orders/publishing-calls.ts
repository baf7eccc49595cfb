import { createHmac, randomBytes } from "node:crypto";
import { compress } from "zstd-napi";
import { sha256hex } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { putPacked } from "../4-publish/writes.ts";
import { callKey } from "../published/objects.ts";
import { commitmentHash, createCommitmentRecord, SALT_BYTES } from "../record/commitment.ts";
import { type Envelope, envelopeOf, sealEnvelope } from "../record/envelope.ts";
import { isBuyersCheck } from "../record/expectation.ts";
import { crockford130 } from "../record/ids.ts";
import type { BoughtRequest, StepOf } from "../record/order-step.ts";
import { callToRecord, type Leg, type Order } from "./order.ts";
import { type OrderLog, StepNotSeen } from "./order-log.ts";
import type { OrderObjects } from "./order-objects.ts";
import { neededBy } from "./order-objects-sweep.ts";

/** Salts of the commitments (salted hashes, commitment.ts) to request and answer, 64 hex digits each. */
export type Salts = Record<"request" | "response", string>;

export interface PublishingDeps {
  orders: Pick<OrderLog, "read" | "step">;
  /** Store of request bodies and answers. Objects that nobody needs once the call is recorded are removed from it. */
  objects: Pick<OrderObjects, "get" | "remove">;
  log: Pick<Log, "append" | "partitions">;
  /** The public store, to which only objects under `call/` are written here. */
  publicStore: Store;
  /** Returns the public pseudonym of a buyer's wallet ({@link createPayerNames}). */
  nameOf(wallet: string): string;
  logger: Pick<Logger, "warn" | "error">;
  metrics: Pick<Metrics, "count">;
}

/**
 * How long recovery looks for missing bytes of a call before it gives the call up, real ms. It waits so long since an
 * operator may have configured a wrong store.
 */
const GIVE_UP_AFTER_MS = 86_400_000;

const PRODUCER = "orders";

/** Draws the salts of an order that is not published. The order's first step (`claimed`) stores them. */
export const createSalts = (): Salts => {
  const drawSalt = () => randomBytes(SALT_BYTES).toString("hex");
  return { request: drawSalt(), response: drawSalt() };
};

/**
 * Returns a function that makes the pseudonym of a buyer's wallet for the public record. All replicas make equal
 * pseudonyms. The name is an HMAC and not a plain hash: addresses are public, so anybody could hash a list of them and
 * compare. The HMAC's key is derived from the secret for this purpose alone, so names reveal nothing about other keys
 * that are derived from the secret.
 * @param secret of the whole service, at least 32 bytes
 */
export function createPayerNames(secret: Uint8Array): (wallet: string) => string {
  const key = createHmac("sha256", secret).update("touchstone/payer-names/1").digest();
  return (wallet) => `buyer_${crockford130(createHmac("sha256", key).update(wallet.toLowerCase()).digest())}`;
}

/**
 * Returns the bytes that represent a request in the public record and over which its sha256 is computed: `METHOD url`
 * (for an MCP tool `TOOL url name`), a newline and the body. Headers are left out, since all our requests have the
 * same two.
 */
export const requestBytes = (
  { method, url, tool }: Pick<BoughtRequest, "method" | "url" | "tool">,
  body: Uint8Array,
): Buffer => Buffer.concat([Buffer.from(tool === undefined ? `${method} ${url}\n` : `TOOL ${url} ${tool}\n`), body]);

/**
 * Reads the salts of an order from its claim in the log.
 * @returns null for a published call, for an order without a call, and for an older order
 * @throws StepNotSeen
 */
export async function readSalts(orders: Pick<OrderLog, "read">, order: Order): Promise<Salts | null> {
  const { salts } = await orders.read("claimed", { partition: order.partition, offset: order.claimedAt });
  return salts ? { request: salts.request, response: salts.response } : null;
}

/** A call that a buyer bought through us: its leg (payment to one seller) with the bytes of request and answer. */
interface BoughtCall {
  leg: Leg;
  result: NonNullable<Leg["result"]>;
  intent: StepOf<"seller_intent">;
  request: Buffer;
  /** null if no bytes of an answer were received. */
  response: Buffer | null;
}

/**
 * Writes calls that buyers bought through us into the public record (orders.md, Publish): whole if the buyer agreed
 * to that, else as two salted commitments. All writes are idempotent: an object's name is its content's hash, and a
 * record's id and time follow from the order. So a repetition after a crash, or by two replicas at once, writes
 * identical copies. The order's step `recorded` is appended last; while it is missing, recovery repeats everything.
 */
export class PublishingCalls {
  constructor(private readonly deps: PublishingDeps) {}

  /**
   * Writes the call of an order into the record, if {@link callToRecord} returns one. This process must be the one
   * that acts on the order.
   * @throws OrderLost, StepNotSeen, PublicConflict, and what store and log throw; recovery then tries again
   */
  async record(order: Order): Promise<void> {
    const leg = callToRecord(order);
    if (!leg?.result) return;
    const { orders, log, metrics } = this.deps;
    const boughtCall = await this.#readCall(order, leg, leg.result);
    if (!boughtCall) return this.#endLostCall(order);
    const records = order.publish
      ? [await this.#writePublished(order, boughtCall)]
      : await this.#createCommitments(order, boughtCall);
    // The objects were written first, so a record never refers to bytes that are missing.
    if (records.length > 0) await log.append(records.map((envelope) => sealEnvelope(envelope, log.partitions)));
    await orders.step(order, { state: "recorded" });
    await this.#removeUnneeded(order);
    metrics.count("touchstone_orders_recorded_total", {
      published: `${order.publish}`,
      pass: `${leg.result.pass}`,
    });
  }

  /**
   * Reads request and answer of a call.
   * @returns null when bytes are missing or do not match the hashes in the steps
   */
  async #readCall(order: Order, leg: Leg, result: BoughtCall["result"]): Promise<BoughtCall | null> {
    const { orders, objects } = this.deps;
    const intent = await orders.read("seller_intent", { partition: order.partition, offset: order.intentAt! });
    const { body_sha256: sha256, body_bytes: size = 0 } = intent.request;
    const body = sha256 ? await objects.get(order, leg.leg, "request", { sha256, size }) : Buffer.alloc(0);
    const digest = result.sha256 === null ? null : { sha256: result.sha256, size: result.size };
    const response = digest && (await objects.get(order, leg.leg, "answer", digest));
    if (!body || (digest && !response)) return null;
    const request = requestBytes(intent.request, body);
    const isIntact = intent.leg === leg.leg && sha256hex(request) === intent.request.sha256;
    return isIntact ? { leg, result, intent, request, response } : null;
  }

  /**
   * Handles missing bytes of a call: throws, so that recovery tries again, until a day after the order's newest step;
   * then appends that the call is lost and will not be in the public record.
   */
  async #endLostCall(order: Order): Promise<void> {
    const { orders, logger, metrics } = this.deps;
    if (systemClock.now().getTime() - order.movedAt < GIVE_UP_AFTER_MS)
      throw new StepNotSeen(`bytes of ${order.id} are not in the store of orders`);
    await orders.step(order, { state: "recorded", lost: true });
    logger.error({ order: order.id }, "the bytes of a bought call are gone: it never enters the record");
    metrics.count("touchstone_orders_calls_lost_total");
  }

  /** Removes the order's objects that nobody needs any more. If that fails, {@link ObjectSweep} removes them later. */
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

  async #writePublished(order: Order, boughtCall: BoughtCall): Promise<Envelope<"paid.published">> {
    const { leg, result, intent, request, response } = boughtCall;
    await this.#put(intent.request.sha256, request);
    if (response && result.sha256 !== null) await this.#put(result.sha256, response);
    const body = {
      ...{ order: order.id, leg: leg.leg, payer: this.deps.nameOf(order.payer) },
      ...{ url: intent.request.url, method: intent.request.method, price: leg.price, pay_to: leg.payTo },
      ...{ network: intent.network, asset: intent.asset, tx: leg.tx!, status: result.status },
      // A buyer's own expectation is left out of the public record, so an answer that fails only that counts as passed.
      pass: result.pass || result.unmet === true,
      ...{ delivered: result.delivered, delivery: result.delivery ?? null, schema_ok: result.schema_ok ?? null },
      ...{
        latency_ms: result.latency_ms,
        checks: result.checks.filter((one) => !isBuyersCheck(one)),
        content_type: result.content_type,
      },
      ...{ request_sha256: intent.request.sha256, request_bytes: request.length },
      ...{ response_sha256: result.sha256, response_bytes: response?.length ?? 0 },
    };
    const slot = `${order.id}/${leg.leg}`;
    const envelopeMembers = { cap: leg.cap, key: leg.cap, slot, at: new Date(result.at), producer: PRODUCER };
    return envelopeOf({ type: "paid.published", ...envelopeMembers, body });
  }

  /**
   * Makes the commitments to request and answer, or to the request alone if no bytes of an answer were received; none
   * for an older order without salts.
   */
  async #createCommitments(order: Order, boughtCall: BoughtCall): Promise<Envelope<"paid.commitment">[]> {
    const salts = await readSalts(this.deps.orders, order);
    if (!salts) return [];
    const { leg, result, request, response } = boughtCall;
    const createCommitment = (salt: string, bytes: Buffer) =>
      createCommitmentRecord(leg.cap, commitmentHash(Buffer.from(salt, "hex"), bytes), new Date(result.at), PRODUCER);
    return [
      createCommitment(salts.request, request),
      ...(response ? [createCommitment(salts.response, response)] : []),
    ];
  }

  async #put(sha256: string, bytes: Uint8Array): Promise<void> {
    await putPacked(this.deps.publicStore, callKey(sha256), compress(Buffer.from(bytes), { compressionLevel: 3 }));
  }
}
