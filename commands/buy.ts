import { existsSync, writeFileSync } from "node:fs";
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
import { canAsk, openDialogue, printJson, printJsonText, printLines, say } from "./printer.ts";
import { openPurse, type Purse, payingFrom } from "./purse.ts";
import type { OptionsOf } from "./table.ts";

/** Longest order, with an answer of 1 MiB in base64. */
const MAX_ORDER_BYTES = 4 * 1024 * 1024;

/** The parts of a signed order that the buyer needs. */
interface ParsedOrder {
  order_id?: unknown;
  says?: unknown;
  charged?: { amount: string; tx: string } | null;
  answer?: { sha256: string } | null;
}

/** The seller's answer, or the problem document that came instead. */
interface SellerAnswer {
  type: string | null;
  bytes: Buffer;
  /** Null when the answer is not text. */
  text: string | null;
}

/**
 * `touchstone buy`: shows the check, asks for confirmation, buys one call on delivery, prints the answer and saves the
 * signed order beside it.
 * @throws Failure by its cause: `ungraded`, `dear`, `refused`, `undelivered`, `open`, `wallet`, `tampered`,
 * `unreachable`
 */
export async function buyCommand(config: Config, endpoint: string, options: OptionsOf<"buy">): Promise<void> {
  const input = inputOf(options.input);
  const most = sumOf(options.maxPrice);
  if (options.save !== undefined && existsSync(options.save))
    throw new Failure("already", `${options.save} is there already, and is not overwritten`);
  if (!options.yes && !canAsk())
    throw new Failure("usage", "there is no terminal to ask at: --yes buys without a question, up to --max-price");
  const service = createService(config, options.service);
  const { answer, concerns } = await checkEndpoint(service, { url: endpoint, method: options.method });
  if (!options.json || !options.yes) say(checkLines(answer, concerns));
  const total = priceOf(answer, most, options.maxPrice);
  const purse = await openPurse(config, options.key);
  if (!options.yes) await confirm(`Pay up to ${total} USDC from ${purse.says} (${purse.address})? [y/N] `);
  // A person who confirmed agreed to this price; otherwise the highest price in the options counts.
  const cap = options.yes && most !== null ? options.maxPrice! : total;
  const sent = { endpoint, input, cap, purse, escrow: options.escrow === true };
  const bought = await purchase(service, { url: endpoint, method: options.method }, sent);
  await conclude(service, { answer, concerns, bought, sent }, options);
}

/** @throws Failure `usage` */
function inputOf(text: string | undefined): Record<string, unknown> | null {
  if (text === undefined) return null;
  try {
    const value: unknown = JSON.parse(text);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // The error is reported below.
  }
  throw new Failure("usage", '--input: a JSON object is expected, such as {"a":20,"b":22}');
}

/** Parses a sum of money into micro-units. @throws Failure `usage` */
function sumOf(text: string | undefined): bigint | null {
  if (text === undefined) return null;
  const micro = microOf(text.includes(".") ? text : `${text}.0`);
  if (micro === null) throw new Failure("usage", `--max-price: ${text} is no sum of USDC, such as 0.05`);
  return micro;
}

/** Returns the price including the fee, if it is within the limits. @throws Failure `ungraded`, `refused`, `dear` */
function priceOf(answer: CheckAnswer, most: bigint | null, named: string | undefined): string {
  const { buy, band } = answer;
  if (!buy) throw new Failure(band === "UNRATED" ? "ungraded" : "refused", `not for sale: ${whyNotSold(answer)}`);
  if (most !== null && (microOf(buy.total) ?? most + 1n) > most)
    throw new Failure("dear", `it costs ${buy.total} USDC with the fee, more than ${named}`);
  return buy.total;
}

/** Asks the person at the terminal to confirm. @throws Failure `refused` */
async function confirm(question: string): Promise<void> {
  const { ask, close } = await openDialogue();
  try {
    const said = await ask(question);
    if (!/^y(?:es)?$/i.test(said ?? "")) throw new Failure("refused", "not bought: you said no");
  } finally {
    close();
  }
}

interface CallToBuy {
  input: Record<string, unknown> | null;
  /** Decimal sum of USDC. */
  cap: string;
  purse: Purse;
  escrow: boolean;
}

const asParameter = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** Returns the address of a call; for a GET the input becomes its query. */
function addressOf(url: string, method: string, input: CallToBuy["input"]): string {
  if (input === null || method !== "GET") return url;
  const whole = new URL(url);
  for (const [name, value] of Object.entries(input)) whole.searchParams.set(name, asParameter(value));
  return whole.href;
}

/** @throws Failure */
async function purchase(
  service: Service,
  question: { url: string; method?: "GET" | "POST" | undefined },
  { input, cap, purse, escrow }: CallToBuy,
): Promise<Bought> {
  // The input may stand in the address or beside it; the service is asked about the address without it.
  const pay = (fetch: typeof globalThis.fetch): typeof globalThis.fetch => {
    const paying = payingFrom(purse, fetch, { most: cap, escrow });
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
    throw purchaseFailure(error, service);
  }
}

const REFUSALS: Record<BuyRefused["code"], FailureCode> = {
  not_offered: "refused",
  over_cap: "dear",
  bad_cap: "usage",
};

function purchaseFailure(error: unknown, service: Service): unknown {
  if (error instanceof Failure || error instanceof ServiceFault) return toFailure(error, service);
  if (error instanceof BuyRefused) return new Failure(REFUSALS[error.code], error.message, { cause: error });
  if (error instanceof BuyUnknown) {
    const where = error.order === null ? "" : `; ask for it: GET /v1/orders/${error.order}`;
    return new Failure("open", `${error.message}${where}. Do not buy again before it has ended.`, { cause: error });
  }
  if (error instanceof TypeError && error.message === "fetch failed")
    return new Failure(
      "unreachable",
      `the service did not answer: ${(error.cause as Error)?.message ?? error.message}`,
    );
  return new Failure("refused", `no payment was made: ${(error as Error).message}`, { cause: error as Error });
}

interface EndedPurchase {
  answer: CheckAnswer;
  concerns: Concern[];
  bought: Bought;
  sent: CallToBuy;
}

/** Prints the answer, saves and verifies the order, and fails when nothing was delivered. @throws Failure */
async function conclude(service: Service, ended: EndedPurchase, options: OptionsOf<"buy">): Promise<void> {
  const { answer, concerns, bought, sent } = ended;
  const came = await readAnswer(bought.response);
  const { outcome, order, receipt } = bought;
  const isDelivered = outcome === "delivered";
  if (isDelivered && options.save !== undefined) writeFileSync(options.save, came.bytes, { flag: "wx" });
  const file = order === null ? null : `${options.save ?? order}${options.save === undefined ? "" : ".order"}.json`;
  const kept = order === null ? null : await saveOrder(service, order, file!).catch((error: unknown) => error as Error);
  const read = kept instanceof Error ? null : kept;
  if (options.json) {
    const body = came.text === null ? { base64: came.bytes.toString("base64") } : { text: came.text };
    const shown = { status: bought.response.status, content_type: came.type, ...body };
    const facts = {
      outcome,
      payer: sent.purse.address,
      order,
      order_file: read && file,
      charged: read?.charged ?? null,
    };
    printJson({ ...facts, receipt, answer: shown, check: { ...answer, concerns } });
  } else {
    if (isDelivered && options.save === undefined) printAnswer(came);
    if (read) say([`${read.says}`, `order ${order}, signed by the service and verified: ${file}`]);
  }
  if (!isDelivered) throw await undeliveredFailure(ended, came);
  if (kept instanceof Error) throw kept;
  if (read?.answer && read.answer.sha256 !== sha256hex(came.bytes))
    throw new Failure("tampered", `the order of ${file} is of another answer than the one that came`);
}

async function readAnswer(response: Response): Promise<SellerAnswer> {
  const bytes = Buffer.from(await response.arrayBuffer());
  const type = response.headers.get("content-type");
  const isText = type === null || /^text\/|\b(?:json|xml|javascript|x-www-form-urlencoded)\b/i.test(type);
  return { type, bytes, text: isText ? bytes.toString("utf8") : null };
}

function printAnswer({ text, bytes, type }: SellerAnswer): void {
  if (text === null) say(`${bytes.length} bytes of ${type}; the order keeps them, and --save <file> would have`);
  else if (/\bjson\b/i.test(type ?? "")) printJsonText(text.trim());
  else printLines(text.split(/\r?\n/));
}

/**
 * Reads an order, writes it to a file unchanged, and verifies its signature. @throws Failure `tampered`, `unreachable`,
 * `already`
 */
async function saveOrder(service: Service, id: string, file: string): Promise<ParsedOrder> {
  if (!/^ord_[0-9A-Z]{26}$/.test(id)) throw new Failure("tampered", "the service names an order that is none");
  try {
    const { body } = await service.ask(`/v1/orders/${id}`, {}, { max_bytes: MAX_ORDER_BYTES });
    if (existsSync(file)) throw new Failure("already", `${file} is there already, and is not overwritten`);
    writeFileSync(file, `${JSON.stringify(body, null, 2)}\n`, { flag: "wx", mode: 0o600 });
    const order = (await service.verified(body, "answers", "answered_at")) as ParsedOrder;
    if (order.order_id !== id) throw new Failure("tampered", `signed, but another order than ${id}`);
    return order;
  } catch (error) {
    throw toFailure(error, service);
  }
}

/** Returns the failure of a call that delivered nothing, with the code of its cause. */
async function undeliveredFailure({ answer, bought, sent }: EndedPurchase, came: SellerAnswer): Promise<Failure> {
  const said = jsonIn(came.text);
  const detail = String(said.detail ?? said.title ?? said.error ?? `status ${bought.response.status}`);
  if (bought.outcome === "not_delivered") return new Failure("undelivered", `not charged: ${detail}`);
  const { status } = bought.response;
  if (said.refused_by === "touchstone-client") return askNewPrice(answer, sent);
  if (status === 402 && said.error === "insufficient_funds")
    return new Failure("wallet", `${sent.purse.says} (${sent.purse.address}): ${detail}`);
  if (status === 400 || status === 422) return new Failure("usage", `the service refuses the call: ${detail}`);
  return new Failure(status >= 500 && status !== 502 ? "unreachable" : "refused", `not bought: ${detail}`);
}

/** The price had risen above the cap. Asks for the current price once more, without a payment, and reports it. */
async function askNewPrice({ buy }: CheckAnswer, { input, cap }: CallToBuy): Promise<Failure> {
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
