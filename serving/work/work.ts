import type { z } from "zod";
import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { Holder } from "../../infra/shares.ts";
import type { Register } from "../../pipelines/register/register.ts";
import type { ProblemCode } from "../http/problem.ts";
import type { Corpus } from "./brief/corpus.ts";
import type { RecordParts } from "./brief/record-documents.ts";
import type { SearchProvider } from "./brief/search-provider.ts";
import type { Summariser } from "./brief/summariser.ts";
import type { Extractor } from "./extract/extractor.ts";
import type { Receipts } from "./receipts.ts";

/** The dependencies of the work of paid operations. */
export interface WorkDeps {
  egress: Egress;
  extractor: Extractor;
  /** Signs with the answers key, the service's key for signed answers. */
  signer: Signer;
  clock: Clock;
  /** Documents for questions that name no urls. */
  corpus: Corpus;
  /**
   * The record (what this service has observed of endpoints), for questions about it. Without it, such questions are
   * answered from the documents of `corpus`.
   */
  record?: RecordParts;
  /** Searches the web for questions that name no urls. */
  search?: SearchProvider;
  summariser: Summariser;
  register: Register;
  /**
   * Stores the bodies and receipts of POST /v1/web/evidence; null where nothing is sold, since no store is open there.
   */
  receipts: Receipts | null;
  /** The client whose fair share of fetches and extractions the work uses. */
  holder?: Holder;
}

/**
 * The work of one paid operation. The operation that offers the work sets the price, takes the payment, and validates
 * the request's body before it claims the payment (marks it as used for this request). The work either resolves with a
 * complete answer or rejects, with a Problem unless the fault is ours, so that nothing is charged for work that was not
 * done.
 */
export interface Work<Input = unknown, Answer extends object = object> {
  id: string;
  method: "POST";
  path: string;
  summary: string;
  body: z.ZodType<Input>;
  /** A valid body, which catalogues of the operations show as an example. */
  example: Record<string, unknown>;
  answer: z.ZodType<Answer>;
  /** Longest body, bytes. */
  maxBodyBytes: number;
  /**
   * Returns how many times the price of the operation a request with this body costs (default: once). If present, the
   * body is read before the 402 is sent, so that the 402 names the total.
   * @param body parsed JSON, not validated
   * @throws Problem bad_request for an invalid body that names several items
   */
  countPrices?(body: unknown): number;
  /** Problems that the work may throw in addition to bad_request and too_large. */
  errors: readonly ProblemCode[];
  /** Returns true (default) if this service can do the work at all. Returns false if the operation is not offered. */
  offered?(deps: WorkDeps): boolean;
  /** Does the work. @param asked the validated body @throws Problem */
  run(asked: Input, deps: WorkDeps, signal?: AbortSignal): Promise<Answer>;
}
