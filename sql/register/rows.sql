-- name: read
-- Reads the golden copy, GLEIF's file of all LEIs (LEI-CDF 3.1, level 1, as CSV), with the engine's CSV reader, which
-- writes lines that it cannot read to its reject tables.
-- grain: one row of the file
-- reads: $file
-- writes: temporary row_read, temporary reject_errors and reject_scans
CREATE OR REPLACE TEMP TABLE row_read AS
SELECT "LEI" AS lei, trim("Entity.LegalName") AS name,
  list_filter(list_value(*COLUMNS('^Entity\.(Transliterated)?OtherEntityNames\.(Transliterated)?OtherEntityName\.\d+$')), lambda x: trim(x) <> '')
    AS names,
  "Entity.LegalJurisdiction" AS jurisdiction, "Entity.LegalForm.EntityLegalFormCode" AS form_code,
  "Entity.LegalForm.OtherLegalForm" AS form_text,
  "Entity.RegistrationAuthority.RegistrationAuthorityID" AS authority,
  "Entity.RegistrationAuthority.RegistrationAuthorityEntityID" AS register_number,
  list_filter(list_value("Entity.LegalAddress.FirstAddressLine", *COLUMNS('^Entity\.LegalAddress\.AdditionalAddressLine\.\d$')), lambda x: trim(x) <> '')
    AS legal_lines,
  list_filter(list_value("Entity.HeadquartersAddress.FirstAddressLine", *COLUMNS('^Entity\.HeadquartersAddress\.AdditionalAddressLine\.\d$')), lambda x: trim(x) <> '')
    AS hq_lines,
  "Entity.LegalAddress.Country" AS legal_country, "Entity.LegalAddress.City" AS legal_city,
  "Entity.LegalAddress.PostalCode" AS legal_postal_code,
  "Entity.HeadquartersAddress.Country" AS hq_country, "Entity.HeadquartersAddress.City" AS hq_city,
  "Entity.HeadquartersAddress.PostalCode" AS hq_postal_code,
  list_filter(list_value(*COLUMNS('^Entity\.SuccessorEntity\.\d+\.SuccessorLEI$')), lambda x: trim(x) <> '') AS successors,
  list_filter(list_value(*COLUMNS('^Entity\.SuccessorEntity\.\d+\.SuccessorEntityName$')), lambda x: trim(x) <> '') AS successor_names,
  list_extract(list_value(*COLUMNS('^Entity\.EntityExpirationDate$')), 1) AS expired,
  list_extract(list_value(*COLUMNS('^Entity\.EntityExpirationReason$')), 1) AS expired_why,
  "Entity.EntityStatus" AS status, "Registration.RegistrationStatus" AS registration,
  try_cast("Registration.LastUpdateDate" AS TIMESTAMPTZ) AT TIME ZONE 'UTC' AS updated
FROM read_csv($file, header = TRUE, all_varchar = TRUE, delim = ',', quote = '"', escape = '"', sample_size = 2048,
  store_rejects = TRUE, rejects_limit = 0);

-- name: refuse
-- The rows that are not stored, each with the reason. Of several rows with one LEI, the one that was updated last is
-- stored.
-- grain: one row of the file that is not stored
-- reads: row_read
-- writes: temporary refused
CREATE OR REPLACE TEMP TABLE refused AS
WITH judged AS (
  SELECT rowid AS place, lei, name, CASE
    WHEN NOT coalesce(regexp_full_match(lei, '[0-9A-Z]{18}[0-9]{2}'), FALSE) THEN 'no_lei'
    WHEN NOT lei_holds(lei) THEN 'check_digits'
    WHEN coalesce(name, '') = '' THEN 'no_name' END AS reason, updated FROM row_read),
 again AS (
  SELECT place FROM judged WHERE reason IS NULL
    AND lei IN (SELECT lei FROM judged WHERE reason IS NULL GROUP BY lei HAVING count(*) > 1)
  QUALIFY row_number() OVER (PARTITION BY lei ORDER BY updated DESC NULLS LAST, place DESC) > 1)
SELECT place, example_of(lei, name) AS example, reason FROM judged WHERE reason IS NOT NULL
UNION ALL SELECT j.place, example_of(j.lei, j.name), 'again' FROM judged j SEMI JOIN again USING (place);

-- name: counted
-- How many rows were not stored, for each reason: refused rows, and lines that the engine's reader could not read.
-- grain: one reason; examples = at most five, in the order of the file
-- reads: refused, reject_errors
-- writes: nothing
FROM refusals('refused', 'reject_errors') ORDER BY reason;

-- name: keep
-- Stores the companies in the order of their LEIs, so that a query by LEI reads only one block: the engine knows the
-- smallest and the greatest value of each block. The table is uncompressed and has an index, since reading a row by
-- its number then takes 0.1 ms, and 20 ms if the row's block must be decompressed. For the same speed, a company's
-- parents are columns of its row. The name of a parent is the one in the parent's own row.
-- grain: one company; number = its place in that order
-- reads: row_read, refused, relation, reporting_exception
-- writes: company; drops row_read, refused, relation and reporting_exception
PRAGMA force_compression = 'uncompressed';
CREATE TABLE company AS
WITH kept AS (SELECT r.* FROM row_read r ANTI JOIN refused f ON f.place = r.rowid),
 named AS (SELECT r.child, r.kind, r.parent, k.name, r.since FROM relation r LEFT JOIN kept k ON k.lei = r.parent)
SELECT row_number() OVER (ORDER BY k.lei)::INTEGER AS number, k.* REPLACE (
  nullif(form_code, '') AS form_code, nullif(form_text, '') AS form_text, nullif(authority, '') AS authority,
  nullif(trim(register_number), '') AS register_number),
  d.parent AS direct_lei, d.name AS direct_name, d.since AS direct_since, xd.reasons AS direct_reasons,
  u.parent AS ultimate_lei, u.name AS ultimate_name, u.since AS ultimate_since, xu.reasons AS ultimate_reasons
FROM kept k
LEFT JOIN named d ON d.child = k.lei AND d.kind = 'direct' LEFT JOIN named u ON u.child = k.lei AND u.kind = 'ultimate'
LEFT JOIN reporting_exception xd ON xd.lei = k.lei AND xd.kind = 'direct'
LEFT JOIN reporting_exception xu ON xu.lei = k.lei AND xu.kind = 'ultimate' ORDER BY k.lei;
CREATE INDEX company_number ON company (number);
CHECKPOINT;
PRAGMA force_compression = 'auto';
DROP TABLE row_read;
DROP TABLE refused;
DROP TABLE relation;
DROP TABLE reporting_exception;
