-- name: none
-- Creates the tables of parent companies, which stay empty unless the files of GLEIF's level 2 are read.
-- grain: none
-- reads: nothing
-- writes: temporary relation and reporting_exception
CREATE OR REPLACE TEMP TABLE relation (child VARCHAR, kind VARCHAR, parent VARCHAR, since VARCHAR);
CREATE OR REPLACE TEMP TABLE reporting_exception (lei VARCHAR, kind VARCHAR, reasons VARCHAR[]);

-- name: read_relations
-- Reads GLEIF's relationship records (RR-CDF 2.1, level 2, as CSV). A row has up to five periods: one is the period of
-- the relationship, the others are those of accounting and documents.
-- grain: one row of the file
-- reads: $file
-- writes: temporary relation_read, temporary relation_errors and relation_scans
CREATE OR REPLACE TEMP TABLE relation_read AS
SELECT "Relationship.StartNode.NodeID" AS child, "Relationship.EndNode.NodeID" AS parent, "Relationship.EndNode.NodeIDType" AS parent_type,
  CASE "Relationship.RelationshipType" WHEN 'IS_DIRECTLY_CONSOLIDATED_BY' THEN 'direct' WHEN 'IS_ULTIMATELY_CONSOLIDATED_BY' THEN 'ultimate' END
    AS kind,
  "Relationship.RelationshipType" AS type, "Relationship.RelationshipStatus" AS status, "Registration.RegistrationStatus" AS registration,
  list_value(*COLUMNS('^Relationship\.Period\.\d+\.periodType$')) AS periods,
  list_value(*COLUMNS('^Relationship\.Period\.\d+\.startDate$')) AS starts,
  try_cast("Registration.LastUpdateDate" AS TIMESTAMPTZ) AT TIME ZONE 'UTC' AS updated
FROM read_csv($file, header = TRUE, all_varchar = TRUE, delim = ',', quote = '"', escape = '"', sample_size = 2048,
  store_rejects = TRUE, rejects_table = 'relation_errors', rejects_scan = 'relation_scans', rejects_limit = 0);

-- name: refuse_relations
-- The relationship records that are not stored, each with the reason, such as another relationship (of funds and
-- branches) or one that has ended. A company has one parent of each kind: of several rows, the one that was updated
-- last is stored.
-- grain: one row of the file that is not stored
-- reads: relation_read, row_read, refused
-- writes: temporary relation_refused
CREATE OR REPLACE TEMP TABLE relation_refused AS
WITH judged AS (
  SELECT r.rowid AS place, r.*, CASE
    WHEN kind IS NULL THEN 'other_kind'
    WHEN coalesce(status, '') <> 'ACTIVE' OR coalesce(registration, '') NOT IN ('PUBLISHED', 'LAPSED', 'PENDING_TRANSFER', 'PENDING_ARCHIVAL')
      THEN 'ended'
    WHEN coalesce(parent_type, '') <> 'LEI' OR NOT coalesce(regexp_full_match(parent, '[0-9A-Z]{18}[0-9]{2}'), FALSE) THEN 'no_lei'
    WHEN NOT lei_holds(parent) THEN 'check_digits'
    WHEN child = parent THEN 'itself'
    WHEN child IS NULL OR child NOT IN (SELECT w.lei FROM row_read w ANTI JOIN refused f ON f.place = w.rowid) THEN 'no_company' END AS reason
  FROM relation_read r),
 again AS (
  SELECT place FROM judged WHERE reason IS NULL
  QUALIFY row_number() OVER (PARTITION BY child, kind ORDER BY updated DESC NULLS LAST, place DESC) > 1)
SELECT place, example_of(child, type) || ' ' || coalesce(left(parent, 40), '') AS example, reason FROM judged WHERE reason IS NOT NULL
UNION ALL SELECT j.place, example_of(j.child, j.type) || ' ' || coalesce(left(j.parent, 40), ''), 'again' FROM judged j SEMI JOIN again USING (place);

-- name: counted_relations
-- How many relationship records were not stored, for each reason.
-- grain: one reason; examples = at most five
-- reads: relation_refused, relation_errors
-- writes: nothing
FROM refusals('relation_refused', 'relation_errors') ORDER BY reason;

-- name: keep_relations
-- Stores the reported parents; `since` = beginning of the relationship.
-- grain: one kind of parent of one company
-- reads: relation_read, relation_refused
-- writes: temporary relation; drops relation_read and relation_refused
INSERT INTO relation
SELECT child, kind, parent, nullif(starts[list_position(periods, 'RELATIONSHIP_PERIOD')], '') FROM relation_read r ANTI JOIN relation_refused f ON f.place = r.rowid;
DROP TABLE relation_read;
DROP TABLE relation_refused;

-- name: read_exceptions
-- Reads GLEIF's reporting exceptions (format 2.1, level 2, as CSV): why a company reports no parent of a kind.
-- grain: one row of the file
-- reads: $file
-- writes: temporary exception_read, temporary exception_errors and exception_scans
CREATE OR REPLACE TEMP TABLE exception_read AS
SELECT "LEI" AS lei, "Exception.Category" AS category,
  CASE "Exception.Category" WHEN 'DIRECT_ACCOUNTING_CONSOLIDATION_PARENT' THEN 'direct'
    WHEN 'ULTIMATE_ACCOUNTING_CONSOLIDATION_PARENT' THEN 'ultimate' END AS kind,
  list_filter(list_value(*COLUMNS('^Exception\.Reason\.\d+$')), lambda x: trim(x) <> '') AS reasons
FROM read_csv($file, header = TRUE, all_varchar = TRUE, delim = ',', quote = '"', escape = '"', sample_size = 2048,
  store_rejects = TRUE, rejects_table = 'exception_errors', rejects_scan = 'exception_scans', rejects_limit = 0);

-- name: refuse_exceptions
-- The exceptions that are not stored, each with the reason. Of several exceptions of one company and kind, the last
-- row is stored.
-- grain: one row of the file that is not stored
-- reads: exception_read, row_read, refused
-- writes: temporary exception_refused
CREATE OR REPLACE TEMP TABLE exception_refused AS
WITH judged AS (
  SELECT r.rowid AS place, r.*, CASE
    WHEN kind IS NULL THEN 'other_kind'
    WHEN len(reasons) = 0 THEN 'no_reason'
    WHEN lei IS NULL OR lei NOT IN (SELECT w.lei FROM row_read w ANTI JOIN refused f ON f.place = w.rowid) THEN 'no_company' END AS reason
  FROM exception_read r),
 again AS (
  SELECT place FROM judged WHERE reason IS NULL QUALIFY row_number() OVER (PARTITION BY lei, kind ORDER BY place DESC) > 1)
SELECT place, example_of(lei, category) AS example, reason FROM judged WHERE reason IS NOT NULL
UNION ALL SELECT j.place, example_of(j.lei, j.category), 'again' FROM judged j SEMI JOIN again USING (place);

-- name: counted_exceptions
-- How many reporting exceptions were not stored, for each reason.
-- grain: one reason; examples = at most five
-- reads: exception_refused, exception_errors
-- writes: nothing
FROM refusals('exception_refused', 'exception_errors') ORDER BY reason;

-- name: keep_exceptions
-- Stores the reasons why a company reports no parent of a kind.
-- grain: one kind of parent of one company
-- reads: exception_read, exception_refused
-- writes: temporary reporting_exception; drops exception_read and exception_refused
INSERT INTO reporting_exception
SELECT lei, kind, reasons FROM exception_read r ANTI JOIN exception_refused f ON f.place = r.rowid;
DROP TABLE exception_read;
DROP TABLE exception_refused;
