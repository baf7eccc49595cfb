import type { Clock } from "../../infra/clock.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { NoRegister, type OpenRegister, type Register } from "../../pipelines/register/register.ts";
import { type Company, type Match, type Reason, search } from "../../pipelines/register/search.ts";
import { Problem, type ProblemCode } from "../http/problem.ts";
import { CERTAINTY, CompaniesAnswer, CompaniesQuestion } from "../schemas/companies.ts";

/** The parts that a lookup needs. */
export interface CompaniesDeps {
  register: Pick<Register, "use">;
  clock: Clock;
}

/** Longest body, bytes: room for a name of 300 escaped characters and the other fields. */
const MAX_BODY = 8_192;
const DEFAULT_MATCHES = 10;

const orNull = (text: string | null): string | null => (text === null || text === "" ? null : text);

/** Converts a company of the register to its form in an answer. */
const companyShown = (company: Company): CompaniesAnswer["matches"][number]["company"] => ({
  lei: company.lei,
  name: company.name,
  other_names: company.names,
  jurisdiction: orNull(company.jurisdiction),
  legal_form: { elf: orNull(company.form_code), says: orNull(company.form_text) },
  register: { authority: orNull(company.authority), number: orNull(company.register_number) },
  legal_address: {
    lines: company.legal_lines,
    country: orNull(company.legal_country),
    city: orNull(company.legal_city),
    postal_code: orNull(company.legal_postal_code),
  },
  headquarters: {
    lines: company.hq_lines,
    country: orNull(company.hq_country),
    city: orNull(company.hq_city),
    postal_code: orNull(company.hq_postal_code),
  },
  entity_status: orNull(company.status),
  ended:
    orNull(company.expired) === null && orNull(company.expired_why) === null
      ? null
      : { at: orNull(company.expired), reason: orNull(company.expired_why) },
  successors: { leis: company.successors, names: company.successor_names },
  registration_status: orNull(company.registration),
  last_update: company.updated,
  domains: company.domains,
});

/** Describes a reason of a match. */
function says(reason: Reason, { company, score }: Match): string {
  const where = company.jurisdiction ? ` in ${company.jurisdiction.slice(0, 2)}` : "";
  const words: Record<Reason, string> = {
    lei: "exact LEI",
    register_number: `exact register number${where}`,
    domain: "exact domain",
    exact_name: "exact name",
    same_name: "name equals after normalisation",
    all_words: `all words (${score.toFixed(2)})`,
    similar: `similar (${score.toFixed(2)})`,
  };
  return words[reason];
}

function answerOf(
  { made }: OpenRegister,
  matches: readonly Match[],
  more: boolean,
  certainty: number,
  now: Date,
): CompaniesAnswer {
  return {
    schema: "svc.companies.v1",
    register: {
      source: "GLEIF golden copy, level 1 (LEI-CDF), CC0",
      imported_at: made.imported_at,
      newest_update: made.newest_update,
      companies: made.companies,
      domains: made.domains,
    },
    certainty,
    matches: matches.map((match) => ({
      reasons: match.reasons.map((reason) => ({ reason, says: says(reason, match) })),
      score: Math.round(match.score * 10_000) / 10_000,
      company: companyShown(match.company),
    })),
    more,
    answered_at: rfc3339(now),
  };
}

/** Returns the problem of a lookup that cannot be done now, for which nothing is charged. */
const notNow = (detail: string): Problem => new Problem("unavailable", `${detail}; nothing is charged`);

/** Refuses a question that names only a domain when the register holds no domains. @throws Problem unavailable */
function refuseDomainAlone(
  { domain, lei, register_number: number, name }: CompaniesQuestion,
  made: OpenRegister["made"],
) {
  const others = [lei, number, name].some((given) => given !== undefined);
  if (domain !== undefined && !others && made.domains === 0) throw notNow("this register holds no domains");
}

/** @throws Problem nothing_relevant, which names the best score that there was */
function refuseUncertain(matches: readonly Match[], certainty: number): void {
  const best = Math.max(0, ...matches.map(({ score }) => score));
  if (best >= certainty) return;
  const found = best > 0 ? `the best match has a score of ${best.toFixed(4)}, below` : "no company matches at";
  throw new Problem("nothing_relevant", `${found} the certainty of ${certainty}; nothing is charged`);
}

/**
 * Finds companies by LEI, register number, domain or name (docs/companies-lookup.md). Without a match that is as certain as was
 * asked there is no answer, so nothing is charged.
 * @throws Problem nothing_relevant; unavailable when there is no register, or the question names only a domain and the register holds none
 */
async function run(question: CompaniesQuestion, { register, clock }: CompaniesDeps): Promise<CompaniesAnswer> {
  const { limit = DEFAULT_MATCHES, certainty = CERTAINTY } = question;
  try {
    return await register.use(async (open) => {
      refuseDomainAlone(question, open.made);
      const { matches, more } = await search(open, question, limit);
      refuseUncertain(matches, certainty);
      return answerOf(open, matches, more, certainty, clock.now());
    });
  } catch (error) {
    if (error instanceof NoRegister) throw notNow(error.message);
    throw error;
  }
}

/** The work of POST /v1/companies/lookup; its price and payment are handled by the operation that offers it. */
export const companiesLookup = {
  id: "companiesLookup",
  method: "POST",
  path: "/v1/companies/lookup",
  summary: "Companies by name, domain, LEI or register number, ranked, each with the reasons why it matches",
  body: CompaniesQuestion,
  example: { name: "Deutsche Bank", limit: 3 },
  answer: CompaniesAnswer,
  /** Longest body, bytes. */
  maxBodyBytes: MAX_BODY,
  /** Problems in addition to bad_request and too_large. */
  errors: ["nothing_relevant", "unavailable"] as readonly ProblemCode[],
  offered: ({ register }: { register: Pick<Register, "isThere"> }): boolean => register.isThere,
  run,
} as const;
