import type { Clock } from "../../infra/clock.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { NoRegister, type OpenRegister, type Register } from "../../pipelines/register/register.ts";
import { type Company, type Match, type Reason, search } from "../../pipelines/register/search.ts";
import { Problem, type ProblemCode } from "../http/problem.ts";
import { CompaniesAnswer, CompaniesQuestion } from "../schemas/companies.ts";

/** What a lookup is done with. */
export interface CompaniesDeps {
  register: Pick<Register, "use">;
  clock: Clock;
}

/** A name of 300 characters, each escaped, and the rest beside it. */
const MAX_BODY = 8_192;
const DEFAULT_MATCHES = 10;

const orNull = (text: string | null): string | null => (text === null || text === "" ? null : text);

const told = (company: Company): CompaniesAnswer["matches"][number]["company"] => ({
  lei: company.lei,
  name: company.name,
  other_names: company.names,
  jurisdiction: orNull(company.jurisdiction),
  legal_form: { elf: orNull(company.form_code), says: orNull(company.form_text) },
  register: { authority: orNull(company.authority), number: orNull(company.register_number) },
  legal_address: {
    country: orNull(company.legal_country),
    city: orNull(company.legal_city),
    postal_code: orNull(company.legal_postal_code),
  },
  headquarters: {
    country: orNull(company.hq_country),
    city: orNull(company.hq_city),
    postal_code: orNull(company.hq_postal_code),
  },
  entity_status: orNull(company.status),
  registration_status: orNull(company.registration),
  last_update: company.updated,
  domains: company.domains,
});

/** A reason in words. */
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

function answerOf({ made }: OpenRegister, matches: readonly Match[], more: boolean, now: Date): CompaniesAnswer {
  return {
    schema: "svc.companies.v1",
    register: {
      source: "GLEIF golden copy, level 1 (LEI-CDF), CC0",
      imported_at: made.imported_at,
      newest_update: made.newest_update,
      companies: made.companies,
      domains: made.domains,
    },
    matches: matches.map((match) => ({
      reasons: match.reasons.map((reason) => ({ reason, says: says(reason, match) })),
      score: Math.round(match.score * 10_000) / 10_000,
      company: told(match.company),
    })),
    more,
    answered_at: rfc3339(now),
  };
}

/** Nothing is looked up, and so nothing is to be charged. */
const notNow = (detail: string): Problem => new Problem("unavailable", `${detail}; nothing is charged`);

/** A question that asks for a domain alone cannot be answered by a register that has none. @throws Problem unavailable */
function refuseDomainAlone(
  { domain, lei, register_number: number, name }: CompaniesQuestion,
  made: OpenRegister["made"],
) {
  const others = [lei, number, name].some((given) => given !== undefined);
  if (domain !== undefined && !others && made.domains === 0) throw notNow("this register holds no domains");
}

/**
 * The companies that a question means, by LEI, register number, domain or name (docs/companies-lookup.md). No match is
 * an answer.
 * @throws Problem bad_request where it names a domain alone and the register holds none; unavailable where there is no
 * register to look in
 */
async function run(question: CompaniesQuestion, { register, clock }: CompaniesDeps): Promise<CompaniesAnswer> {
  const { limit = DEFAULT_MATCHES } = question;
  try {
    return await register.use(async (open) => {
      refuseDomainAlone(question, open.made);
      const { matches, more } = await search(open, question, limit);
      return answerOf(open, matches, more, clock.now());
    });
  } catch (error) {
    if (error instanceof NoRegister) throw notNow(error.message);
    throw error;
  }
}

/** POST /v1/companies/lookup, as far as its work goes: what it costs and who pays is for whoever offers it. */
export const companiesLookup = {
  id: "companiesLookup",
  method: "POST",
  path: "/v1/companies/lookup",
  summary: "Companies by name, domain, LEI or register number, ranked, each with the reasons why it matches",
  body: CompaniesQuestion,
  answer: CompaniesAnswer,
  /** Longest body, bytes. */
  maxBodyBytes: MAX_BODY,
  /** Beside bad_request and too_large. */
  errors: ["unavailable"] as readonly ProblemCode[],
  run,
} as const;
