import type { Clock } from "../../infra/clock.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { formatMoney, formatSum, parseMoney } from "../../pipelines/record/money.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { Limiter } from "../http/limits.ts";
import { Problem, validate } from "../http/problem.ts";
import type { CheckFacts } from "../schemas/check.ts";
import {
  type Dependency,
  type ExposureFacts,
  type ExposureLine,
  ParsedExposureRequest,
  type Standing,
} from "../schemas/exposure.ts";
import type { View } from "../tables/view.ts";
import { type Checks, signedText } from "./check.ts";
import type { Demand } from "./demand.ts";
import { totalsOf } from "./exposure-totals.ts";
import { payToVerdict } from "./pay-to.ts";
import { keptTheMoney } from "./related.ts";

export interface ExposureDeps {
  view: () => View;
  /** Looks up a url or a capability id as GET /v1/check does, and queues unknown urls for a free probe. */
  checks: Pick<Checks, "facts">;
  demand?: Pick<Demand, "count"> | undefined;
  /** Limits how many dependencies one client may look up in a time window; each dependency takes one token. */
  limiter: Limiter;
  /** Signs reports, with the key that signs all answers (another key signs scorecards). */
  signer: Signer;
  clock: Clock;
}

/**
 * Answers POST /v1/exposure: what the record holds about many dependencies (paid endpoints that the client's programs
 * call) at once, summed up by payee.
 */
export class Exposures {
  constructor(private readonly deps: ExposureDeps) {}

  /**
   * Makes a signed report as JSON text, and the headers that state the limit on dependencies.
   * @param request the parsed body, of any shape
   * @throws Problem bad_request with a pointer to the wrong item; too_many_requests
   */
  async report(request: unknown, client: string): Promise<{ text: string; headers: Record<string, string> }> {
    const dependencies = validate(ParsedExposureRequest, request).dependencies.map(
      (one): Dependency => (typeof one === "string" ? { url: one } : one),
    );
    const headers = this.#takeTokens(client, dependencies.length);
    const view = this.deps.view();
    // All look-ups start before the first of them is awaited, so all read the same state of the tables. Only look-ups
    // of unknown urls, which are queued for a probe, take longer.
    const facts = await Promise.all(dependencies.map((one) => this.#lookUp(one, client)));
    const now = this.deps.clock.now();
    const lines = dependencies.map((one, i) => lineOf(view, one, facts[i]!, now));
    const report: ExposureFacts = { schema: "svc.exposure.v1", lines, ...totalsOf(lines) };
    return { text: signedText(this.deps.signer, { ...report, answered_at: rfc3339(now) }), headers };
  }

  #takeTokens(client: string, dependencies: number): Record<string, string> {
    const { limiter } = this.deps;
    const decision = limiter.take(client, Math.max(1, dependencies));
    const headers = limiter.headers(decision);
    if (decision.ok) return headers;
    const { quota, windowS } = limiter.limit;
    throw new Problem("too_many_requests", `at most ${quota} dependencies in ${windowS} s`, { headers });
  }

  async #lookUp({ url, pay_to }: Dependency, client: string): Promise<CheckFacts> {
    const facts = await this.deps.checks.facts({ url, method: undefined, pay_to }, client);
    if (facts.capabilityId !== undefined) this.deps.demand?.count(facts.capabilityId, client);
    return facts;
  }
}

/** Returns the standing of a dependency: the first value of `Standing`, in its order, whose condition holds. */
function standingOf(facts: CheckFacts, row: VolatileRow | undefined, now: Date): Standing {
  const has = (flag: string): boolean => facts.flags?.includes(flag) === true;
  if (keptTheMoney(row, now) || has("took_the_money")) return "took_the_money";
  if (facts.defects.length > 0 || has("listing_mismatch")) return "listing_mismatch";
  if (facts.band !== "UNRATED") return "lettered";
  const wasPaid = (row?.paid_calls ?? 0) > 0 || (facts.tier !== null && facts.tier !== "LIVENESS_VERIFIED");
  if (wasPaid) return "paid_no_letter";
  return facts.matched === "none" ? "not_in_record" : "handshake_only";
}

function lineOf(view: View, dependency: Dependency, facts: CheckFacts, now: Date): ExposureLine {
  const row = facts.capabilityId === undefined ? undefined : view.row(facts.capabilityId);
  const { asked, matched, capabilityId, url, band, tier, composite, why, queued, next } = facts;
  const { calls_per_month: calls, pay_to, price: givenPrice } = dependency;
  const price = row?.price ?? null;
  const priceUsed = price ?? givenPrice ?? null;
  return {
    ...{ asked, matched, band, tier, composite, why },
    ...(capabilityId === undefined ? {} : { capabilityId }),
    ...(url === undefined ? {} : { url }),
    ...(queued === undefined ? {} : { queued }),
    ...(next === undefined ? {} : { next }),
    standing: standingOf(facts, row, now),
    flags: facts.flags ?? [],
    defects: facts.defects.map(({ defect }) => defect),
    calls_unserved: row?.unserved ?? 0,
    ...{ price, asset: row?.asset ?? null, unit: row?.unit ?? null, networks: row?.networks ?? [] },
    pay_to: pay_to ?? row?.asked_pay_to ?? null,
    ...(pay_to === undefined ? {} : { pay_to_seen_before: payToVerdict(row, pay_to).seenBefore === true }),
    calls_per_month: calls ?? null,
    ...(givenPrice === undefined ? {} : { price_given: formatMoney(parseMoney(givenPrice)) }),
    monthly_spend:
      priceUsed === null || calls === undefined ? null : formatSum(timesCalls(parseMoney(priceUsed), calls)),
  };
}

/** Matches digits, fraction and exponent of a number as JSON prints it in its shortest decimal form. */
const DECIMAL = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/;

/**
 * Computes the price of `calls` calls in micro-units. The product with the decimal number of the request is exact,
 * and is rounded up, so that the stated price is never too low.
 * @param micro price of one call, micro-units
 * @param calls finite, from 0 to {@link MAX_CALLS}
 */
export function timesCalls(micro: bigint, calls: number): bigint {
  const [, integer, fraction = "", exponent = "0"] = DECIMAL.exec(String(calls))!;
  const scale = fraction.length - Number(exponent);
  const digits = BigInt(integer + fraction) * (scale < 0 ? 10n ** BigInt(-scale) : 1n);
  const divisor = scale > 0 ? 10n ** BigInt(scale) : 1n;
  return (micro * digits + divisor - 1n) / divisor;
}
