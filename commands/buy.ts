import { existsSync, readFileSync } from "node:fs";
import { sha256hex } from "../infra/canonical.ts";
import type { Config } from "../infra/config.ts";
import { Failure, type FailureCode } from "../infra/errors.ts";
import { createFile, replacePrivateFile } from "../infra/keys/files.ts";
import { cannotBeSent, findInexact, pointerOf } from "../pipelines/record/faults.ts";
import { isObject, parseJson } from "../pipelines/record/json.ts";
import { MAX_ORDER_BYTES } from "../serving/client/carrier.ts";
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
import { createSavingFetch, deletePaymentFile, existingPaymentFile } from "./payment-file.ts";
import { canAsk, openDialogue, printJson, printJsonText, printLines, say } from "./printer.ts";
import { createPayingFetch, openPurse, type Purse } from "./purse.ts";
import type { OptionsOf } from "./table.ts";

/** The properties of an order that this command prints or compares. */
interface OrderDocument {
  order_id?: unknown;
  /** One sentence about the outcome. */
  says?: unknown;
  charged?: { amount: string; tx: string } | null;
  answer?: { sha256: string } | null;
}

/** The body of the response to a purchase: the seller's answer, or a problem document in its place. */
interface ReceivedBody {
  /** Content type of the response, or null. */
  type: string | null;
  bytes: Buffer;
  /** The body as text; null if its content type is not a text type. */
  text: string | null;
}

/**
 * `touchstone buy`: prints the check of an endpoint, asks for consent, buys one call that is charged only if the
 * answer passes, prints the answer and saves the signed order.
 * @throws Failure by its cause: `usage`, `already`, `ungraded`, `dear`, `refused`, `undelivered`, `open`, `wallet`,
 * `tampered`, `unreachable`
 */
export async function buyCommand(config: Config, endpoint: string, options: OptionsOf<"buy">): Promise<void> {
  const input = parseInput(options.input);
  const maxMicro = parseMaxPrice(options.maxPrice);
  for (const file of options.save === undefined ? [] : [options.save, orderFileOf(options.save)])
    if (existsSync(file)) throw new Failure("already", `${file} exists and is not overwritten`);
  const pendingPaymentFile = options.save === undefined ? null : existingPaymentFile(options.save);
  if (pendingPaymentFile !== null)
    throw new Failure(
      "already",
      `${pendingPaymentFile} holds a payment whose outcome is not known: touchstone resume ${pendingPaymentFile}`,
    );
  if (!options.yes && !canAsk())
    throw new Failure("usage", "there is no terminal to ask for consent: --yes buys without asking, up to --max-price");
  const service = createService(config, options.service);
  const { answer, concerns } = await checkEndpoint(service, { url: endpoint, method: options.method });
  if (!options.json || !options.yes) say(checkLines(answer, concerns));
  const total = priceOf(answer, maxMicro, options.maxPrice);
  const purse = await openPurse(config, options.key);
  if (!options.yes) await requireConsent(`Pay up to ${total} USDC from ${purse.says} (${purse.address})? [y/N] `);
  // The largest charge: with --yes the user agreed to --max-price, otherwise to the price in the question.
  const cap = options.yes && maxMicro !== null ? options.maxPrice! : total;
  const purchasePlan: PlannedPurchase = {
    input,
    cap,
    purse,
    escrow: options.escrow === true,
    save: options.save,
    payment: null,
  };
  const bought = await purchase(service, { url: endpoint, method: options.method }, purchasePlan);
  const explainPrice = () => findPriceFailure(answer, purchasePlan);
  await finishPurchase(
    service,
    { bought, payer: purse, check: { answer, concerns }, payment: purchasePlan.payment, quoted: explainPrice },
    options,
  );
}

/** Parses the value of --input. @throws Failure `usage` */
function parseInput(text: string | undefined): Record<string, unknown> | null {
  if (text === undefined) return null;
  const value = parseJson(text);
  if (!isObject(value)) throw new Failure("usage", '--input: expected a JSON object, such as {"a":20,"b":22}');
  const fault = findInexact(value);
  if (fault) throw new Failure("usage", `--input: ${pointerOf(fault.path)} ${cannotBeSent(fault)}`);
  return value;
}

/** Parses the value of --max-price into micro-units. @throws Failure `usage` */
function parseMaxPrice(text: string | undefined): bigint | null {
  if (text === undefined) return null;
  const micro = microOf(text.includes(".") ? text : `${text}.0`);
  if (micro === null) throw new Failure("usage", `--max-price: expected an amount of USDC such as 0.05, not ${text}`);
  return micro;
}

/**
 * Checks that the call is for sale, and costs at most --max-price.
 * @returns the price including the service's fee
 * @throws Failure `ungraded`, `refused`, `dear`
 */
function priceOf(answer: CheckAnswer, maxMicro: bigint | null, maxPriceOption: string | undefined): string {
  const { buy, band } = answer;
  if (!buy) throw new Failure(band === "UNRATED" ? "ungraded" : "refused", `not for sale: ${whyNotSold(answer)}`);
  if (maxMicro !== null && (microOf(buy.total) ?? maxMicro + 1n) > maxMicro)
    throw new Failure("dear", `the call costs ${buy.total} USDC with the fee, more than --max-price ${maxPriceOption}`);
  return buy.total;
}

/** Asks a question at the terminal. @throws Failure `refused` unless the answer is yes */
async function requireConsent(question: string): Promise<void> {
  const { ask, close } = await openDialogue();
  try {
    const line = await ask(question);
    if (!/^y(?:es)?$/i.test(line ?? "")) throw new Failure("refused", "not bought: the answer was not yes");
  } finally {
    close();
  }
}

/** A purchase that the user agreed to: what is bought, and how it is paid. */
interface PlannedPurchase {
  /** The value of --input; null if it is not given. */
  input: Record<string, unknown> | null;
  /** Largest charge, a decimal amount of USDC. */
  cap: string;
  purse: Purse;
  /** true: the money is paid into escrow, not on delivery. */
  escrow: boolean;
  /** Path of the file for the answer; undefined: the answer is printed. */
  save: string | undefined;
  /** Path of the file with the signed payment; null until a payment is signed. */
  payment: string | null;
}

const toParameter = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** Returns the url of a call. For a GET, the properties of the input become query parameters. */
function urlOfCall(url: string, method: string, input: PlannedPurchase["input"]): string {
  if (input === null || method !== "GET") return url;
  const callUrl = new URL(url);
  for (const [name, value] of Object.entries(input)) callUrl.searchParams.set(name, toParameter(value));
  return callUrl.href;
}

/** Buys the call. @throws Failure as {@link buyCommand} */
async function purchase(
  service: Service,
  question: { url: string; method?: "GET" | "POST" | undefined },
  purchasePlan: PlannedPurchase,
): Promise<Bought> {
  const { input, cap, purse, escrow, save } = purchasePlan;
  const paymentFacts = {
    endpoint: question.url,
    service: service.base,
    payer: { address: purse.address, says: purse.says },
  };
  const rememberPaymentFile = (file: string): void => {
    purchasePlan.payment = file;
  };
  // The service is asked about the endpoint's url without the input. Only the paid request, which this function sends,
  // has the input.
  const pay = (fetch: typeof globalThis.fetch): typeof globalThis.fetch => {
    const payingFetch = createPayingFetch(purse, createSavingFetch(fetch, paymentFacts, save, rememberPaymentFile), {
      most: cap,
      escrow,
    });
    return (target, init) => {
      const method = init?.method ?? "GET";
      const body = input !== null && method === "POST" ? { body: JSON.stringify(input) } : {};
      return payingFetch(urlOfCall(String(target), method, input), { ...init, ...body });
    };
  };
  const headers: Record<string, string> = input === null ? {} : { "content-type": "application/json" };
  try {
    return await buyThrough(service, { ...question, cap, pay, headers });
  } catch (error) {
    throw purchaseFailure(error, service, purchasePlan.payment);
  }
}

const FAILURE_CODE_OF_REFUSAL: Record<BuyRefused["code"], FailureCode> = {
  not_offered: "refused",
  over_cap: "dear",
  bad_cap: "usage",
};

/**
 * Converts an error of a purchase to the failure of the command.
 * @param payment path of the file with the signed payment, or null
 */
export function purchaseFailure(error: unknown, service: Service, payment: string | null): unknown {
  const resumeHint = payment === null ? "" : ` To send the same payment again: touchstone resume ${payment}`;
  if (error instanceof BuyUnknown) {
    const orderHint = error.order === null ? "" : `; the order: GET /v1/orders/${error.order}`;
    const text = `${error.message}${orderHint}. Do not buy again before the order has ended.${resumeHint}`;
    return new Failure("open", text, { cause: error });
  }
  // After any other error with a signed payment, only the service knows whether it was charged.
  if (payment !== null) {
    const text = `a payment was signed, and whether it was charged is not known: ${(error as Error).message}.${resumeHint}`;
    return new Failure("open", text, { cause: error as Error });
  }
  if (error instanceof Failure || error instanceof ServiceFault) return toFailure(error, service);
  if (error instanceof BuyRefused)
    return new Failure(FAILURE_CODE_OF_REFUSAL[error.code], error.message, { cause: error });
  if (error instanceof TypeError && error.message === "fetch failed")
    return new Failure(
      "unreachable",
      `the service did not answer: ${(error.cause as Error)?.message ?? error.message}`,
    );
  return new Failure("refused", `no payment was made: ${(error as Error).message}`, { cause: error as Error });
}

/** A purchase whose outcome is known. */
interface CompletedPurchase {
  bought: Omit<Bought, "answer">;
  payer: { address: string; says: string };
  /** null with `touchstone resume`, since the run that signed the payment printed the check. */
  check: { answer: CheckAnswer; concerns: Concern[] } | null;
  /** Path of the file with the signed payment; null if none was signed. */
  payment: string | null;
  /**
   * Requests the current price from the service, and returns the failure for a price above the cap. Absent with
   * `resume`.
   */
  quoted?: () => Promise<Failure>;
}

/**
 * Prints the answer, saves and verifies the order, deletes the payment file, and fails if nothing was delivered. If the
 * order cannot be fetched, verified or written, the payment file stays: `touchstone resume` then fetches the answer and
 * the order again.
 * @throws Failure
 */
export async function finishPurchase(
  service: Service,
  completedPurchase: CompletedPurchase,
  { save, json }: Pick<OptionsOf<"buy">, "save" | "json">,
): Promise<void> {
  const { bought, payer, check, payment } = completedPurchase;
  const receivedBody = await readBody(bought.response);
  const { outcome, order, receipt } = bought;
  const isDelivered = outcome === "delivered";
  if (isDelivered && save !== undefined) saveAnswer(save, receivedBody.bytes);
  const file = order === null ? null : save === undefined ? `${order}.json` : orderFileOf(save);
  const orderOrError =
    order === null ? null : await saveOrder(service, order, file!).catch((error: unknown) => error as Error);
  const savedOrder = orderOrError instanceof Error ? null : orderOrError;
  if (json) {
    const { text, bytes, type } = receivedBody;
    const body = text === null ? { base64: bytes.toString("base64") } : { text };
    const shownAnswer = { status: bought.response.status, content_type: type, ...body };
    const charged = savedOrder?.charged ?? null;
    const facts = { outcome, payer: payer.address, order, order_file: savedOrder && file, charged };
    const checkFacts = check && { ...check.answer, concerns: check.concerns };
    printJson({ ...facts, receipt, answer: shownAnswer, check: checkFacts });
  } else {
    if (isDelivered && save === undefined) printAnswer(receivedBody);
    if (savedOrder) say([`${savedOrder.says}`, `order ${order}, signed by the service and verified: ${file}`]);
  }
  const orderFailure = orderOrError instanceof Error ? orderOrError : null;
  if (payment !== null && !orderFailure) deletePaymentFile(payment);
  if (!isDelivered) throw await failureWithoutAnswer(completedPurchase, receivedBody);
  if (payment !== null && orderFailure) {
    const code = orderFailure instanceof Failure ? orderFailure.code : "failed";
    const says = `order ${order}: ${orderFailure.message}; to try again: touchstone resume ${payment}`;
    throw new Failure(code, says, { cause: orderFailure });
  }
  if (orderFailure) throw orderFailure;
  if (savedOrder?.answer && savedOrder.answer.sha256 !== sha256hex(receivedBody.bytes))
    throw new Failure("tampered", `the order in ${file} has the hash of another answer than the one received`);
}

/** Returns the file of the order of a call whose answer is saved in this file. */
const orderFileOf = (save: string): string => `${save}.order.json`;

/**
 * Writes the answer to a file that does not exist yet; a crash leaves all of it or no file.
 * @throws Failure `already` if the file holds another answer
 */
function saveAnswer(save: string, bytes: Buffer): void {
  if (!existsSync(save)) createFile(save, bytes);
  else if (!readFileSync(save).equals(bytes)) throw new Failure("already", `${save} exists and is not overwritten`);
}

async function readBody(response: Response): Promise<ReceivedBody> {
  const bytes = Buffer.from(await response.arrayBuffer());
  const type = response.headers.get("content-type");
  const isText = type === null || /^text\/|\b(?:json|xml|javascript|x-www-form-urlencoded)\b/i.test(type);
  return { type, bytes, text: isText ? bytes.toString("utf8") : null };
}

function printAnswer({ text, bytes, type }: ReceivedBody): void {
  if (text === null)
    say(`the answer is ${bytes.length} bytes of ${type}; it is in the order, and --save <file> saves it`);
  else if (/\bjson\b/i.test(type ?? "")) printJsonText(text.trim());
  else printLines(text.split(/\r?\n/));
}

/**
 * Fetches an order, writes it to a file unchanged, and verifies its signature. A crash leaves the whole file or none,
 * so that `touchstone resume` can tell the file of this order from another file.
 * @throws Failure `tampered`, `unreachable`, `already`
 */
async function saveOrder(service: Service, id: string, file: string): Promise<OrderDocument> {
  if (!/^ord_[0-9A-Z]{26}$/.test(id)) throw new Failure("tampered", "the service returned an invalid order id");
  try {
    const { body } = await service.ask(`/v1/orders/${id}`, {}, { max_bytes: MAX_ORDER_BYTES });
    if (existsSync(file) && parseJsonObject(readFileSync(file, "utf8")).order_id !== id)
      throw new Failure("already", `${file} exists and is not overwritten`);
    replacePrivateFile(file, `${JSON.stringify(body, null, 2)}\n`);
    const order = (await service.verified(body, "answers", "answered_at")) as OrderDocument;
    if (order.order_id !== id) throw new Failure("tampered", `the service returned another order than ${id}`);
    return order;
  } catch (error) {
    throw toFailure(error, service);
  }
}

/**
 * Returns the failure for a purchase that delivered no answer, from the outcome, the status and the problem document.
 */
async function failureWithoutAnswer(
  { bought, payer, quoted }: CompletedPurchase,
  receivedBody: ReceivedBody,
): Promise<Failure> {
  const problem = parseJsonObject(receivedBody.text);
  const detail = String(problem.detail ?? problem.title ?? problem.error ?? `status ${bought.response.status}`);
  if (bought.outcome === "not_delivered") return new Failure("undelivered", `not charged: ${detail}`);
  if (bought.outcome === "expired") return new Failure("failed", `charged before: ${detail}`);
  const { status } = bought.response;
  if (problem.refused_by === "touchstone-client" && quoted) return quoted();
  if (status === 402 && problem.error === "insufficient_funds")
    return new Failure("wallet", `${payer.says} (${payer.address}): ${detail}`);
  if (status === 400 || status === 422) return new Failure("usage", `the service refuses the call: ${detail}`);
  return new Failure(status >= 500 && status !== 502 ? "unreachable" : "refused", `not bought: ${detail}`);
}

/**
 * Requests the call without a payment after the client refused the price.
 * @returns Failure `refused` if the call is no longer sold, else `dear`
 */
async function findPriceFailure({ buy }: CheckAnswer, { input, cap }: PlannedPurchase): Promise<Failure> {
  const priceFailure = new Failure("dear", `the current price is more than ${cap} USDC, or cannot be read`);
  try {
    const { method } = buy!;
    const url = urlOfCall(buy!.url, method, input);
    const body = input !== null && method === "POST" ? { body: JSON.stringify(input) } : {};
    const response = await fetch(url, { method, ...body, redirect: "error", signal: AbortSignal.timeout(15_000) });
    const { accepts, error } = parseJsonObject(await response.text());
    return Array.isArray(accepts) && accepts.length === 0 ? new Failure("refused", `not sold: ${error}`) : priceFailure;
  } catch {
    return priceFailure;
  }
}

function parseJsonObject(text: string | null): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text ?? "");
    return value !== null && typeof value === "object" ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
