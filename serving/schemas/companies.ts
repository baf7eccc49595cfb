import { z } from "zod";
import { faultOfLei } from "../../pipelines/register/score.ts";
import { REASONS } from "../../pipelines/register/search.ts";
import { forbidsAll, refusalSchema, requiresAll } from "./common.ts";

/** Largest number of matches in one answer (docs/companies-lookup.md). */
const MAX_MATCHES = 20;
/** Largest number of names in one question, each at the price of one question (docs/companies-lookup.md). */
export const MAX_NAMES = 50;

const boundedText = (maxLength: number) =>
  z
    .string({ error: "must be a text" })
    .trim()
    .min(1, "must not be empty")
    .max(maxLength, `must be at most ${maxLength} characters long`);

const Lei = boundedText(40)
  .toUpperCase()
  .superRefine((lei, context) => {
    const fault = faultOfLei(lei);
    if (fault !== null) context.addIssue({ code: "custom", message: fault });
  });

const HOST_PATTERN = /^(?:https?:\/\/)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}\.?(?:[:/].*)?$/i;
/** Least score of the best match for which there is an answer, unless the question names another. */
export const DEFAULT_CERTAINTY = 0.8;
const MIN_CERTAINTY = 0.5;
/**
 * Returns a key that is equal for names which differ only in case, white space or Unicode form. A question must not
 * have two such names, since each is paid for.
 */
const nameKey = (name: string): string => name.normalize("NFKC").toLowerCase().replace(/\s+/g, " ");

const Names = z
  .array(boundedText(300), { error: `must be a list of 1 to ${MAX_NAMES} names` })
  .min(1, "must name at least one company")
  .max(MAX_NAMES, `must have at most ${MAX_NAMES} names`)
  .superRefine((names, context) => {
    const indexByName = new Map<string, number>();
    for (const [i, name] of names.entries()) {
      const firstIndex = indexByName.get(nameKey(name));
      indexByName.set(nameKey(name), firstIndex ?? i);
      if (firstIndex === undefined) continue;
      context.addIssue({ code: "custom", path: [i], message: `is the same name as /names/${firstIndex}` });
    }
  })
  .meta({ uniqueItems: true });

const CERTAINTY_MESSAGE = `must be a number from ${MIN_CERTAINTY} to 1`;
const LIMIT_MESSAGE = `must be a whole number from 1 to ${MAX_MATCHES}`;

/** Members of a question by which one company is looked for. */
const ONE_COMPANY_MEMBERS = ["name", "domain", "lei", "register_number"] as const;

/**
 * Body of POST /v1/companies/lookup. Companies that match any of lei, register_number, domain and name are returned; or
 * companies for each of `names`, at the price of one question for each name.
 */
export const CompaniesQuestion = z
  .strictObject({
    /** Legal entity identifier (ISO 17442); its check digits are verified. */
    lei: Lei.optional(),
    /** Number in a business register, as it is written: signs and leading zeros make no difference. */
    register_number: boundedText(64).optional(),
    /** GLEIF's code of that business register. */
    register_authority: boundedText(8)
      .toUpperCase()
      .regex(/^RA[0-9]{6}$/, "must be a code of GLEIF's list of registration authorities: RA and six digits")
      .optional(),
    /** A host name, or a url with it. */
    domain: boundedText(300)
      .regex(HOST_PATTERN, "must be a host name such as example.com, in its ASCII form")
      .optional(),
    name: boundedText(300).optional(),
    names: Names.optional(),
    /**
     * ISO 3166-1 alpha-2 code of the company's jurisdiction, legal address or headquarters. It does not limit matches
     * by LEI or domain.
     */
    country: boundedText(2)
      .toUpperCase()
      .regex(/^[A-Z]{2}$/, "must be two letters (ISO 3166-1)")
      .optional(),
    /**
     * Least score of the best match, {@link MIN_CERTAINTY} to 1 (default {@link DEFAULT_CERTAINTY}). If no match has
     * that score, there is no answer, and nothing is charged.
     */
    certainty: z
      .number({ error: CERTAINTY_MESSAGE })
      .min(MIN_CERTAINTY, CERTAINTY_MESSAGE)
      .max(1, CERTAINTY_MESSAGE)
      .optional(),
    limit: z.int({ error: LIMIT_MESSAGE }).min(1, LIMIT_MESSAGE).max(MAX_MATCHES, LIMIT_MESSAGE).optional(),
  })
  .superRefine(({ names, register_authority, ...asked }, context) => {
    const givenMembers = ONE_COMPANY_MEMBERS.filter((member) => asked[member] !== undefined);
    if (names === undefined && givenMembers.length === 0) {
      context.addIssue({ code: "custom", message: `must have one of ${ONE_COMPANY_MEMBERS.join(", ")} and names` });
    }
    for (const member of names === undefined ? [] : givenMembers) {
      const message = "is asked of one company: send it without names";
      context.addIssue({ code: "custom", path: [member], message });
    }
    if (register_authority !== undefined && asked.register_number === undefined) {
      const message = "is asked only together with register_number";
      context.addIssue({ code: "custom", path: ["register_authority"], message });
    }
  })
  .meta(
    refusalSchema(
      forbidsAll(...ONE_COMPANY_MEMBERS, "names"),
      ...ONE_COMPANY_MEMBERS.map((member) => requiresAll("names", member)),
      {
        ...requiresAll("register_authority"),
        ...forbidsAll("register_number"),
      },
    ),
  );
export type CompaniesQuestion = z.infer<typeof CompaniesQuestion>;

const NullableText = z.string().nullable();
const Address = z.strictObject({
  /** Street, number and further lines, as GLEIF (the publisher of the register) has them; empty if it has none. */
  lines: z.array(z.string()),
  country: NullableText,
  city: NullableText,
  postal_code: NullableText,
});

const ParentKind = z.enum(["direct", "ultimate"]);

const CompanyFound = z.strictObject({
  lei: z.string(),
  name: z.string(),
  /** Trading names, former names, other spellings. */
  other_names: z.array(z.string()),
  /** ISO 3166-1, or 3166-2 where a part of a country has its own law. */
  jurisdiction: NullableText,
  /** ELF code (ISO 20275), or words where there is no code. */
  legal_form: z.strictObject({ elf: NullableText, says: NullableText }),
  register: z.strictObject({ authority: NullableText, number: NullableText }),
  legal_address: Address,
  headquarters: Address,
  /** Status of the company, from GLEIF: ACTIVE or INACTIVE. */
  entity_status: NullableText,
  /** When and why the company ended (DISSOLVED, CORPORATE_ACTION, ...). */
  ended: z.strictObject({ at: NullableText, reason: NullableText }).nullable(),
  /** Companies that continue the company after its end. */
  successors: z.strictObject({ leis: z.array(z.string()), names: z.array(z.string()) }),
  /**
   * Parents that consolidate the company's accounts, as the company reported them: the direct and the ultimate one.
   * Nothing is concluded from parents of parents. null: this register holds no relationship records.
   */
  parents: z
    .array(
      z.strictObject({
        kind: ParentKind,
        lei: z.string(),
        /** null: the parent is not in this register. */
        name: NullableText,
        /** When the relationship began. */
        since: NullableText,
      }),
    )
    .nullable(),
  /** Parents that the company does not report, with GLEIF's reasons. null: this register holds no such exceptions. */
  parents_not_reported: z
    .array(z.strictObject({ kind: ParentKind, reasons: z.array(z.string()), says: z.string() }))
    .nullable(),
  /** Status of the LEI: ISSUED, LAPSED, RETIRED, ... */
  registration_status: NullableText,
  last_update: NullableText,
  /** Domains of the company, from a file of this service's operator, since GLEIF publishes none. */
  domains: z.array(z.string()),
});

/** Matches, best first. The first is at least as certain as was asked, later ones may be less certain. */
const MatchesFound = z.array(
  z.strictObject({
    reasons: z.array(z.strictObject({ reason: z.enum(REASONS), says: z.string() })),
    /** 0 to 1; 1 for a matching id or an equal name. */
    score: z.number(),
    company: CompanyFound,
  }),
);

export const CompaniesAnswer = z.strictObject({
  schema: z.literal("svc.companies.v1"),
  /** The register that was searched, and its age. */
  register: z.strictObject({
    source: z.string(),
    imported_at: z.string(),
    newest_update: NullableText,
    companies: z.int(),
    domains: z.int(),
    /** Number of reported parents; null: GLEIF's file of them was not imported. */
    relationships: z.int().nullable(),
    /** Number of reasons why parents are not reported; null: GLEIF's file of them was not imported. */
    exceptions: z.int().nullable(),
  }),
  /** Least score that the best match had to have; for a question with `names`, the best match of each name. */
  certainty: z.number(),
  /** The matches of a question about one company. */
  matches: MatchesFound.optional(),
  /** Whether there are more matches than the question's `limit`. */
  more: z.boolean().optional(),
  /** The results of a question with `names`: one for each name, in their order. */
  results: z.array(z.strictObject({ name: z.string(), matches: MatchesFound, more: z.boolean() })).optional(),
  answered_at: z.string(),
});
export type CompaniesAnswer = z.infer<typeof CompaniesAnswer>;
/** A match as an answer shows it. */
export type MatchFound = z.infer<typeof MatchesFound>[number];
