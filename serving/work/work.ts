import type { z } from "zod";
import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { Holder } from "../../infra/shares.ts";
import type { Register } from "../../pipelines/register/register.ts";
import type { ProblemCode } from "../http/problem.ts";
import type { Corpus } from "./brief/corpus.ts";
import type { Summariser } from "./brief/summariser.ts";
import type { Extractor } from "./extract/extractor.ts";

/** What paid work is done with. */
export interface WorkDeps {
  egress: Egress;
  extractor: Extractor;
  /** The answers key. */
  signer: Signer;
  clock: Clock;
  /** What a question without addresses is asked of. */
  corpus: Corpus;
  summariser: Summariser;
  register: Register;
  /** Whose work it is: fetching and reading take its share. */
  holder?: Holder;
}

/**
 * One paid operation as far as its work goes; what it costs, who pays and when is for whoever offers it, who also holds
 * the body against its schema: a payment is not claimed for one that is not valid. Either it gives a whole answer or it
 * rejects, and what it rejects with is a Problem unless the fault is ours: nothing in between, so that nothing is
 * charged for what was not done.
 */
export interface Work<Input = unknown, Answer extends object = object> {
  id: string;
  method: "POST";
  path: string;
  summary: string;
  body: z.ZodType<Input>;
  answer: z.ZodType<Answer>;
  /** Longest body, bytes. */
  maxBodyBytes: number;
  /** Beside bad_request and too_large, which every body may earn. */
  errors: readonly ProblemCode[];
  /** @param asked the body, as its schema gave it @throws Problem */
  run(asked: Input, deps: WorkDeps, signal?: AbortSignal): Promise<Answer>;
}
