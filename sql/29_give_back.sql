-- Partitions that another process owns now: their rows leave the lake. A row of a capability is in the capability's
-- partition; what the topic `asks` brought is made again from the events that stay.
-- grain: one partition
-- reads: the variable `given`, a JSON object {given: partitions, held: partitions, shift: 6 - log2 of the log's partitions}
-- writes: every table of the lake but shape, endpoint, asked, looked and demand; temp given_back, temp still_held, temp part_of
-- bucket = first 6 bits of sha256(key), partition = its first bits (records.md)
CREATE OR REPLACE TEMP MACRO part_of(key) AS
  ((('0x' || sha256(key)[1:2])::INTEGER >> 2) >> json_extract(getvariable('given'), '$.shift')::INTEGER)::USMALLINT;
CREATE OR REPLACE TEMP TABLE given_back AS
SELECT unnest(from_json(json_extract(getvariable('given'), '$.given'), '["USMALLINT"]')) AS part;
CREATE OR REPLACE TEMP TABLE still_held AS
SELECT unnest(from_json(json_extract(getvariable('given'), '$.held'), '["USMALLINT"]')) AS part;

DELETE FROM late WHERE part IN (FROM given_back);
DELETE FROM withdrawn WHERE obs_id IN (SELECT obs_id FROM withdrawal WHERE part_of(cap) IN (FROM given_back));
DELETE FROM withdrawal WHERE part_of(cap) IN (FROM given_back);
DELETE FROM samples WHERE part_of(cap) IN (FROM given_back);
DELETE FROM paid_intent WHERE part_of(cap) IN (FROM given_back);
DELETE FROM paid_result WHERE part_of(cap) IN (FROM given_back);
DELETE FROM settlement WHERE part_of(cap) IN (FROM given_back);
DELETE FROM paid_followup WHERE part_of(cap) IN (FROM given_back);
DELETE FROM commitment_open WHERE part_of(cap) IN (FROM given_back);
DELETE FROM listing WHERE part_of(cap) IN (FROM given_back);
DELETE FROM correction WHERE part_of(cap) IN (FROM given_back);
DELETE FROM reinstated WHERE part_of(cap) IN (FROM given_back);
DELETE FROM dispute WHERE part_of(cap) IN (FROM given_back);
DELETE FROM said WHERE part IN (FROM given_back);
DELETE FROM site WHERE part_of(cap) IN (FROM given_back);
DELETE FROM dirty WHERE part_of(cap) IN (FROM given_back);
DELETE FROM stale WHERE part_of(cap) IN (FROM given_back);
DELETE FROM seen WHERE part_of(cap) IN (FROM given_back);
DELETE FROM quoted WHERE part_of(cap) IN (FROM given_back);
DELETE FROM thefts WHERE part_of(cap) IN (FROM given_back);
DELETE FROM event WHERE part IN (FROM given_back);
DELETE FROM late WHERE part IN (FROM given_back);
DELETE FROM archived WHERE part IN (FROM given_back);
DELETE FROM loaded WHERE part IN (FROM given_back);
DELETE FROM positions WHERE part IN (FROM given_back);
