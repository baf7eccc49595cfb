import { canonicalText } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { findTimeProblem, isSignedBy } from "../../pipelines/corrections/dispute.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import { DAY_MS, dayOf, dayStart } from "../../pipelines/record/time.ts";
import { toolInUrl } from "../../pipelines/record/url.ts";
import { badField, Problem } from "../http/problem.ts";
import { normalisedUrl } from "../http/request.ts";
import type { RetestAnswer, RetestRequest } from "../schemas/listing.ts";
import { matchUrl } from "../tables/match.ts";
import type { View } from "../tables/view.ts";
import type { Asks } from "./asks.ts";

/** Largest age, by its signed time, of a request that is accepted. */
const MAX_AGE = { ms: 600_000, words: "10 minutes" };
const RETRY_S = "60";

/** Sent with every queued re-test, so that the seller does not expect a letter or a paid call from it. */
const RETEST_NOTE =
  "A free look, without a payment. It gives no letter, and no paid call comes sooner by it: those are drawn as ever.";

export interface RetestDeps {
  view: () => View;
  asks: Pick<Asks, "retest">;
  validateUrl: Egress["validate"];
  clock: Clock;
  /** Origin of this service, which the signed statement has to name. */
  service: string;
}

/**
 * Returns the statement that a seller signs for a re-test: the RFC 8785 form of these members, without `method` if none
 * is given.
 */
export const retestStatement = ({ at, method, url }: Pick<RetestRequest, "at" | "method" | "url">, service: string) =>
  canonicalText({ at, ...(method === undefined ? {} : { method }), service, url });

/**
 * Answers POST /v1/listings/retest: a seller proves that it is the payee of an endpoint, and the endpoint is probed
 * again.
 */
export class Retests {
  constructor(private readonly deps: RetestDeps) {}

  /**
   * Queues the re-test.
   * @throws Problem bad_request with pointers, unknown_capability (not in the record under this url and method),
   * not_the_payee, too_many_requests (already probed today because of such a request), unavailable (it could not be
   * queued)
   */
  async put(request: RetestRequest, client: string): Promise<RetestAnswer> {
    const { clock, asks, service } = this.deps;
    const now = clock.now();
    const timeProblem = findTimeProblem(request.at, now, MAX_AGE);
    if (timeProblem !== null) throw badField("/at", timeProblem);
    if ((request.service ?? service) !== service) throw badField("/service", `must be ${service}`);
    const view = this.deps.view();
    const cap = this.#findEndpoint(view, request);
    const statement = retestStatement(request, service);
    await checkSigner(view, cap, request, statement);
    const listing = view.entry(cap)?.listing;
    const knownEndpoint = { cap, tool: listing?.tool ?? null };
    const url = listing?.url ?? view.row(cap)!.url;
    const method = listing?.method ?? view.row(cap)?.method;
    const { pay_to, signature } = request;
    const reply = await asks.retest(
      { url, normalised: url, method: method ?? undefined, knownEndpoint },
      { statement, pay_to, signature },
      client,
    );
    if (reply === null) throw probedTodayProblem(now);
    if (!reply.queued) throw new Problem("unavailable", reply.next, { headers: { "retry-after": RETRY_S } });
    return {
      schema: "svc.listing-retest.v1",
      capability_id: cap,
      url,
      queued: true,
      next: reply.next,
      says: RETEST_NOTE,
    };
  }

  /** Finds the endpoint, which must be in the record under a url that may be probed. @throws Problem */
  #findEndpoint(view: View, { url, method }: RetestRequest): string {
    const normalised = normalisedUrl(url);
    const match = matchUrl(view, normalised, method, toolInUrl(url));
    if (match?.matched !== "exact") throw new Problem("unknown_capability", `${normalised} is not in the record`);
    if (match.tools) {
      throw new Problem(
        "unknown_capability",
        `${normalised} has several tools: name the one that is meant as url#tool`,
      );
    }
    const verdict = this.deps.validateUrl(normalised);
    if (!verdict.ok) throw badField("/url", `is never fetched: ${verdict.says.replace(/\.$/, "")}`);
    return match.cap;
  }
}

/**
 * Checks that the newest 402, or the seller's own listing, names the signer. Earlier payees may no longer own the
 * endpoint.
 */
async function checkSigner(
  view: View,
  cap: string,
  { pay_to, signature }: RetestRequest,
  statement: string,
): Promise<void> {
  const row = view.row(cap);
  const payeeKeys = [...(row?.pay_tos ?? []), ...(row?.pay_tos_listed ?? [])].map(addressKey);
  const refusal = (pointer: string, detail: string) =>
    new Problem("not_the_payee", detail, {
      errors: [{ pointer, detail }],
      headers: { "www-authenticate": /^0x/i.test(pay_to) ? "EIP-191" : "Ed25519" },
    });
  if (!payeeKeys.includes(addressKey(pay_to))) {
    throw refusal("/pay_to", `neither its newest 402 nor its seller's own listing names ${pay_to}`);
  }
  if (await isSignedBy(pay_to, statement, signature)) return;
  throw refusal("/signature", `the signature is not ${pay_to}'s over the statement`);
}

function probedTodayProblem(now: Date): Problem {
  const seconds = Math.ceil((dayStart(dayOf(now)).getTime() + DAY_MS - now.getTime()) / 1000);
  return new Problem(
    "too_many_requests",
    "it was already looked at today at its seller's request; ask again after midnight UTC",
    {
      headers: { "retry-after": String(seconds) },
    },
  );
}
