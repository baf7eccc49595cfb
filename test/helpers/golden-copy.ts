import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { finished } from "node:stream/promises";

const FIVE = [1, 2, 3, 4, 5];
const address = (group: string): string[] =>
  [
    "xmllang",
    "FirstAddressLine",
    "AddressNumber",
    "AddressNumberWithinBuilding",
    "MailRouting",
    "AdditionalAddressLine.1",
    "AdditionalAddressLine.2",
    "AdditionalAddressLine.3",
    "City",
    "Region",
    "Country",
    "PostalCode",
  ].map((part) => `${group}.${part}`);
const names = (group: string, one: string): string[] =>
  FIVE.flatMap((n) => ["", ".xmllang", ".type"].map((end) => `Entity.${group}.${one}.${n}${end}`));

/** Columns of the golden copy's CSV (LEI-CDF 3.1, level 1) by their names, in groups as they stand there. */
export const COLUMNS: readonly string[] = [
  "LEI",
  "Entity.LegalName",
  "Entity.LegalName.xmllang",
  ...names("OtherEntityNames", "OtherEntityName"),
  ...names("TransliteratedOtherEntityNames", "TransliteratedOtherEntityName"),
  ...address("Entity.LegalAddress"),
  ...address("Entity.HeadquartersAddress"),
  ...["OtherAddresses.OtherAddress", "TransliteratedOtherAddresses.TransliteratedOtherAddress"].flatMap((group) =>
    FIVE.flatMap((n) => [`Entity.${group}.${n}.type`, ...address(`Entity.${group}.${n}`)]),
  ),
  "Entity.RegistrationAuthority.RegistrationAuthorityID",
  "Entity.RegistrationAuthority.OtherRegistrationAuthorityID",
  "Entity.RegistrationAuthority.RegistrationAuthorityEntityID",
  "Entity.LegalJurisdiction",
  "Entity.EntityCategory",
  "Entity.EntitySubCategory",
  "Entity.LegalForm.EntityLegalFormCode",
  "Entity.LegalForm.OtherLegalForm",
  "Entity.EntityStatus",
  "Entity.EntityCreationDate",
  "Entity.EntityExpirationDate",
  "Entity.EntityExpirationReason",
  ...FIVE.flatMap((n) => ["SuccessorEntityName", "SuccessorLEI"].map((end) => `Entity.SuccessorEntity.${n}.${end}`)),
  ...FIVE.flatMap((n) =>
    ["LegalEntityEventType", "event_status", "LegalEntityEventEffectiveDate", "LegalEntityEventRecordedDate"].map(
      (end) => `Entity.LegalEntityEvents.LegalEntityEvent.${n}.${end}`,
    ),
  ),
  "Registration.InitialRegistrationDate",
  "Registration.LastUpdateDate",
  "Registration.RegistrationStatus",
  "Registration.NextRenewalDate",
  "Registration.ManagingLOU",
  "Registration.ValidationSources",
  "Registration.ValidationAuthority.ValidationAuthorityID",
  "Registration.ValidationAuthority.OtherValidationAuthorityID",
  "Registration.ValidationAuthority.ValidationAuthorityEntityID",
  "ConformityFlag",
];

const PLACE = new Map(COLUMNS.map((column, i) => [column, i]));
const EMPTY = COLUMNS.map(() => '""');

/** One line of the file, every value quoted as there; columns that are not named are empty. */
export function lineOf(row: Readonly<Record<string, string>>): string {
  const values = EMPTY.slice();
  for (const column of Object.keys(row)) values[PLACE.get(column)!] = `"${row[column]!.replaceAll('"', '""')}"`;
  return `${values.join(",")}\n`;
}

export const HEADER = `${COLUMNS.map((column) => `"${column}"`).join(",")}\n`;

const COMMON = "capital fund holdings global trust bank invest energy services international real estate group".split(
  " ",
);
const FORMS: readonly (readonly [string, string, string])[] = [
  ["DE", "GmbH", "RA000242"],
  ["GB", "LIMITED", "RA000585"],
  ["US-DE", "LLC", "RA000602"],
  ["FR", "SAS", "RA000189"],
  ["IT", "S.r.l.", "RA000407"],
  ["NL", "B.V.", "RA000463"],
  ["SE", "AB", "RA000544"],
  ["IN", "PRIVATE LIMITED", "RA000394"],
];
const SYLLABLES =
  "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu bran ster mond lein quar tes vik nor".split(" ");

/** Numbers from a seed (mulberry32), so that the same file is made on every machine. */
function drawn(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4_294_967_296) * below);
  };
}

/** The two check digits of the first 18 characters of a LEI (ISO 17442): letters are 10 to 35, and the whole is 1 by 97. */
export function checkDigitsOf(base: string): string {
  const number = [...`${base}00`].map((character) => Number.parseInt(character, 36)).join("");
  return String(98n - (BigInt(number) % 97n)).padStart(2, "0");
}

/** The i-th invented company: its LEI holds, its name is of drawn words, some of them as common as in the real file. */
export function inventedRow(i: number): Record<string, string> {
  const draw = drawn(i + 1);
  const word = (): string => {
    const text = Array.from({ length: 2 + draw(3) }, () => SYLLABLES[draw(SYLLABLES.length)]).join("");
    return text[0]!.toUpperCase() + text.slice(1);
  };
  const [jurisdiction, form, authority] = FORMS[draw(FORMS.length)]!;
  const parts = [word(), ...(draw(2) ? [word()] : []), ...(draw(3) ? [COMMON[draw(COMMON.length)]!] : []), form];
  const base = `${(100_000 + draw(800)).toString().slice(0, 4)}00${i.toString(36).toUpperCase().padStart(12, "0")}`;
  const country = jurisdiction.slice(0, 2);
  const city = word();
  const postal = String(10_000 + draw(89_999));
  return {
    LEI: `${base}${checkDigitsOf(base)}`,
    "Entity.LegalName": parts.join(" "),
    "Entity.LegalName.xmllang": "en",
    ...(draw(4) === 0 ? { "Entity.OtherEntityNames.OtherEntityName.1": `${word()} ${word()} ${form}` } : {}),
    "Entity.LegalAddress.xmllang": "en",
    "Entity.LegalAddress.FirstAddressLine": `${word()} Street ${draw(300)}`,
    "Entity.LegalAddress.City": city,
    "Entity.LegalAddress.Country": country,
    "Entity.LegalAddress.PostalCode": postal,
    "Entity.HeadquartersAddress.xmllang": "en",
    "Entity.HeadquartersAddress.FirstAddressLine": `${word()} Street ${draw(300)}`,
    "Entity.HeadquartersAddress.City": city,
    "Entity.HeadquartersAddress.Country": country,
    "Entity.HeadquartersAddress.PostalCode": postal,
    "Entity.RegistrationAuthority.RegistrationAuthorityID": authority,
    "Entity.RegistrationAuthority.RegistrationAuthorityEntityID": `${country === "DE" ? "HRB " : ""}${i + 1_000}`,
    "Entity.LegalJurisdiction": jurisdiction,
    "Entity.EntityCategory": "GENERAL",
    "Entity.LegalForm.EntityLegalFormCode": "2HBR",
    "Entity.EntityStatus": draw(20) ? "ACTIVE" : "INACTIVE",
    "Registration.InitialRegistrationDate": "2019-05-02T00:00:00Z",
    "Registration.LastUpdateDate": `2026-${String(1 + draw(10)).padStart(2, "0")}-11T08:30:00Z`,
    "Registration.RegistrationStatus": draw(3) ? "ISSUED" : "LAPSED",
    "Registration.NextRenewalDate": "2027-05-02T00:00:00Z",
    "Registration.ManagingLOU": "5299000J2N45DDNE4Y28",
    "Registration.ValidationSources": "FULLY_CORROBORATED",
    "Registration.ValidationAuthority.ValidationAuthorityID": authority,
  };
}

/** A file of so many invented companies in the layout of the golden copy, a line each. */
export async function inventGoldenCopy(path: string, rows: number): Promise<void> {
  const out = createWriteStream(path, { highWaterMark: 1 << 22 });
  out.write(HEADER);
  for (let from = 0; from < rows; from += 2_000) {
    let text = "";
    for (let i = from; i < Math.min(from + 2_000, rows); i++) text += lineOf(inventedRow(i));
    if (!out.write(text)) await once(out, "drain");
  }
  out.end();
  await finished(out);
}

const RELATION = [
  ...["StartNode.NodeID", "StartNode.NodeIDType", "EndNode.NodeID", "EndNode.NodeIDType"],
  ...["RelationshipType", "RelationshipStatus", "Period.1.startDate", "Period.1.endDate", "Period.1.periodType"],
].map((end) => `Relationship.${end}`);

/** Both files of level 2 for so many invented companies: every fifth has both parents, the others say why they have none. */
export async function inventLevel2(relationships: string, exceptions: string, rows: number): Promise<void> {
  const [rr, repex] = [relationships, exceptions].map((path) => createWriteStream(path, { highWaterMark: 1 << 22 }));
  rr!.write(`"${[...RELATION, "Registration.RegistrationStatus", "Registration.LastUpdateDate"].join('","')}"\n`);
  repex!.write('"LEI","Exception.Category","Exception.Reason.1"\n');
  for (let i = 0; i < rows; i++) {
    const child = inventedRow(i).LEI!;
    const parent = inventedRow(Math.floor(i / 10)).LEI!;
    let drained = true;
    for (const kind of ["DIRECT", "ULTIMATE"]) {
      const [row, out] =
        i % 5 === 4
          ? [
              `"${child}","LEI","${parent}","LEI","IS_${kind}LY_CONSOLIDATED_BY","ACTIVE","2019-05-02T00:00:00Z","","RELATIONSHIP_PERIOD","PUBLISHED","2026-05-02T00:00:00Z"\n`,
              rr!,
            ]
          : [`"${child}","${kind}_ACCOUNTING_CONSOLIDATION_PARENT","NATURAL_PERSONS"\n`, repex!];
      drained = out.write(row) && drained;
    }
    if (!drained) await Promise.all([rr!, repex!].map((out) => (out.writableNeedDrain ? once(out, "drain") : null)));
  }
  for (const out of [rr!, repex!]) out.end();
  await Promise.all([finished(rr!), finished(repex!)]);
}
