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

/** The parts that paid work needs. */
export interface WorkDeps {
  egress: Egress;
  extractor: Extractor;
  /** Signs with the answers key. */
  signer: Signer;
  clock: Clock;
  /** Documents for questions that name no urls. */
  corpus: Corpus;
  /** The record, for questions about it; without it they are asked of the documents. */
  record?: RecordParts;
  /** Searches the web for questions that name no urls. */
  search?: SearchProvider;
  summariser: Summariser;
  register: Register;
  /** Keeps bodies and receipts of web/evidence; null where nothing is sold, since there is no store for them. */
  receipts: Receipts | null;
  /** The holder whose share of fetches and extractions the work uses. */
  holder?: Holder;
}

/**
 * The work of one paid operation. The operation that offers it sets the price, takes the payment, and validates the body
 * before it claims the payment. The work either resolves with a complete answer or rejects, with a Problem unless the fault
 * is ours, so that nothing is charged for work that was not done.
 */
export interface Work<Input = unknown, Answer extends object = object> {
  id: string;
  method: "POST";
  path: string;
  summary: string;
  body: z.ZodType<Input>;
  /** A valid body, which catalogues show. */
  example: Record<string, unknown>;
  answer: z.ZodType<Answer>;
  /** Longest body, bytes. */
  maxBodyBytes: number;
  /**
   * Returns the number of prices that a body costs (default: one). If present, the body is read before the 402, so that the
   * 402 names the total.
   * @param body parsed JSON, not validated @throws Problem bad_request for an invalid body that names several items
   */
  pricesOf?(body: unknown): number;
  /** Problems in addition to bad_request and too_large. */
  errors: readonly ProblemCode[];
  /** Returns whether the work can be done here at all (default: always). If not, it has no terms and is not described. */
  offered?(deps: WorkDeps): boolean;
  /** Does the work. @param asked the validated body @throws Problem */
  run(asked: Input, deps: WorkDeps, signal?: AbortSignal): Promise<Answer>;
}
