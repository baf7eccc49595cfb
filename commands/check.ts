import type { Config } from "../infra/config.ts";
import { Failure, type FailureCode } from "../infra/errors.ts";
import { networkName, symbolOf } from "../pipelines/record/networks.ts";
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

/** Time limit of one request to the service, ms. */
const TIMEOUT_MS = 15_000;

/** The exit code for each fault of the client library. A fault that is not listed has `unreachable`. */
const FAILURE_CODES: Partial<Record<FaultCode, FailureCode>> = {
  ...{ bad_signature: "tampered", other_answer: "tampered", bad_answer: "tampered", too_large: "tampered" },
  ...{ stale: "stale", problem: "usage" },
};

/** Converts a fault of the client library to a failure of the command. Other errors are returned unchanged. */
export const toFailure = (error: unknown, { base }: Service): unknown =>
  error instanceof ServiceFault
    ? new Failure(FAILURE_CODES[error.code] ?? "unreachable", `${base}: ${error.says}`, { cause: error })
    : error;

/**
 * Creates the client of a service at an address, by default the address in the settings.
 * @throws Failure `usage` for an invalid address
 */
export function createService(config: Config, address?: string): Service {
  try {
    return new Service({ base: address ?? config.base_url, timeout_ms: TIMEOUT_MS });
  } catch (error) {
    throw new Failure("usage", `--service: ${(error as Error).message}`);
  }
}

/**
 * Sends GET /v1/check for an endpoint, verifies the signature, and collects the reasons against a payment.
 * @throws Failure
 */
export async function checkEndpoint(
  service: Service,
  { url, method }: { url: string; method?: "GET" | "POST" | undefined },
): Promise<{ answer: CheckAnswer; concerns: Concern[] }> {
  const answer = await service.check({ url, method }).catch((error: unknown) => {
    throw toFailure(error, service);
  });
  return { answer, concerns: decide(answer, []).concerns };
}

/**
 * Returns why a call of the endpoint cannot be bought through the service, or null if it can. Older services send no
 * `not_bought`; for them it returns `why`, the sentence about the grade.
 */
export function whyNotSold(answer: CheckAnswer): string | null {
  if (answer.buy) return null;
  if (answer.queued === true) return "the endpoint is new to the service: ask again in about an hour";
  return answer.not_bought ?? answer.why;
}

const formatAdvertised = ({ amount, asset, networks }: { amount: string; asset: string; networks: string[] }): string =>
  `${amount} ${symbolOf(asset)} on ${networks.map(networkName).join(", ")}`;

/**
 * Formats the answer of the check for people: the letter and its reason, what the newest 402 asks for, the reasons
 * against a payment, and how to buy a call.
 */
export function checkLines(answer: CheckAnswer, concerns: readonly Concern[]): string[] {
  const { band, tier, why, url, asked, capabilityId, observed, corrections = [], payee, buy, next } = answer;
  const advertised = observed?.advertised;
  return [
    `${band}  ${url ?? asked}${capabilityId ? `  (${capabilityId})` : ""}`,
    `  ${tier ?? "not measured yet"}: ${why}`,
    ...(advertised ? [`  the newest 402 asks ${formatAdvertised(advertised)}`] : []),
    ...(payee ? [`  paid to ${payee.address}`] : []),
    ...concerns
      .filter(({ reason }) => reason === "flag" || reason === "defect")
      .map(
        ({ reason, what, says, refuses }) =>
          `  ${refuses ? "AGAINST IT" : "note"}: ${reason} ${reason === "flag" ? what : says}`,
      ),
    ...corrections.map(({ id, says }) => `  corrected: ${says} (${id})`),
    ...(next ? [`  ${next}`] : []),
    ...(buy
      ? [
          `  sold here: ${buy.seller_price} + ${buy.fee} fee = ${buy.total} ${buy.asset}, called with ${buy.method}`,
          `  ${buy.guarantee}`,
        ]
      : [`  not sold here: ${whyNotSold(answer)}`]),
    `  signed by ${answer.signing_key_id} at ${answer.answered_at}`,
  ];
}

/**
 * `touchstone check`: asks a service about an endpoint that is about to be paid, verifies the signed answer and prints
 * it.
 * @throws Failure `ungraded` if the endpoint has no letter yet, `refused` if there is a reason against a payment
 */
export async function checkCommand(config: Config, endpoint: string, options: OptionsOf<"check">): Promise<void> {
  const { answer, concerns } = await checkEndpoint(createService(config, options.service), {
    ...{ url: endpoint, method: options.method },
  });
  print(options, { ...answer, concerns }, checkLines(answer, concerns));
  const refusingConcern = concerns.find(({ refuses }) => refuses);
  if (refusingConcern) throw new Failure("refused", `do not pay this endpoint: ${refusingConcern.what}`);
  if (answer.band === "UNRATED") throw new Failure("ungraded", "the endpoint has no letter: unknown, not bad");
}
