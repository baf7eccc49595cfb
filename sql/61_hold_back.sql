-- Records of archived days that are being loaded go to the waiting room: after a rebuild or a compaction nearly all of them
-- are in the archive already, and a row must not stand in two places. They are in no total yet.
-- grain: held = one record
-- reads: temp stage, archived_day
-- writes: late, event, temp stage, temp touched, temp held
CREATE OR REPLACE TEMP TABLE held AS
SELECT s.* REPLACE (coalesce(s.key, s.cap) AS key) FROM stage s JOIN archived_day a ON a.type = s.type AND a.day = s.observed_at::DATE;
SET VARIABLE held_since = (SELECT min(observed_at) FROM held);
SET VARIABLE held_until = (SELECT max(observed_at) FROM held);
INSERT INTO late BY NAME FROM held ANTI JOIN late USING (event_id, key);
DELETE FROM event WHERE observed_at BETWEEN getvariable('held_since') AND getvariable('held_until')
  AND (topic, part, log_offset) IN (SELECT (topic, part, log_offset) FROM held);
DELETE FROM stage WHERE (topic, part, log_offset) IN (SELECT (topic, part, log_offset) FROM held);
CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT cap FROM stage WHERE topic <> 'asks' AND type <> 'paid.commitment';
