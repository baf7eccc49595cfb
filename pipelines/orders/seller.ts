import { sha256hex } from "../../infra/canonical.ts";
import { type Clock, systemClock } from "../../infra/clock.ts";
import { type EgressResult, withRequestFields } from "../../infra/egress/egress.ts";
import {
  CannotSign,
  NotSigned,
  NoWallet,
  networksOf,
  type PayableEntry,
  type PaymentNeed,
  type Rail,
  type SignContext,
  type Wallet,
} from "../../infra/rails/rails.ts";
import { ChainDown } from "../../infra/rails/rpc.ts";
import { findKnownAnswer, type TruthParts } from "../1-observe/classes/bought.ts";
import type { PaymentForm } from "../1-observe/mcp/answers.ts";
import { PAYMENT_KEY } from "../1-observe/mcp/session.ts";
import { timeoutMsOf } from "../1-observe/paid/sign.ts";
import { isPassing } from "../1-observe/plan/steps.ts";
import { didOurStallEndIt, type ExchangeResult, exchange } from "../1-observe/probe/exchange.ts";
import { type ProbeDeps, probe } from "../1-observe/probe/probe.ts";
import type { Request, ToolCall } from "../1-observe/probe/request.ts";
import { PRICES, VIA } from "../1-observe/queue.ts";
import { type Evaluation, type Expectation, evaluate } from "../1-observe/reading/checks.ts";
import type { Declared } from "../1-observe/terms/declared.ts";
import { classOf, type KnownAnswer } from "../record/classes.ts";
import { type BuyersExpectation, isBuyersCheck } from "../record/expectation.ts";
import { atomicToMicro, formatMoney } from "../record/money.ts";
import { type BoughtRequest, MAX_SIGNED_CHARS, type StepOf } from "../record/order-step.ts";
import { strongestCheckOf } from "./judgement.ts";
import type { NewStep } from "./order-log.ts";

/** A buyer's request, to be sent to a seller. */
export interface CallRequest extends Pick<BoughtRequest, "url" | "method" | "headers" | "sha256"> {
  body: Uint8Array | null;
  /** Set for a tool of an MCP server, which is called in an MCP session; the body then holds the tool's arguments. */
  tool?: ToolCall;
}

/** The price and terms of a seller's 402 to one request, and what is needed to pay it and to check the answer. */
export interface SellerQuote {
  /** Capability id of the endpoint. */
  cap: string;
  request: CallRequest;
  priceMicro: bigint;
  payTo: string;
  /** The offer of the seller's 402 that we would pay. */
  entry: PayableEntry;
  /** Parts of the seller's 402 that the payment has to repeat. */
  context: SignContext;
  /** Only for a tool: the form in which its seller takes a payment, as far as its demand tells. */
  paymentForm?: PaymentForm | undefined;
  /** The values with which the answer is compared. A schema that cannot be used is left out. */
  want: Expectation;
  /**
   * JSON Schema of the request, as the seller declares it; absent: it declares none. The request is not validated
   * against it.
   */
  inputSchema?: unknown;
  /** Has the endpoint a letter (a grade)? All sellers without one share one daily limit on losses. */
  lettered: boolean;
}

/** Why this request cannot be bought from this seller, in words for the buyer. */
export interface NoQuote {
  says: string;
  /** True: the cause is on our side, and the buyer may try again. */
  ours?: true;
  /** True: the seller named its terms, and we pay none of them. Another request would not change that. */
  unsold?: true;
}

/** An answer, evaluated. */
export interface EvaluatedAnswer {
  evaluation: Evaluation;
  /** Did the answer pass all of our checks and meet its buyer's own expectation? */
  pass: boolean;
  /** True: the answer passed all of our checks and failed only the buyer's own expectation. */
  unmet: boolean;
  contentType: string | null;
  bytes: Uint8Array;
  /** Why no whole answer was received, in words; null if one was. */
  says: string | null;
}

/** What a seller sent after it was paid, evaluated. */
export interface SellerAnswer extends EvaluatedAnswer {
  /** True: no whole answer was received, for a cause on our side, so the seller may have sent one. */
  ours: boolean;
  /** Only for a tool: the forms in which the payment was sent, in order. */
  paymentForms?: PaymentForm[] | undefined;
}

export interface SellerTools extends ProbeDeps {
  rail: Rail;
  /**
   * Returns the wallet from which sellers are paid.
   * @param need the payment that is to be signed with it
   * @throws NoWallet, ChainDown
   */
  float(need?: PaymentNeed): Promise<Wallet>;
  /** Sources of right answers to buyers' inputs; absent: only right answers that can be computed are known. */
  truths?: TruthParts;
}

/** The endpoint from which a price is requested, with facts from our public record. */
export interface QuotedEndpoint extends Pick<SellerQuote, "cap" | "lettered"> {
  /** Url and method under which the endpoint is listed; absent: those of the request. */
  url?: string;
  method?: BoughtRequest["method"];
  /** Name of the tool, for an endpoint of an MCP server; null or absent for any other endpoint. */
  tool?: string | null;
  /** Class (kind of endpoints) that the listing names; absent if there is no listing. */
  listedClass?: string | undefined;
  /**
   * Were the endpoint's answers to questions of ours scored before? Until then our own mapping of it to a class is
   * not used. Absent: no.
   */
  scored?: boolean;
}

/** Longest JSON Schema that is used to validate an answer, characters. */
const MAX_SCHEMA_CHARS = 100_000;
/** Largest number of characters of a signed payment header that are not repeated from the seller's 402. */
const MAX_SIGNED_WITHOUT_ECHO = 2_048;
/**
 * Longest validity of our payment to a seller, chain seconds. It is short, since a seller that gave no answer can
 * take the money until then.
 */
const SELLER_VALIDITY_S = 90;

/** Longest text from a seller's server that is passed on to a buyer, characters. */
const MAX_SAYS_CHARS = 500;

const toProbeRequest = ({ body, ...request }: CallRequest): Request => ({
  ...request,
  ...(body === null ? {} : { body }),
});

/** Converts a request to the form in which the log holds it, with hash and size in place of the body. */
const toStepRequest = ({ body, tool, ...request }: CallRequest): BoughtRequest => ({
  ...request,
  ...(tool ? { tool: tool.name } : {}),
  ...(body === null || body.length === 0 ? {} : { body_sha256: sha256hex(body), body_bytes: body.length }),
});

/** Returns the seller's JSON Schema; undefined if it is too long or cannot be used for validation. */
async function usableSchemaOf({ reader }: Pick<ProbeDeps, "reader">, schema: unknown): Promise<unknown> {
  const text = schema === undefined ? undefined : JSON.stringify(schema);
  if (text === undefined || text.length > MAX_SCHEMA_CHARS) return undefined;
  const readResult = await reader.ask("usable", { schema });
  return readResult.ok && readResult.value ? schema : undefined;
}

/** For each state in which a probe ends without readable terms, what the seller did, as the end of a sentence. */
const STATE_WORDS = {
  free: "answered without asking for payment",
  malformed: "answered 402 with terms that cannot be read",
  wall: "answered with a wall against robots",
  status: "did not ask for payment",
  silent: "gave no whole answer",
  unfetchable: "is never fetched",
} as const;

/**
 * Returns why nothing is bought from a seller whose 402 has no offer that can be paid, in words.
 * @param network CAIP-2 id of the network on which we pay; several are separated by commas
 */
export const noOfferText = (network: string): string =>
  `Sellers are paid on ${network} here, and its newest 402 has no offer there that we can pay.`;

/**
 * Sends the request to the seller without payment, to get the price from its 402. Nothing is recorded. Does not
 * throw, whatever the seller sends.
 */
export async function askForQuote(
  tools: ProbeDeps & Pick<SellerTools, "truths">,
  endpoint: QuotedEndpoint,
  request: CallRequest,
  clock: Clock,
): Promise<SellerQuote | NoQuote> {
  const probeTools = { ...tools, egress: withRequestFields(tools.egress, { pool: PRICES }) };
  const { read, body, paymentForm } = await probe(probeTools, toProbeRequest(request), null, clock);
  if (body.state !== "asked") {
    // An MCP tool's answer has no HTTP status of its own, so the server's message is passed on.
    const status = request.tool ? (body.says ?? "") : body.status === null ? "" : `status ${body.status}`;
    const statusText = body.state === "status" && status !== "" ? ` (${status.slice(0, MAX_SAYS_CHARS)})` : "";
    return { says: `The seller ${STATE_WORDS[body.state]}${statusText}.` };
  }
  if (!read?.payable) return { says: noOfferText(networksOf(tools.rail).join(", ")), unsold: true };
  const priceMicro = atomicToMicro(read.payable.amountAtomic, 6);
  if (priceMicro === null) return { says: "The seller's price is past what can be bought here.", unsold: true };
  const { declared } = read;
  const { cap, lettered } = endpoint;
  const known = await lookUpKnownAnswer(tools, endpoint, request, declared);
  if (known === "unknown") return TRUTH_SOURCE_DOWN;
  const expectation = {
    class: known?.class ?? classOf({ named: declared.className }),
    known,
    schema: await usableSchemaOf(tools, declared.outputSchema),
    mime: declared.mime,
  };
  return {
    ...{ cap, lettered, request, priceMicro, payTo: read.payable.payTo },
    ...{ entry: read.payable, context: read.context, paymentForm, want: expectation },
    inputSchema: declared.inputIn === (request.method === "GET" ? "query" : "body") ? declared.inputSchema : undefined,
  };
}

const TRUTH_SOURCE_DOWN = { says: "The right answer for this input cannot be looked up now.", ours: true } as const;

/**
 * Finds the right answer to this request; null if the request's input does not determine one that we can know;
 * `unknown` if a source of right answers cannot be reached.
 */
async function lookUpKnownAnswer(
  { truths }: Pick<SellerTools, "truths">,
  { cap, url, method, tool = null, listedClass, scored = false }: QuotedEndpoint,
  request: CallRequest,
  declared: Declared,
): Promise<KnownAnswer | null | "unknown"> {
  const endpoint = { cap, url: url ?? request.url, method: method ?? request.method, tool };
  const call = { endpoint, listedClass, hasPassedQuestion: scored, declared, url: request.url, body: request.body };
  return findKnownAnswer(call, truths).catch(() => "unknown" as const);
}

const ECHO_TOO_LONG = { says: "The seller wants more echoed in the payment than is kept." };

/**
 * Returns how many base64 characters of a payment header repeat parts of the seller's 402, as x402 version 2 and mpp
 * require.
 */
function echoLengthOf({ x402Version, challenge, raw }: PayableEntry, { resource, extensions }: SignContext): number {
  if (challenge === undefined && x402Version === 1) return 0;
  const echoed = JSON.stringify(challenge ?? [raw, resource, extensions]);
  return Math.ceil((Buffer.byteLength(echoed) * 4) / 3);
}

/** Returns what a wallet needs for the payment to a seller: the network, token and amount, and how long it is valid. */
const needOf = ({ network, asset, amountAtomic, maxTimeoutSeconds }: PayableEntry): PaymentNeed => ({
  ...{ network, asset, amountAtomic },
  validForS: Math.min(maxTimeoutSeconds, SELLER_VALIDITY_S),
});

/**
 * Returns, as a sentence, why a seller cannot be paid now, if the error means that the chain does not answer or that our
 * wallets have too little money; null for any other error.
 */
function whyNoFloat(error: unknown): string | null {
  if (error instanceof ChainDown) return "The chain cannot be asked now.";
  return error instanceof NoWallet ? "We have not enough money to pay this seller with now." : null;
}

/**
 * Asks whether the wallet that pays sellers could pay this one, without reserving anything.
 * @returns why not, as a sentence, or null
 */
export async function findFloatRefusal(
  { float }: Pick<SellerTools, "float">,
  { entry }: Pick<SellerQuote, "entry">,
): Promise<string | null> {
  try {
    await float({ ...needOf(entry), onlyAsked: true });
    return null;
  } catch (error) {
    const says = whyNoFloat(error);
    if (says === null) throw error;
    return says;
  }
}

/**
 * Signs a leg (one payment to one seller for an order) and returns the order's step that holds the payment. The
 * payment is not sent yet. The caller stores the request's body.
 * @returns NoQuote when the payment cannot be signed now or the chain cannot be reached; nothing was done then
 */
export async function signIntent(
  tools: SellerTools,
  quote: SellerQuote,
  leg: number,
): Promise<NewStep<"seller_intent"> | NoQuote> {
  const { entry, request, cap, want } = quote;
  if (echoLengthOf(entry, quote.context) > MAX_SIGNED_CHARS - MAX_SIGNED_WITHOUT_ECHO) return ECHO_TOO_LONG;
  try {
    const wallet = await tools.float(needOf(entry));
    // The newest block is read before signing, so that the later search for the payment's Transfer begins at an
    // earlier block.
    const head = await tools.rail.head();
    const boundedEntry = { ...entry, maxTimeoutSeconds: Math.min(entry.maxTimeoutSeconds, SELLER_VALIDITY_S) };
    const signed = await tools.rail.sign(boundedEntry, wallet, quote.context);
    if (signed.headerValue.length > MAX_SIGNED_CHARS) return ECHO_TOO_LONG;
    return {
      state: "seller_intent",
      ...{ leg, cap, request: toStepRequest(request), wallet: signed.from, pay_to: entry.payTo },
      price: formatMoney(quote.priceMicro),
      ...(quote.lettered ? { lettered: true } : {}),
      ...{ network: entry.network, asset: entry.asset },
      header_name: request.tool ? PAYMENT_KEY : signed.headerName,
      ...{ signed_bytes: signed.headerValue, nonce: signed.nonce, valid_before: signed.validBefore },
      since_block: head.number,
      want: {
        ...{ class: want.class, mime: want.mime, judged_by: strongestCheckOf(want), ...toStepSchema(want.schema) },
        ...(want.known ? { known: toStepKnown(want.known) } : {}),
      },
      deadline_ms: Math.min(timeoutMsOf(entry.maxTimeoutSeconds), SELLER_VALIDITY_S * 1000),
    };
  } catch (error) {
    if (error instanceof CannotSign) return { says: `The seller's terms cannot be signed: ${error.message}.` };
    // A wrong signature is not sent: an honest seller would refuse it, and the refusal would be recorded as its
    // failure.
    if (error instanceof NotSigned)
      return { says: "The signer of our wallet did not sign the payment to this seller." };
    const says = whyNoFloat(error);
    if (says === null) throw error;
    return { says };
  }
}

/** Converts a known answer to the form in which the log holds it, without the input, which the request contains. */
const toStepKnown = ({ class: name, variant, truth, answer }: KnownAnswer) => ({ class: name, variant, truth, answer });

const toStepSchema = (schema: unknown): { schema_sha256?: string } =>
  schema === undefined ? {} : { schema_sha256: sha256hex(JSON.stringify(schema)) };

/**
 * Sends the request with the signed payment of a step that is in the log, and reads the answer to its end or until
 * the deadline.
 * @param quote the quote from which this process made the step; request body and schema are not in the log
 */
export async function sendLeg(
  tools: ProbeDeps,
  intent: Pick<StepOf<"seller_intent">, "header_name" | "signed_bytes" | "deadline_ms">,
  { request, want, paymentForm }: Pick<SellerQuote, "request" | "want" | "paymentForm">,
  expect: BuyersExpectation | null,
): Promise<SellerAnswer> {
  const { header_name: header, signed_bytes: value, deadline_ms: deadlineMs } = intent;
  const payment = { header, value, form: paymentForm };
  const paymentTools = { ...tools, egress: withRequestFields(tools.egress, { pool: VIA }) };
  const exchanged = await exchange(paymentTools, toProbeRequest(request), { profile: "paid", deadlineMs, payment });
  const ours = await wasLostByUs(tools, exchanged);
  const { result, mcp } = exchanged;
  // From an MCP tool the buyer gets the result alone, so the result is hashed and not the JSON-RPC message around it.
  const { raw: _, ...resultWithoutRaw } = result;
  const answer = {
    ...(await evaluateAnswer(tools, resultWithoutRaw, want, expect)),
    ours,
    paymentForms: mcp?.recordMembers.payment_forms,
  };
  // The buyer was promised that the answer is validated against the schema. If that was not finished, the answer does
  // not pass.
  const isSchemaUntried = strongestCheckOf(want) === "schema" && answer.evaluation.schema_ok === null;
  return isSchemaUntried ? { ...answer, pass: false, unmet: false } : answer;
}

/**
 * Decides whether our side is the cause that a paid call ended without a whole answer, by the rules for our own paid
 * calls (1-observe/paid/result.ts): our egress did not send the request, our event loop was stalled at the end, or a
 * control call (a request to an address that we know to be up) fails too. Makes a control call only if the others do
 * not decide.
 */
async function wasLostByUs({ control }: Pick<ProbeDeps, "control">, exchanged: ExchangeResult): Promise<boolean> {
  const { result } = exchanged;
  if (result.outcome === "answered" || result.outcome === "too_large") return false;
  if (result.outcome === "refused") return result.reason === undefined;
  return didOurStallEndIt(exchanged) || (await control.call(systemClock))?.ok === false;
}

/**
 * Evaluates an answer in a separate thread, which is stopped when it takes too much time or memory. Then the answer
 * counts as no JSON, and no schema is checked.
 */
export async function evaluateAnswer(
  { reader }: Pick<ProbeDeps, "reader">,
  result: EgressResult,
  expectation: Expectation,
  expect: BuyersExpectation | null,
): Promise<EvaluatedAnswer> {
  const readResult = await reader.ask("evaluate", { result, want: expectation, again: false });
  const evaluation = readResult.ok ? readResult.value : evaluate(result, expectation, null, false);
  const passesOurChecks = isPassing(evaluation) && evaluation.schema_ok !== false;
  if (expect) {
    const buyersChecks = await reader.ask("expected", { expect, body: result.body ?? new Uint8Array() });
    evaluation.checks.push(
      ...(buyersChecks.ok ? buyersChecks.value : [{ name: "expect_bounds", ok: false, says: "could not be tried" }]),
    );
  }
  const meetsExpectation = evaluation.checks.every((one) => one.ok || !isBuyersCheck(one));
  return {
    ...{
      evaluation,
      pass: passesOurChecks && meetsExpectation,
      unmet: passesOurChecks && !meetsExpectation,
      contentType: result.headers?.["content-type"]?.slice(0, 300) ?? null,
    },
    bytes: result.body ?? new Uint8Array(),
    says: result.outcome === "answered" ? null : `${result.outcome}: ${result.says}`.slice(0, 2000),
  };
}
