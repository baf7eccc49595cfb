import type { Clock } from "../../infra/clock.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import { NoRegister, type OpenRegister, type Register } from "../../pipelines/register/register.ts";
import { type Company, type Match, type Reason, search } from "../../pipelines/register/search.ts";
import { Problem, type ProblemCode, validate } from "../http/problem.ts";
import {
  CompaniesAnswer,
  CompaniesQuestion,
  DEFAULT_CERTAINTY,
  MAX_NAMES,
  type MatchFound,
} from "../schemas/companies.ts";

/** The dependencies of a lookup. */
export interface CompaniesDeps {
  register: Pick<Register, "use">;
  clock: Clock;
}

/**
 * Longest body, bytes: room for {@link MAX_NAMES} names of 300 characters, all of them escaped in JSON, and the other
 * fields.
 */
const MAX_BODY_BYTES = MAX_NAMES * 2_000 + 8_192;
const DEFAULT_MATCHES = 10;

const emptyToNull = (text: string | null): string | null => (text === null || text === "" ? null : text);

/**
 * Texts for the codes with which GLEIF, the publisher of the register, gives the reason why a company does not report
 * its parent (Reporting Exceptions 2.1 and 1.1).
 */
const NOT_REPORTED_TEXTS: Readonly<Record<string, string>> = {
  NATURAL_PERSONS: "natural persons hold it, and no company that could consolidate it",
  NO_KNOWN_PERSON: "no person is known to control it, as where shares are widely held",
  NON_CONSOLIDATING: "its parent does not consolidate it under the accounting rules that apply",
  NO_LEI: "its parent has no LEI",
  NON_PUBLIC: "its parent is not public: law, contracts or harm forbid it, or a consent is missing",
  BINDING_LEGAL_COMMITMENTS: "legal commitments forbid to name its parent",
  LEGAL_OBSTACLES: "law forbids to name its parent",
  CONSENT_NOT_OBTAINED: "its parent has not consented to be named",
  DISCLOSURE_DETRIMENTAL: "to name its parent would harm it or its parent",
  DETRIMENT_NOT_EXCLUDED: "it cannot be excluded that to name its parent would harm",
};

const PARENT_KINDS = ["direct", "ultimate"] as const;

/**
 * Returns the parents of a company, and the reasons for each parent that it does not report. Each of the two is null
 * when the register was built without GLEIF's file of it.
 */
function parentsOf(
  company: Company,
  registerInfo: OpenRegister["made"],
): Pick<MatchFound["company"], "parents" | "parents_not_reported"> {
  const parents = PARENT_KINDS.flatMap((kind) => {
    const lei = company[`${kind}_lei`];
    return lei === null ? [] : [{ kind, lei, name: company[`${kind}_name`], since: company[`${kind}_since`] }];
  });
  const notReported = PARENT_KINDS.flatMap((kind) => {
    const reasons = company[`${kind}_reasons`];
    if (reasons === null) return [];
    return [{ kind, reasons, says: reasons.map((reason) => NOT_REPORTED_TEXTS[reason] ?? reason).join("; ") }];
  });
  return {
    parents: registerInfo.relations === null ? null : parents,
    parents_not_reported: registerInfo.exceptions === null ? null : notReported,
  };
}

/** Converts a company of the register to the form that answers use. */
const toCompanyFound = (company: Company, registerInfo: OpenRegister["made"]): MatchFound["company"] => ({
  lei: company.lei,
  name: company.name,
  other_names: company.names,
  jurisdiction: emptyToNull(company.jurisdiction),
  legal_form: { elf: emptyToNull(company.form_code), says: emptyToNull(company.form_text) },
  register: { authority: emptyToNull(company.authority), number: emptyToNull(company.register_number) },
  legal_address: {
    lines: company.legal_lines,
    country: emptyToNull(company.legal_country),
    city: emptyToNull(company.legal_city),
    postal_code: emptyToNull(company.legal_postal_code),
  },
  headquarters: {
    lines: company.hq_lines,
    country: emptyToNull(company.hq_country),
    city: emptyToNull(company.hq_city),
    postal_code: emptyToNull(company.hq_postal_code),
  },
  entity_status: emptyToNull(company.status),
  ended:
    emptyToNull(company.expired) === null && emptyToNull(company.expired_why) === null
      ? null
      : { at: emptyToNull(company.expired), reason: emptyToNull(company.expired_why) },
  successors: { leis: company.successors, names: company.successor_names },
  ...parentsOf(company, registerInfo),
  registration_status: emptyToNull(company.registration),
  last_update: company.updated,
  domains: company.domains,
});

/** Returns the text for one reason why a company matches. */
function describeReason(reason: Reason, { company, score }: Match): string {
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

const toMatchesFound = (matches: readonly Match[], registerInfo: OpenRegister["made"]): MatchFound[] =>
  matches.map((match) => ({
    reasons: match.reasons.map((reason) => ({ reason, says: describeReason(reason, match) })),
    score: Math.round(match.score * 10_000) / 10_000,
    company: toCompanyFound(match.company, registerInfo),
  }));

/** Returns the members of an answer other than its matches. */
const answerFields = (registerInfo: OpenRegister["made"], certainty: number, now: Date) => ({
  schema: "svc.companies.v1" as const,
  register: {
    source: "GLEIF golden copy (LEI-CDF; of level 2 what is counted here), CC0",
    imported_at: registerInfo.imported_at,
    newest_update: registerInfo.newest_update,
    ...{ companies: registerInfo.companies, domains: registerInfo.domains },
    ...{ relationships: registerInfo.relations, exceptions: registerInfo.exceptions },
  },
  certainty,
  answered_at: rfc3339(now),
});

/** Returns the problem of a lookup that cannot be done now, for which nothing is charged. */
const unavailableProblem = (detail: string): Problem => new Problem("unavailable", `${detail}; nothing is charged`);

/** Refuses a question that names only a domain when the register holds no domains. @throws Problem unavailable */
function refuseDomainAlone(
  { domain, lei, register_number: number, name }: CompaniesQuestion,
  registerInfo: OpenRegister["made"],
) {
  const hasOther = [lei, number, name].some((given) => given !== undefined);
  if (domain !== undefined && !hasOther && registerInfo.domains === 0)
    throw unavailableProblem("this register holds no domains");
}

/** Returns, as a text for the client, why no match has a score of at least `certainty`; null if one has. */
function whyUncertain(matches: readonly Match[], certainty: number): string | null {
  const best = Math.max(0, ...matches.map(({ score }) => score));
  if (best >= certainty) return null;
  const found = best > 0 ? `the best match has a score of ${best.toFixed(4)}, below` : "no company matches at";
  return `${found} the certainty of ${certainty}`;
}

/**
 * Looks up one company.
 * @throws Problem nothing_relevant, with the best score, if no match is as certain as was asked
 */
async function lookUpOne(question: CompaniesQuestion, { register, clock }: CompaniesDeps): Promise<CompaniesAnswer> {
  const { limit = DEFAULT_MATCHES, certainty = DEFAULT_CERTAINTY } = question;
  return register.use(async (open) => {
    refuseDomainAlone(question, open.made);
    const { matches, more } = await search(open, question, limit);
    const reason = whyUncertain(matches, certainty);
    if (reason) throw new Problem("nothing_relevant", `${reason}; nothing is charged`);
    return { ...answerFields(open.made, certainty, clock.now()), matches: toMatchesFound(matches, open.made), more };
  });
}

/**
 * Looks up the names one after the other. The register is released after each, so that other lookups can run in
 * between. If a name has no match as certain as was asked, nothing is charged, since the price is that of all names
 * that were sent.
 * @throws Problem nothing_relevant, which points at each name without a match
 */
async function lookUpNames(
  names: readonly string[],
  { limit = DEFAULT_MATCHES, certainty = DEFAULT_CERTAINTY, country }: CompaniesQuestion,
  { register, clock }: CompaniesDeps,
): Promise<CompaniesAnswer> {
  const results: NonNullable<CompaniesAnswer["results"]> = [];
  const unmatched: { pointer: string; detail: string }[] = [];
  let firstInfo: OpenRegister["made"] | null = null;
  for (const [i, name] of names.entries()) {
    await register.use(async (open) => {
      firstInfo ??= open.made;
      if (open.made.imported_at !== firstInfo.imported_at)
        throw unavailableProblem("the register was replaced meanwhile: send it again");
      const { matches, more } = await search(open, { name, country }, limit);
      const reason = whyUncertain(matches, certainty);
      if (reason) unmatched.push({ pointer: `/names/${i}`, detail: reason });
      else results.push({ name, matches: toMatchesFound(matches, firstInfo), more });
    });
  }
  if (unmatched.length === 0) return { ...answerFields(firstInfo!, certainty, clock.now()), results };
  const pointers = unmatched.map(({ pointer }) => pointer).join(", ");
  const says = `${unmatched.length} of ${names.length} names have no match at the certainty of ${certainty}: ${pointers}`;
  throw new Problem("nothing_relevant", `${says}; nothing is charged, send the others`, { errors: unmatched });
}

/**
 * Finds companies by LEI, register number, domain or name, or by up to 50 names (docs/companies-lookup.md). Without a
 * match that is as certain as was asked there is no answer, so nothing is charged.
 * @throws Problem nothing_relevant; unavailable when there is no register, or the question names only a domain and the
 * register holds none
 */
async function lookUp(question: CompaniesQuestion, deps: CompaniesDeps): Promise<CompaniesAnswer> {
  try {
    return await (question.names ? lookUpNames(question.names, question, deps) : lookUpOne(question, deps));
  } catch (error) {
    if (error instanceof NoRegister) throw unavailableProblem(error.message);
    throw error;
  }
}

/**
 * Returns how many times the price of one lookup a request with this body costs: once for each of `names`, else once.
 * @throws Problem bad_request
 */
const countPrices = (body: unknown): number =>
  typeof body === "object" && body !== null && "names" in body
    ? (validate(CompaniesQuestion, body).names?.length ?? 1)
    : 1;

/** The work of POST /v1/companies/lookup; its price and payment are handled by the operation that offers it. */
export const companiesLookup = {
  id: "companiesLookup",
  method: "POST",
  path: "/v1/companies/lookup",
  summary:
    "Companies by name, domain, LEI or register number, ranked, each with the reasons why it matches; or up to 50 names at once",
  body: CompaniesQuestion,
  example: { name: "Deutsche Bank", limit: 3 },
  answer: CompaniesAnswer,
  /** Longest body, bytes. */
  maxBodyBytes: MAX_BODY_BYTES,
  countPrices,
  /** Problems that the work may throw in addition to bad_request and too_large. */
  errors: ["nothing_relevant", "unavailable"] as readonly ProblemCode[],
  offered: ({ register }: { register: Pick<Register, "isAvailable"> }): boolean => register.isAvailable,
  run: lookUp,
} as const;
