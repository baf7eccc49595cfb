-- What records of one endpoint and shape come to, counted where the rows came from in one look at them; and of each shape
-- that cut bodies share one hash that was cut out of some: most of them have the same. Some archive_cut
-- bytes were cut out of each.
-- grain: archive_alike = one (capability, shape), look = a checksum of the ids, knowing no order,
--   digest = of the same, where one was asked for;
--   archive_usual = one shape
-- reads: temp archive_source; the variables archive_cut, archive_digested
-- writes: temp archive_alike, temp archive_usual
CREATE OR REPLACE TEMP TABLE archive_alike AS
SELECT cap, shape, count(*) AS n, sum(coalesce(strlen(body), getvariable('archive_cut'))) AS bytes,
  bit_xor(CASE WHEN getvariable('archive_digested') THEN md5_number(event_id) END) AS digest, bit_xor(hash(event_id)) AS look,
  any_value(sha) AS sha
FROM archive_source GROUP BY cap, shape;
CREATE OR REPLACE TEMP TABLE archive_usual AS
SELECT shape AS id, any_value(sha) AS sha FROM archive_alike WHERE shape IS NOT NULL GROUP BY shape
