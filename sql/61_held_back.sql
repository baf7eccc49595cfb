-- Are records of archived days among those that are being loaded?
-- grain: one row when there are
-- reads: temp stage, archived_day
-- writes: nothing
SELECT 1 AS held FROM stage s JOIN archived_day a ON a.type = s.type AND a.day = s.observed_at::DATE LIMIT 1
