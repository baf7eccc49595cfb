import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { encodePaymentRequiredHeader, encodePaymentResponseHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { LOCAL_NETWORK, LOCAL_USDC } from "../../fixtures/chain/local-chain.ts";
import { signObject } from "../../infra/keys/signer.ts";
import type { Facilitator } from "../../infra/rails/facilitator.ts";
import { capId } from "../../pipelines/record/ids.ts";
import { NOW, type PublicRecord } from "./public-record.ts";

export const SELLER = "https://seller.example/sum";
const CAP = capId("POST", SELLER);
export const ORDER = `ord_${"1".repeat(26)}`;
const PAY_TO = "0x00000000000000000000000000000000000000b2";

interface Order {
  request: string;
  state: string;
  status: number;
  body: string;
  receipt: string | null;
}

/**
 * What goes wrong at the n-th time that a payment comes (from 1), before or after the work. `slow`: the 408 with which
 * Node ends a request that arrives too slowly. `silent`: the 524 of a CDN that waited in vain for an answer. `refused`:
 * the refusal of another replica, which does not see that the first sending is under way.
 */
export type AnswerFault = "lost" | "cut" | "open" | "busy" | "proxy" | "slow" | "silent" | "refused" | "expired";

const readPayment = (paid: string): PaymentPayload => JSON.parse(Buffer.from(paid, "base64").toString());

/**
 * The pay-on-delivery side of the service in small, over real HTTP and a real chain: asks 402, verifies and settles with the
 * facilitator after its work, knows a payment that came before for the same order, and answers the same bytes again.
 */
export class ViaServer {
  /** Every request for the via url, with its payment header and the header that publishes. */
  readonly calls: { paid: string | null; publish: string | null; expect: string | null; url: string; body: string }[] =
    [];
  readonly settlements: string[] = [];
  polls = 0;
  /** By how often a payment has come. */
  faults: AnswerFault[] = [];
  /** Does the seller's answer pass? */
  passes = true;
  amount = "22000";
  /** What the check says it costs. */
  total = "0.022000";
  isForSale = true;
  answeredAt = (): string => NOW;
  /** Bytes of the answer that a settled order carries; the service keeps up to 1 MiB. */
  answerBytes = 0;
  /** Reads of an open order until it is settled. */
  openFor = 2;
  extra: PaymentRequirements[] = [];
  /** Members of an order that are changed after it was signed. */
  forged: Record<string, unknown> = {};
  /** Called when something is asked or done, before it goes on. */
  at: (step: "price" | "paid" | "settled" | "order") => void | Promise<void> = () => {};
  readonly #orders = new Map<string, Order>();
  #paid = 0;

  private constructor(
    private readonly record: PublicRecord,
    private readonly facilitator: Facilitator,
    private readonly server: ReturnType<typeof createServer>,
  ) {}

  static async open(record: PublicRecord, facilitator: Facilitator): Promise<ViaServer> {
    const server = createServer((request, response) => {
      via.#answer(request, response).catch((error: Error) => response.writeHead(500).end(error.message));
    });
    const via = new ViaServer(record, facilitator, server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return via;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  get #terms(): PaymentRequirements {
    const extra = { name: "USDC", version: "2" };
    const asset = LOCAL_USDC;
    const network = LOCAL_NETWORK as PaymentRequirements["network"];
    return { scheme: "exact", network, amount: this.amount, asset, payTo: PAY_TO, maxTimeoutSeconds: 300, extra };
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url!, this.url);
    const json = (status: number, body: unknown, headers = {}) =>
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
    if (url.pathname === "/.well-known/svc-keys.json") return void json(200, this.record.jwks);
    if (url.pathname === "/v1/check") return void json(200, this.#check(url.searchParams.get("url")!));
    if (url.pathname === `/v1/orders/${ORDER}`) {
      await this.at("order");
      this.polls++;
      const [order] = this.#orders.values();
      if (this.polls >= this.openFor) await this.#settleOpen(order!);
      const answer = order!.state === "settled" ? { base64: Buffer.alloc(this.answerBytes).toString("base64") } : {};
      const shown = { order_id: ORDER, state: order!.state, ...answer, answered_at: this.answeredAt() };
      return void json(200, { ...signObject(this.record.keys.answers, shown), ...this.forged });
    }
    await this.#via(request, response, json);
  }

  #check(asked: string): object {
    const guarantee = "charged only if the answer passed";
    const buy = {
      ...{ url: `${this.url}/v1/via/${CAP}`, method: "POST", seller_price: "0.020000", fee: "0.002000", asset: "USDC" },
      ...{ total: this.total, guarantee, publish: "Touchstone-Publish: true" },
    };
    const facts = {
      band: "B",
      tier: null,
      composite: null,
      why: "B: it delivers.",
      asked,
      ...{ matched: "exact", capabilityId: CAP, url: SELLER },
      defects: [],
    };
    return signObject(this.record.keys.answers, {
      ...facts,
      ...(this.isForSale ? { buy } : {}),
      answered_at: this.answeredAt(),
    });
  }

  async #via(
    request: IncomingMessage,
    response: ServerResponse,
    json: (status: number, body: unknown, headers?: object) => void,
  ): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    const paid = (request.headers["payment-signature"] as string | undefined) ?? null;
    const publish = (request.headers["touchstone-publish"] as string | undefined) ?? null;
    const expect = (request.headers["touchstone-expect"] as string | undefined) ?? null;
    this.calls.push({ paid, publish, expect, url: request.url!, body });
    await this.at(paid === null ? "price" : "paid");
    const askPrice = () => {
      const resource = { url: `${this.url}${request.url}` };
      const required = { x402Version: 2, resource, accepts: [this.#terms, ...this.extra] };
      return json(402, {}, { "payment-required": encodePaymentRequiredHeader(required) });
    };
    if (paid === null) return askPrice();
    const fault = this.faults[this.#paid++];
    if (fault === "busy") return json(503, {}, { "content-type": "application/problem+json", "retry-after": "0" });
    if (fault === "proxy") return void response.writeHead(502, { "content-type": "text/html" }).end("<h1>Bad gateway");
    if (fault === "refused") return json(502, { title: "No price" }, { "content-type": "application/problem+json" });
    if (fault === "slow") return void response.writeHead(408, { connection: "close", "content-length": "0" }).end();
    // The seller asks for another price than the one that is paid.
    if (this.#orders.size === 0 && readPayment(paid).accepted.amount !== this.amount) return askPrice();
    const order = await this.#inTurn(() =>
      this.#order(paid, `${request.method} ${request.url} ${body}`, fault === "open"),
    );
    if (order === null) {
      const type = { "content-type": "application/problem+json" };
      return json(409, { detail: "this payment was for another request" }, type);
    }
    await this.at("settled");
    if (fault === "silent") return void response.writeHead(524, { "content-type": "text/html" }).end("<h1>Timeout");
    if (fault === "expired")
      return json(410, { title: "Not kept", detail: `order ${ORDER} was charged` }, { "touchstone-order": ORDER });
    if (fault === "lost") return void request.socket.destroy();
    if (order.state === "settle_unknown")
      return json(202, { order_id: ORDER, state: order.state }, { "retry-after": "0" });
    const receipt = order.receipt ? { "payment-response": order.receipt, "touchstone-order": ORDER } : {};
    const type = order.status === 502 ? "application/problem+json" : "application/json";
    response.writeHead(order.status, { "content-type": type, ...receipt });
    if (fault === "cut") return void response.write(order.body.slice(0, 3), () => request.socket.destroy());
    response.end(order.body);
  }

  #last: Promise<unknown> = Promise.resolve();

  /** One payment in two requests at once is one order. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#last.then(work);
    this.#last = run.catch(() => {});
    return run;
  }

  /** The order of this payment: claimed, worked for and settled once. */
  async #order(paid: string, request: string, open: boolean): Promise<Order | null> {
    const key = createHash("sha256").update(paid).digest("hex");
    const known = this.#orders.get(key);
    if (known) return known.request === request ? known : null;
    const payload = readPayment(paid);
    const verified = await this.facilitator.verify(payload, this.#terms);
    if (!verified.isValid) throw new Error(verified.invalidReason);
    const body = this.passes ? JSON.stringify({ sum: 42 }) : JSON.stringify({ status: 502, title: "Not delivered" });
    const order: Order = { request, state: "released", status: this.passes ? 200 : 502, body, receipt: null };
    this.#orders.set(key, order);
    this.#settle = async () => {
      const settled = await this.facilitator.settle(payload, this.#terms);
      this.settlements.push(settled.transaction);
      order.receipt = encodePaymentResponseHeader(settled);
      order.state = "settled";
    };
    if (open) order.state = "settle_unknown";
    else if (this.passes) await this.#settle();
    return order;
  }

  #settle: () => Promise<void> = async () => {};

  async #settleOpen(order: Order): Promise<void> {
    if (order.state === "settle_unknown") await this.#settle();
  }
}
