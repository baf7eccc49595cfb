import type { Config } from "../infra/config.ts";
import { Failure, type FailureCode } from "../infra/errors.ts";
import {
  type CheckAnswer,
  type Concern,
  decide,
  type FaultCode,
  Service,
  ServiceFault,
} from "../serving/client/index.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** Time for one question to a service, ms. */
const WAIT_MS = 15_000;

/** By its cause: an answer that cannot be believed, an address that gave none, a question that it refuses. */
const CODES: Partial<Record<FaultCode, FailureCode>> = {
  ...{ bad_signature: "tampered", other_answer: "tampered", bad_answer: "tampered", too_large: "tampered" },
  ...{ stale: "stale", problem: "usage" },
};

/** A service's fault as a failure of the command; anything else as it is. */
export const asFailure = (error: unknown, { base }: Service): unknown =>
  error instanceof ServiceFault
    ? new Failure(CODES[error.code] ?? "unreachable", `${base}: ${error.says}`, { cause: error })
    : error;

/** The service at an address, by default that of the settings. @throws Failure `usage` for what is no such address */
export function serviceOf(config: Config, address?: string): Service {
  try {
    return new Service({ base: address ?? config.base_url, timeout_ms: WAIT_MS });
  } catch (error) {
    throw new Failure("usage", `--service: ${(error as Error).message}`);
  }
}

/** One check, with its signature verified, and what it holds against a payment. @throws Failure */
export async function checked(
  service: Service,
  { url, method }: { url: string; method?: "GET" | "POST" | undefined },
): Promise<{ answer: CheckAnswer; concerns: Concern[] }> {
  const answer = await service.check({ url, method }).catch((error: unknown) => {
    throw asFailure(error, service);
  });
  return { answer, concerns: decide(answer, []).concerns };
}

/** Why a call of it cannot be bought; null where it can. Older services do not say so beside the letter's reason. */
export function unsold(answer: CheckAnswer): string | null {
  if (answer.buy) return null;
  if (answer.queued === true) return "it was never seen before: ask again in about an hour";
  return answer.not_bought ?? answer.why;
}

const asText = ({ amount, asset, networks }: { amount: string; asset: string; networks: string[] }): string =>
  `${amount} ${asset} on ${networks.join(", ")}`;

/** The check for people: the letter and its reason, what was seen, what speaks against it, and how it is bought. */
export function checkLines(answer: CheckAnswer, concerns: readonly Concern[]): string[] {
  const { band, tier, why, url, asked, capabilityId, observed, corrections = [], payee, buy, next } = answer;
  const advertised = observed?.advertised;
  return [
    `${band}  ${url ?? asked}${capabilityId ? `  (${capabilityId})` : ""}`,
    `  ${tier ?? "not measured yet"}: ${why}`,
    ...(advertised ? [`  its newest 402 asks ${asText(advertised)}`] : []),
    ...(payee ? [`  it is paid at ${payee.address}`] : []),
    ...concerns
      .filter(({ reason }) => reason === "flag" || reason === "defect")
      .map(
        ({ reason, what, says, refuses }) =>
          `  ${refuses ? "AGAINST IT" : "note"}: ${reason} ${reason === "flag" ? what : says}`,
      ),
    ...corrections.map(({ id, says }) => `  we were wrong about it: ${says} (${id})`),
    ...(next ? [`  ${next}`] : []),
    ...(buy
      ? [
          `  bought here: ${buy.seller_price} + ${buy.fee} fee = ${buy.total} ${buy.asset}, called with ${buy.method}`,
          `  ${buy.guarantee}`,
        ]
      : [`  not sold here: ${unsold(answer)}`]),
    `  signed by ${answer.signing_key_id} at ${answer.answered_at}`,
  ];
}

/**
 * `touchstone check`: what a service's record holds about an endpoint that is about to be paid, signed and verified.
 * @throws Failure `ungraded` without a letter, `refused` where what is known speaks against a payment
 */
export async function checkCommand(config: Config, endpoint: string, options: OptionsOf<"check">): Promise<void> {
  const { answer, concerns } = await checked(serviceOf(config, options.service), {
    ...{ url: endpoint, method: options.method },
  });
  print(options, { ...answer, concerns }, checkLines(answer, concerns));
  const against = concerns.find(({ refuses }) => refuses);
  if (against) throw new Failure("refused", `it speaks against paying it: ${against.what}`);
  if (answer.band === "UNRATED") throw new Failure("ungraded", "it has no letter: unknown, not bad");
}
