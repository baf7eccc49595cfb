-- name: table
-- Creates the table of the companies' domains.
-- grain: one host of one company
-- reads: nothing
-- writes: domain
CREATE TABLE domain (host VARCHAR, number INTEGER);

-- name: read
-- Reads the operator's own file of domains: one pair `lei,domain` a line.
-- grain: one line
-- reads: $file
-- writes: temporary domain_read, temporary domain_errors and domain_scans
CREATE OR REPLACE TEMP TABLE domain_read AS
SELECT trim(lei) AS lei, domain AS text, nullif(host_of(domain), '') AS host
FROM read_csv($file, header = TRUE, all_varchar = TRUE, delim = ',', quote = '"', escape = '"', sample_size = 2048,
  store_rejects = TRUE, rejects_table = 'domain_errors', rejects_scan = 'domain_scans', rejects_limit = 0);

-- name: keep
-- Stores the hosts of the companies. Several companies, such as those of a group, may have the same host.
-- grain: one host of one company
-- reads: domain_read, company
-- writes: domain
INSERT INTO domain
SELECT DISTINCT r.host, c.number FROM domain_read r JOIN company c USING (lei) WHERE r.host IS NOT NULL ORDER BY r.host, c.number;

-- name: refuse
-- The lines of the file that are not stored, each with the reason.
-- grain: one line of the file that is not stored
-- reads: domain_read, company
-- writes: temporary domain_refused
CREATE OR REPLACE TEMP TABLE domain_refused AS
WITH judged AS (
  SELECT r.rowid AS place, r.lei, r.text, CASE WHEN r.host IS NULL THEN 'no_domain' WHEN c.lei IS NULL THEN 'no_company'
    WHEN row_number() OVER (PARTITION BY r.lei, r.host ORDER BY r.rowid) > 1 THEN 'again' END AS reason
  FROM domain_read r LEFT JOIN company c USING (lei))
SELECT place, example_of(lei, text) AS example, reason FROM judged WHERE reason IS NOT NULL;

-- name: counted
-- How many lines were not stored, for each reason.
-- grain: one reason; examples = at most five
-- reads: domain_refused, domain_errors
-- writes: nothing
FROM refusals('domain_refused', 'domain_errors') ORDER BY reason;
