import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock } from "../../infra/clock.ts";
import type { Egress, EgressResult } from "../../infra/egress/egress.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { signMessage } from "../../pipelines/6-notify/notice.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { Problem } from "../http/problem.ts";

export interface ChallengeParts {
  egress: Pick<Egress, "fetch">;
  signer: Signer;
  clock: Clock;
  /** Key for the messages' HMAC, as {@link signMessage} takes it; null: none. */
  hmacKey: string | null;
}

/** Longest time for waiting until a connection may be opened and for the exchange together, real ms. */
const TIMEOUT_MS = 25_000;

const sha256 = (text: string): Buffer => createHash("sha256").update(text).digest();

/** Compares two texts in a time that does not depend on where they differ. */
export const sameText = (a: string, b: string): boolean => timingSafeEqual(sha256(a), sha256(b));

/**
 * Posts a challenge to a receiver and waits until the receiver echoes it. Only a client that controls the receiver can
 * make it do so.
 * @throws Problem receiver_failed with what the receiver did instead; unavailable when the challenge could not be sent
 */
export async function challenge(url: string, watcherId: string, { egress, signer, clock, hmacKey }: ChallengeParts) {
  const secret = randomBytes(32).toString("base64url");
  const now = clock.now();
  const body = { type: "watcher.challenge", timestamp: rfc3339(now), challenge: secret, watcher_id: watcherId };
  const id = `chl_${randomBytes(16).toString("base64url")}`;
  const message = signMessage(id, JSON.stringify(body), now, [signer], hmacKey);
  const result = await egress.fetch({
    ...{ url, method: "POST", headers: message.headers, body: message.body, profile: "challenge" },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (result.outcome === "refused" && result.reason === undefined) {
    const headers = { "retry-after": "30" };
    throw new Problem("unavailable", `the receiver could not be asked from here: ${result.says}`, { headers });
  }
  const why = whyNotEchoed(result, secret);
  if (why === null) return;
  const detail = `the receiver did not echo the challenge: ${why}`;
  throw new Problem("receiver_failed", detail, { errors: [{ pointer: "/url", detail }] });
}

/**
 * Returns null for an echo (status 200 and the challenge alone, as text or as the member `challenge` of a JSON object);
 * otherwise what is wrong.
 */
function whyNotEchoed(result: EgressResult, secret: string): string | null {
  if (result.outcome !== "answered") return result.says;
  if (result.status !== 200) return `it answered ${result.status}, and only 200 counts`;
  const text = Buffer.from(result.body).toString("utf8");
  return sameText(text, secret) || sameText(memberOf(text), secret) ? null : "its body is not the challenge";
}

function memberOf(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    const member = (value as { challenge?: unknown } | null)?.challenge;
    return typeof member === "string" ? member : "";
  } catch {
    return "";
  }
}
