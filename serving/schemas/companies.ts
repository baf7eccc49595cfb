import { z } from "zod";
import { faultOfLei } from "../../pipelines/register/score.ts";
import { REASONS } from "../../pipelines/register/search.ts";
import { given, noneOf, refusing } from "./common.ts";

/** Most matches in one answer (docs/companies-lookup.md). */
const MAX_MATCHES = 20;

const text = (most: number) =>
  z
    .string({ error: "must be a text" })
    .trim()
    .min(1, "must not be empty")
    .max(most, `must be at most ${most} characters long`);

const Lei = text(40)
  .toUpperCase()
  .superRefine((lei, context) => {
    const fault = faultOfLei(lei);
    if (fault !== null) context.addIssue({ code: "custom", message: fault });
  });

const HOST = /^(?:https?:\/\/)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}\.?(?:[:/].*)?$/i;
/** Score that the best match has at least, unless the question names another. */
export const CERTAINTY = 0.8;
const LEAST_CERTAINTY = 0.5;
const CERTAIN = `must be a number from ${LEAST_CERTAINTY} to 1`;
const LIMIT = `must be a whole number from 1 to ${MAX_MATCHES}`;

/** Body of POST /v1/companies/lookup. Companies that match any of the members are returned. */
export const CompaniesQuestion = z
  .strictObject({
    /** ISO 17442; its check digits are checked. */
    lei: Lei.optional(),
    /** Number in a business register, as it is written: signs and leading zeros make no difference. */
    register_number: text(64).optional(),
    /** GLEIF's code of that business register. */
    register_authority: text(8)
      .toUpperCase()
      .regex(/^RA[0-9]{6}$/, "must be a code of GLEIF's list of registration authorities: RA and six digits")
      .optional(),
    /** A host name, or a url of it. */
    domain: text(300).regex(HOST, "must be a host name such as example.com, in its ASCII form").optional(),
    name: text(300).optional(),
    /**
     * ISO 3166-1 alpha-2, of jurisdiction, legal address or headquarters. It does not limit matches by LEI or domain.
     */
    country: text(2)
      .toUpperCase()
      .regex(/^[A-Z]{2}$/, "must be two letters (ISO 3166-1)")
      .optional(),
    /**
     * Least score of the best match, {@link LEAST_CERTAINTY} to 1 (default {@link CERTAINTY}). With none that good there is no
     * answer, and nothing is charged.
     */
    certainty: z.number({ error: CERTAIN }).min(LEAST_CERTAINTY, CERTAIN).max(1, CERTAIN).optional(),
    limit: z.int({ error: LIMIT }).min(1, LIMIT).max(MAX_MATCHES, LIMIT).optional(),
  })
  .superRefine(({ lei, register_number, register_authority, domain, name }, context) => {
    if ([lei, register_number, domain, name].every((given) => given === undefined)) {
      context.addIssue({ code: "custom", message: "must have one of name, domain, lei and register_number" });
    }
    if (register_authority !== undefined && register_number === undefined) {
      const message = "is asked only together with register_number";
      context.addIssue({ code: "custom", path: ["register_authority"], message });
    }
  })
  .meta(
    refusing(noneOf("name", "domain", "lei", "register_number"), {
      ...given("register_authority"),
      ...noneOf("register_number"),
    }),
  );
export type CompaniesQuestion = z.infer<typeof CompaniesQuestion>;

const Text = z.string().nullable();
const Address = z.strictObject({
  /** Street, number and further lines, as GLEIF publishes them; empty where it says nothing. */
  lines: z.array(z.string()),
  country: Text,
  city: Text,
  postal_code: Text,
});

const CompanyFound = z.strictObject({
  lei: z.string(),
  name: z.string(),
  /** Trading names, former names, other spellings. */
  other_names: z.array(z.string()),
  /** ISO 3166-1, or 3166-2 where a part of a country has its own law. */
  jurisdiction: Text,
  /** ELF code (ISO 20275), or words where there is no code. */
  legal_form: z.strictObject({ elf: Text, says: Text }),
  register: z.strictObject({ authority: Text, number: Text }),
  legal_address: Address,
  headquarters: Address,
  /** ACTIVE or INACTIVE, from GLEIF. */
  entity_status: Text,
  /** When and why it ended (DISSOLVED, CORPORATE_ACTION, ...), and in which companies it went on. */
  ended: z.strictObject({ at: Text, reason: Text }).nullable(),
  successors: z.strictObject({ leis: z.array(z.string()), names: z.array(z.string()) }),
  /** Status of the LEI: ISSUED, LAPSED, RETIRED, ... */
  registration_status: Text,
  last_update: Text,
  /** From the operator's own file: GLEIF publishes none. */
  domains: z.array(z.string()),
});

export const CompaniesAnswer = z.strictObject({
  schema: z.literal("svc.companies.v1"),
  /** The register that was searched, and its age. */
  register: z.strictObject({
    source: z.string(),
    imported_at: z.string(),
    newest_update: Text,
    companies: z.int(),
    domains: z.int(),
  }),
  /** Score that the best match had to have. */
  certainty: z.number(),
  /** Best first; the first is at least as certain as was asked, later ones may be less. */
  matches: z.array(
    z.strictObject({
      reasons: z.array(z.strictObject({ reason: z.enum(REASONS), says: z.string() })),
      /** 0 to 1; 1 for a matching id or an equal name. */
      score: z.number(),
      company: CompanyFound,
    }),
  ),
  /** Whether there are further matches. */
  more: z.boolean(),
  answered_at: z.string(),
});
export type CompaniesAnswer = z.infer<typeof CompaniesAnswer>;
