import type { Jwks } from "../../infra/keys/jwk.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import { headlineOf } from "../published/caps.ts";
import type { PublishedFold } from "../published/fold.ts";
import { Check, type Finding } from "./findings.ts";

/** Asks the live service for a path; null when it answers with an error. */
export type AskLive = (path: string) => Promise<unknown>;

/** Endpoints that are asked for, spread over all of them. */
const SAMPLED = 20;

/**
 * Are live answers what the log says? Each sampled check must be signed by the answers key, and the card in it must be
 * one that is in the log; a card that is newer than this checkpoint is left open.
 */
export async function auditLive(ask: AskLive, fold: PublishedFold, jwks: Jwks | null): Promise<Finding> {
  const check = new Check("live answers");
  const caps = [...fold.caps.values()].filter((cap) => cap.listing).sort((a, b) => (a.cap < b.cap ? -1 : 1));
  const step = Math.max(1, Math.floor(caps.length / SAMPLED));
  for (const cap of caps.filter((_, i) => i % step === 0).slice(0, SAMPLED)) {
    const key = `/v1/check?url=${cap.cap}`;
    const answer = (await ask(key)) as Record<string, unknown> | null;
    if (!answer) {
      check.bad({ key, expected: "an answer", got: "an error" });
      continue;
    }
    const verdict = jwks && verifyObject(jwks, answer, { purpose: "answers", at: String(answer.answered_at) });
    const want = headlineOf(cap)?.text ?? null;
    const newer = String(answer.computedAt ?? "") > cap.computedAt;
    if (!verdict?.ok) check.bad({ key, expected: "a signature of the answers key", got: verdict?.reason ?? "no keys" });
    else if (newer) check.open("a card is newer than this checkpoint");
    else if (answer.scorecard !== want) {
      check.bad({ key, expected: `the card of ${cap.computedAt}`, got: String(answer.scorecard).slice(0, 120) });
    } else check.ok();
  }
  return check.finding;
}
