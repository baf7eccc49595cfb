-- Of each shape that cut bodies share one hash that was cut out of some: most of them have the same.
-- grain: one shape
-- reads: temp archive_source
-- writes: temp archive_usual
CREATE OR REPLACE TEMP TABLE archive_usual AS
SELECT shape AS id, any_value(sha) AS sha FROM archive_source WHERE body IS NULL GROUP BY shape
