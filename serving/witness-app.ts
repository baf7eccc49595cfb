import { H3 } from "h3";
import { FastResponse } from "srvx";
import type { Logger } from "../infra/telemetry.ts";
import { MAX_REQUEST_BYTES } from "../infra/tree/add-checkpoint.ts";
import type { Witness, WitnessAnswer } from "../pipelines/witness/witness.ts";
import { Problem } from "./http/problem.ts";
import { readBody } from "./http/request.ts";

const TEXT_TYPE = "text/plain; charset=utf-8";

const respond = ({ status, body, type }: WitnessAnswer): Response =>
  new FastResponse(typeof body === "string" ? body : new Uint8Array(body), {
    status,
    headers: { "content-type": type, "cache-control": "no-store", "x-content-type-options": "nosniff" },
  });

const respondText = (status: number, text: string): Response => respond({ status, body: `${text}\n`, type: TEXT_TYPE });

/**
 * Creates the app of a witness over HTTP (c2sp.org/tlog-witness): `POST /add-checkpoint`, `GET /<sha256 of the
 * origin>/checkpoint`, and its verifier key at `/`. Answers are plain text, as the specification requires.
 */
export function createWitnessApp(witness: Witness, logger: Logger): H3 {
  const app = new H3({ silent: true, onError: () => respondText(400, "the request cannot be read") });
  app.post("/add-checkpoint", async ({ req }) => {
    try {
      return respond(witness.answerAddCheckpoint(await readBody(req.body, MAX_REQUEST_BYTES)));
    } catch (error) {
      if (error instanceof Problem) return respondText(error.code === "too_large" ? 413 : 400, error.message);
      logger.error({ err: error }, "a checkpoint could not be cosigned");
      return respondText(503, "this witness cannot write");
    }
  });
  app.get("/:hash/checkpoint", (event) => respond(witness.answerNewest(event.context.params?.hash ?? "")));
  app.get("/", () => respondText(200, witness.vkey));
  app.all("/**", () => respondText(404, "a witness has add-checkpoint, and /<sha256 of an origin>/checkpoint"));
  return app;
}
