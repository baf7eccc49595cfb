import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { sha256hex } from "../infra/canonical.ts";
import type { Config } from "../infra/config.ts";
import { Failure, type FailureCode } from "../infra/errors.ts";
import { microOf } from "../serving/client/concerns.ts";
import {
  type Bought,
  BuyRefused,
  BuyUnknown,
  buyThrough,
  type CheckAnswer,
  type Concern,
  type Service,
  ServiceFault,
} from "../serving/client/index.ts";
import { checkEndpoint, checkLines, createService, toFailure, whyNotSold } from "./check.ts";
import { forgetPayment, keepingPayments, keptBeside } from "./kept-payment.ts";
import { canAsk, openDialogue, printJson, printJsonText, printLines, say } from "./printer.ts";
import { openPurse, type Purse, payingFrom } from "./purse.ts";
import type { OptionsOf } from "./table.ts";

/** Longest order, with an answer of 1 MiB in base64. */
const ORDER_BYTES = 4 * 1024 * 1024;

/** What an order tells whoever bought. */
interface OrderRead {
  order_id?: unknown;
  says?: unknown;
  charged?: { amount: string; tx: string } | null;
  answer?: { sha256: string } | null;
}

/** The answer of the seller, or the problem document in its place. */
interface Came {
  type: string | null;
  bytes: Buffer;
  /** null: it is no text. */
  text: string | null;
}

/**
 * `touchstone buy`: shows the check, asks, buys one call on delivery, prints the answer and keeps the signed order beside it.
 * @throws Failure by its cause: `ungraded`, `dear`, `refused`, `undelivered`, `open`, `wallet`, `tampered`, `unreachable`
 */
export async function buyCommand(config: Config, endpoint: string, options: OptionsOf<"buy">): Promise<void> {
  const input = inputOf(options.input);
  const most = sumOf(options.maxPrice);
  if (options.save !== undefined && existsSync(options.save))
    throw new Failure("already", `${options.save} is there already, and is not overwritten`);
  const before = options.save === undefined ? null : keptBeside(options.save);
  if (before !== null)
    throw new Failure("already", `${before} holds a payment whose outcome is not known: touchstone resume ${before}`);
  if (!options.yes && !canAsk())
    throw new Failure("usage", "there is no terminal to ask at: --yes buys without a question, up to --max-price");
  const service = createService(config, options.service);
  const { answer, concerns } = await checkEndpoint(service, { url: endpoint, method: options.method });
  if (!options.json || !options.yes) say(checkLines(answer, concerns));
  const total = priceOf(answer, most, options.maxPrice);
  const purse = await openPurse(config, options.key);
  if (!options.yes) await agree(`Pay up to ${total} USDC from ${purse.says} (${purse.address})? [y/N] `);
  // Whoever was asked agreed to this sum; whoever was not, to the most that was named.
  const cap = options.yes && most !== null ? options.maxPrice! : total;
  const sent: Sent = { input, cap, purse, escrow: options.escrow === true, save: options.save, payment: null };
  const bought = await purchase(service, { url: endpoint, method: options.method }, sent);
  const quoted = () => quotedNow(answer, sent);
  await conclude(
    service,
    { bought, payer: purse, check: { answer, concerns }, payment: sent.payment, quoted },
    options,
  );
}

/** @throws Failure `usage` */
function inputOf(text: string | undefined): Record<string, unknown> | null {
  if (text === undefined) return null;
  try {
    const value: unknown = JSON.parse(text);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Said below.
  }
  throw new Failure("usage", '--input: a JSON object is expected, such as {"a":20,"b":22}');
}

/** Micro-units. @throws Failure `usage` */
function sumOf(text: string | undefined): bigint | null {
  if (text === undefined) return null;
  const micro = microOf(text.includes(".") ? text : `${text}.0`);
  if (micro === null) throw new Failure("usage", `--max-price: ${text} is no sum of USDC, such as 0.05`);
  return micro;
}

/** The price with the fee, which is within what may be paid. @throws Failure `ungraded`, `refused`, `dear` */
function priceOf(answer: CheckAnswer, most: bigint | null, named: string | undefined): string {
  const { buy, band } = answer;
  if (!buy) throw new Failure(band === "UNRATED" ? "ungraded" : "refused", `not for sale: ${whyNotSold(answer)}`);
  if (most !== null && (microOf(buy.total) ?? most + 1n) > most)
    throw new Failure("dear", `it costs ${buy.total} USDC with the fee, more than ${named}`);
  return buy.total;
}

/** @throws Failure `refused` */
async function agree(question: string): Promise<void> {
  const { ask, close } = await openDialogue();
  try {
    const said = await ask(question);
    if (!/^y(?:es)?$/i.test(said ?? "")) throw new Failure("refused", "not bought: you said no");
  } finally {
    close();
  }
}

interface Sent {
  input: Record<string, unknown> | null;
  /** Decimal sum of USDC. */
  cap: string;
  purse: Purse;
  escrow: boolean;
  save: string | undefined;
  /** File of the payment, once one was signed. */
  payment: string | null;
}

const asParameter = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** The address of a call, with the input as its query where it is a GET. */
function addressOf(url: string, method: string, input: Sent["input"]): string {
  if (input === null || method !== "GET") return url;
  const whole = new URL(url);
  for (const [name, value] of Object.entries(input)) whole.searchParams.set(name, asParameter(value));
  return whole.href;
}

/** @throws Failure */
async function purchase(
  service: Service,
  question: { url: string; method?: "GET" | "POST" | undefined },
  sent: Sent,
): Promise<Bought> {
  const { input, cap, purse, escrow, save } = sent;
  const of = { endpoint: question.url, service: service.base, payer: { address: purse.address, says: purse.says } };
  const keep = (file: string): void => {
    sent.payment = file;
  };
  // The question for the seller may stand in the address or beside it; the service is asked about the address alone.
  const pay = (fetch: typeof globalThis.fetch): typeof globalThis.fetch => {
    const paying = payingFrom(purse, keepingPayments(fetch, of, save, keep), { most: cap, escrow });
    return (at, init) => {
      const method = init?.method ?? "GET";
      const body = input !== null && method === "POST" ? { body: JSON.stringify(input) } : {};
      return paying(addressOf(String(at), method, input), { ...init, ...body });
    };
  };
  const headers: Record<string, string> = input === null ? {} : { "content-type": "application/json" };
  try {
    return await buyThrough(service, { ...question, cap, pay, headers });
  } catch (error) {
    throw purchaseFailure(error, service, sent.payment);
  }
}

const REFUSALS: Record<BuyRefused["code"], FailureCode> = {
  not_offered: "refused",
  over_cap: "dear",
  bad_cap: "usage",
};

/** @param payment file of the payment that was sent, or null */
export function purchaseFailure(error: unknown, service: Service, payment: string | null): unknown {
  const again = payment === null ? "" : ` Ask again with the same payment: touchstone resume ${payment}`;
  if (error instanceof BuyUnknown) {
    const where = error.order === null ? "" : `; the order: GET /v1/orders/${error.order}`;
    const says = `${error.message}${where}. Do not buy again before it has ended.${again}`;
    return new Failure("open", says, { cause: error });
  }
  // Whatever else went wrong once a payment was signed: only the service knows what came of it.
  if (payment !== null) {
    const says = `a payment was signed, and what came of it is not known: ${(error as Error).message}.${again}`;
    return new Failure("open", says, { cause: error as Error });
  }
  if (error instanceof Failure || error instanceof ServiceFault) return toFailure(error, service);
  if (error instanceof BuyRefused) return new Failure(REFUSALS[error.code], error.message, { cause: error });
  if (error instanceof TypeError && error.message === "fetch failed")
    return new Failure(
      "unreachable",
      `the service did not answer: ${(error.cause as Error)?.message ?? error.message}`,
    );
  return new Failure("refused", `no payment was made: ${(error as Error).message}`, { cause: error as Error });
}

/** A purchase whose outcome is known. */
interface Ended {
  bought: Omit<Bought, "answer">;
  payer: { address: string; says: string };
  /** null: an earlier run asked for it. */
  check: { answer: CheckAnswer; concerns: Concern[] } | null;
  /** File of the payment; null: none was signed. */
  payment: string | null;
  /** Why the price at this moment was not within the cap. */
  quoted?: () => Promise<Failure>;
}

/**
 * Prints what came, keeps and verifies the order, removes the payment, and fails where nothing was delivered. While the order
 * cannot be kept, the payment stays: it fetches answer and order once more.
 * @throws Failure
 */
export async function conclude(
  service: Service,
  ended: Ended,
  { save, json }: Pick<OptionsOf<"buy">, "save" | "json">,
): Promise<void> {
  const { bought, payer, check, payment } = ended;
  const came = await cameIn(bought.response);
  const { outcome, order, receipt } = bought;
  const isDelivered = outcome === "delivered";
  if (isDelivered && save !== undefined) saveAnswer(save, came.bytes);
  const file = order === null ? null : `${save ?? order}${save === undefined ? "" : ".order"}.json`;
  const kept = order === null ? null : await keptOrder(service, order, file!).catch((error: unknown) => error as Error);
  const read = kept instanceof Error ? null : kept;
  if (json) {
    const body = came.text === null ? { base64: came.bytes.toString("base64") } : { text: came.text };
    const shown = { status: bought.response.status, content_type: came.type, ...body };
    const charged = read?.charged ?? null;
    const facts = { outcome, payer: payer.address, order, order_file: read && file, charged };
    const checked = check && { ...check.answer, concerns: check.concerns };
    printJson({ ...facts, receipt, answer: shown, check: checked });
  } else {
    if (isDelivered && save === undefined) printAnswer(came);
    if (read) say([`${read.says}`, `order ${order}, signed by the service and verified: ${file}`]);
  }
  const isKept = !(kept instanceof Failure && kept.code === "unreachable");
  if (payment !== null && isKept) forgetPayment(payment);
  if (!isDelivered) throw await notDelivered(ended, came);
  if (payment !== null && !isKept)
    throw new Failure("unreachable", `${kept.message}; once more: touchstone resume ${payment}`, { cause: kept });
  if (kept instanceof Error) throw kept;
  if (read?.answer && read.answer.sha256 !== sha256hex(came.bytes))
    throw new Failure("tampered", `the order of ${file} is of another answer than the one that came`);
}

/** @throws Failure `already` where another answer is there */
function saveAnswer(save: string, bytes: Buffer): void {
  if (!existsSync(save)) writeFileSync(save, bytes, { flag: "wx" });
  else if (!readFileSync(save).equals(bytes)) throw new Failure("already", `${save} is there, and is not overwritten`);
}

async function cameIn(response: Response): Promise<Came> {
  const bytes = Buffer.from(await response.arrayBuffer());
  const type = response.headers.get("content-type");
  const isText = type === null || /^text\/|\b(?:json|xml|javascript|x-www-form-urlencoded)\b/i.test(type);
  return { type, bytes, text: isText ? bytes.toString("utf8") : null };
}

function printAnswer({ text, bytes, type }: Came): void {
  if (text === null) say(`${bytes.length} bytes of ${type}; the order keeps them, and --save <file> would have`);
  else if (/\bjson\b/i.test(type ?? "")) printJsonText(text.trim());
  else printLines(text.split(/\r?\n/));
}

/** Reads an order, writes it as it came, and verifies its signature. @throws Failure `tampered`, `unreachable`, `already` */
async function keptOrder(service: Service, id: string, file: string): Promise<OrderRead> {
  if (!/^ord_[0-9A-Z]{26}$/.test(id)) throw new Failure("tampered", "the service names an order that is none");
  try {
    const { body } = await service.ask(`/v1/orders/${id}`, {}, { max_bytes: ORDER_BYTES });
    if (existsSync(file) && jsonIn(readFileSync(file, "utf8")).order_id !== id)
      throw new Failure("already", `${file} is there already, and is not overwritten`);
    writeFileSync(file, `${JSON.stringify(body, null, 2)}\n`, { mode: 0o600 });
    const order = (await service.verified(body, "answers", "answered_at")) as OrderRead;
    if (order.order_id !== id) throw new Failure("tampered", `signed, but another order than ${id}`);
    return order;
  } catch (error) {
    throw toFailure(error, service);
  }
}

/** Why nothing was delivered, with the code of its cause. */
async function notDelivered({ bought, payer, quoted }: Ended, came: Came): Promise<Failure> {
  const said = jsonIn(came.text);
  const detail = String(said.detail ?? said.title ?? said.error ?? `status ${bought.response.status}`);
  if (bought.outcome === "not_delivered") return new Failure("undelivered", `not charged: ${detail}`);
  const { status } = bought.response;
  if (said.refused_by === "touchstone-client" && quoted) return quoted();
  if (status === 402 && said.error === "insufficient_funds")
    return new Failure("wallet", `${payer.says} (${payer.address}): ${detail}`);
  if (status === 400 || status === 422) return new Failure("usage", `the service refuses the call: ${detail}`);
  return new Failure(status >= 500 && status !== 502 ? "unreachable" : "refused", `not bought: ${detail}`);
}

/** The price at this moment was not within the cap: asked for once more, without a payment, for what it is. */
async function quotedNow({ buy }: CheckAnswer, { input, cap }: Sent): Promise<Failure> {
  const dear = new Failure("dear", `the price at this moment is more than ${cap} USDC, or none that can be read`);
  try {
    const { method } = buy!;
    const url = addressOf(buy!.url, method, input);
    const body = input !== null && method === "POST" ? { body: JSON.stringify(input) } : {};
    const response = await fetch(url, { method, ...body, redirect: "error", signal: AbortSignal.timeout(15_000) });
    const said = jsonIn(await response.text());
    const offers = said.accepts;
    return Array.isArray(offers) && offers.length === 0 ? new Failure("refused", `not sold: ${said.error}`) : dear;
  } catch {
    return dear;
  }
}

function jsonIn(text: string | null): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text ?? "");
    return value !== null && typeof value === "object" ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
