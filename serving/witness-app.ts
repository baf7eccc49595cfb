import { H3 } from "h3";
import { FastResponse } from "srvx";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import { MAX_REQUEST_BYTES } from "../infra/tree/add-checkpoint.ts";
import { textAnswer, type Witness, type WitnessAnswer } from "../pipelines/witness/witness.ts";
import { Problem } from "./http/problem.ts";
import { readBody } from "./http/request.ts";

const respond = ({ status, body, type }: WitnessAnswer): Response =>
  new FastResponse(typeof body === "string" ? body : new Uint8Array(body), {
    status,
    headers: { "content-type": type, "cache-control": "no-store", "x-content-type-options": "nosniff" },
  });

const respondText = (status: WitnessAnswer["status"], text: string): Response => respond(textAnswer(status, text));

/**
 * Creates the app of a witness over HTTP (c2sp.org/tlog-witness): `POST /add-checkpoint`, `GET /<sha256 of the
 * origin>/checkpoint`, and its verifier key at `/`. Answers are plain text, as the specification requires.
 * @param metrics counts the answers to submitted checkpoints
 */
export function createWitnessApp(witness: Witness, logger: Logger, metrics?: Pick<Metrics, "count">): H3 {
  const app = new H3({ silent: true, onError: () => respondText(400, "the request cannot be read") });
  const answerAddCheckpoint = async (body: Request["body"]): Promise<WitnessAnswer> => {
    try {
      return witness.answerAddCheckpoint(await readBody(body, MAX_REQUEST_BYTES));
    } catch (error) {
      if (error instanceof Problem) return textAnswer(error.code === "too_large" ? 413 : 400, error.message);
      logger.error({ err: error }, "a checkpoint could not be cosigned");
      return textAnswer(503, "this witness cannot write");
    }
  };
  app.post("/add-checkpoint", async ({ req }) => {
    const answer = await answerAddCheckpoint(req.body);
    metrics?.count("touchstone_add_checkpoint_requests_total", { status: `${answer.status}` as const });
    return respond(answer);
  });
  app.get("/:hash/checkpoint", (event) => respond(witness.answerNewest(event.context.params?.hash ?? "")));
  app.get("/", () => respondText(200, witness.vkey));
  app.all("/**", () => respondText(404, "a witness has add-checkpoint, and /<sha256 of an origin>/checkpoint"));
  return app;
}
