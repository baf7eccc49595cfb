/** Client library of the service. It needs `fetch` and WebCrypto: Node 20, browsers, workers. */
export const VERSION = "2026.11.1";

export { type Offer, type OfferMember, offersOf } from "../../pipelines/record/terms/offers.ts";
export {
  type FetchOptions,
  guardClient,
  guardedFetch,
  guardTools,
  type HookOptions,
  mppxChallenge,
} from "./adapters.ts";
export type {
  CheckAnswer,
  Dependency,
  ExposureReport,
  FailedCall,
  FailuresAnswer,
  FoundCapability,
  SearchAnswer,
  SearchOrder,
  SignedCard,
  WatcherAnswer,
  WatcherMade,
} from "./answers.ts";
export { type AnswerProver, type Question, type SearchOptions, Service, type ServiceOptions } from "./ask.ts";
export {
  type Bought,
  type BuyersExpectation,
  type BuyOptions,
  BuyRefused,
  buyThrough,
  type OfferPolicy,
  payBy,
  receiptOf,
  resumeThrough,
  type Settlement,
} from "./buy.ts";
export { BuyUnknown, type PaidRequest, type Patience } from "./carrier.ts";
export type { Concern, Reason } from "./concerns.ts";
export type { Demand } from "./demands.ts";
export { type Decision, decide, type Guard, guard, PaymentRefused } from "./guard.ts";
export { type FaultCode, ServiceFault } from "./http.ts";
export { DEFAULT_POLICY, type Policy } from "./policy.ts";
export { type Jwks, type Verdict, verifyCard, verifyCheck, verifyExposure, verifyManifest } from "./verify.ts";
export {
  createWatcher,
  type Notice,
  noticeReceiver,
  type ReceiverOptions,
  readWatcher,
  type Seen,
  seenInMemory,
  stopWatcher,
} from "./watch.ts";
