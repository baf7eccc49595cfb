/**
 * A program of somebody who has installed the package: it names every export, values and types. It is compiled where it was
 * installed (package.test.ts), not with this project.
 */
import {
  type AnswerProver,
  type Bought,
  type BuyersExpectation,
  type BuyOptions,
  BuyRefused,
  BuyUnknown,
  buyThrough,
  type CheckAnswer,
  type Concern,
  createWatcher,
  DEFAULT_POLICY,
  type Decision,
  type Demand,
  type Dependency,
  decide,
  type ExposureReport,
  type FailedCall,
  type FailuresAnswer,
  type FaultCode,
  type FetchOptions,
  type FoundCapability,
  type Guard,
  guard,
  guardClient,
  guardedFetch,
  guardTools,
  type HookOptions,
  type Jwks,
  mppxChallenge,
  type Notice,
  noticeReceiver,
  type Offer,
  type OfferMember,
  type OfferPolicy,
  offersOf,
  type PaidRequest,
  type Patience,
  PaymentRefused,
  type Policy,
  payBy,
  type Question,
  type Reason,
  type ReceiverOptions,
  readWatcher,
  receiptOf,
  resumeThrough,
  type SearchAnswer,
  type SearchOptions,
  type SearchOrder,
  type Seen,
  Service,
  ServiceFault,
  type ServiceOptions,
  type Settlement,
  type SignedCard,
  seenInMemory,
  stopWatcher,
  VERSION,
  type Verdict,
  verifyCard,
  verifyCheck,
  verifyExposure,
  verifyManifest,
  type WatcherAnswer,
  type WatcherMade,
} from "touchstone-client";

const options: ServiceOptions = { base: "https://service.example", timeout_ms: 1000 };
export const proving = (policy: AnswerProver): ServiceOptions => ({ ...options, policy });
const service = new Service(options);
const policy: Partial<Policy> = { ...DEFAULT_POLICY, atLeast: "C" };
const mayPay: Guard = guard(service, policy);

/** Asks, holds the answer against a policy, and says what speaks against it. */
export async function ask(question: Question, terms: unknown): Promise<string[]> {
  const offers: Offer[] = offersOf(terms, "body");
  const unread: readonly OfferMember[] = offers[0]?.unread ?? [];
  const demand: Demand = { url: question.url, method: question.method, offers };
  const decision: Decision = await mayPay(demand);
  const answer: CheckAnswer = await service.check(question);
  const amount: string | undefined = answer.observed?.advertised?.amount;
  const again: Decision = decide(answer, offers);
  const concerns: Concern[] = [...decision.concerns, ...again.concerns];
  const reasons: Reason[] = concerns.map(({ reason }) => reason);
  return [VERSION, decision.says, amount ?? "", ...reasons, ...unread];
}

/** Finds what is cheapest. */
export async function find(q: string): Promise<FoundCapability | undefined> {
  const order: SearchOrder = "price";
  const options: SearchOptions = { order, limit: 1 };
  const { capabilities }: SearchAnswer = await service.search(q, options);
  return capabilities[0];
}

/** Everything that stands between a guard and a wallet. */
export function adapters(paying: (fetch: typeof globalThis.fetch) => typeof globalThis.fetch) {
  const fetchOptions: FetchOptions = { offers: ({ scheme }) => scheme === "exact", onDecision: () => {} };
  const hookOptions: HookOptions = { method: "POST" };
  const asX402 = {
    onBeforePaymentCreation(
      hook: (context: {
        paymentRequired: { x402Version: number; resource: { url: string }; accepts: object[] };
        selectedRequirements: { scheme: string; network: `${string}:${string}` };
      }) => Promise<undefined | { abort: true; reason: string }>,
    ) {
      void hook;
      return this;
    },
  };
  const tools = { callTool: async (call: { name: string }) => ({ content: [call.name] }) };
  return {
    fetch: paying(guardedFetch(mayPay, fetchOptions)),
    client: guardClient(asX402, mayPay, hookOptions).onBeforePaymentCreation,
    tools: guardTools(tools, mayPay, "https://seller.example/mcp"),
    onChallenge: mppxChallenge(mayPay, "https://seller.example/sum"),
  };
}

/** Buys on delivery. */
export async function buy(pay: BuyOptions["pay"]): Promise<Settlement | PaidRequest | FaultCode | string> {
  const prefers: OfferPolicy = payBy("escrow");
  const [first] = prefers(2, [{ scheme: "exact", extra: {}, amount: "20000" }]);
  const patience: Partial<Patience> = { sends: 2 };
  const expect: BuyersExpectation = { min_length: 2 };
  try {
    const bought: Bought = await buyThrough(service, { url: first?.amount ?? "", cap: "0.03", pay, patience, expect });
    return receiptOf(bought.response) ?? bought.outcome;
  } catch (error) {
    if (error instanceof BuyUnknown)
      return error.order === null ? error.paid : (await resumeThrough(service, error.paid)).outcome;
    if (error instanceof BuyRefused) return error.code;
    if (error instanceof PaymentRefused) return error.decision.says;
    if (error instanceof ServiceFault) return error.code;
    throw error;
  }
}

/** Watches, and says what came. */
export async function watch(said: (line: string) => void): Promise<(request: Request) => Promise<Response>> {
  const dependency: Dependency = { url: "https://seller.example/sum", calls_per_month: 3 };
  const report: ExposureReport = await service.exposure([dependency, "https://seller.example/other"]);
  const made: WatcherMade = await createWatcher(service, "https://receiver.example", [dependency.url]);
  const read: WatcherAnswer = await readWatcher(service, made.watcher_id, made.token);
  await stopWatcher(service, made.token);
  const onNotice = ({ card, from, to }: Notice): void => {
    const signed: SignedCard = card;
    said(`${signed.band} ${from?.band ?? ""} ${to.band} ${report.totals.monthly_spend} ${read.state}`);
  };
  const seen: Seen = seenInMemory();
  const receiver: ReceiverOptions = { service, onNotice, seen };
  return noticeReceiver(receiver);
}

/** Verifies what was kept. */
export async function verify(keys: Jwks, kept: unknown): Promise<string[]> {
  const verdicts: Verdict[] = [
    await verifyCheck(keys, kept),
    await verifyCard(keys, kept),
    await verifyExposure(keys, kept),
    await verifyManifest(keys, kept),
  ];
  return verdicts.map((verdict) => (verdict.ok ? "ok" : verdict.reason));
}

/** The newest failed paid calls of an endpoint, as the record has them. */
export async function failures(host: string, id: string, read: typeof fetch): Promise<string[]> {
  const answer = (await (await read(`${host}/v1/trust/${id}/failures`)).json()) as FailuresAnswer;
  return answer.failures.map(({ tx, says }: FailedCall) => `${tx ?? "no transaction"}: ${says}`);
}
