-- Endpoints whose volatile row may differ from the one that was written last. A lake that is loaded anew has all of them here.
-- grain: one capability with news since it was taken
-- reads: nothing
-- writes: stale
CREATE TABLE IF NOT EXISTS stale (cap VARCHAR);
