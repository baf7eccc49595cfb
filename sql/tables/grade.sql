-- The table that grading keeps between runs: a run replaces the rows of the endpoints that it grades and leaves the others.
-- grain: thefts = one endpoint that took money and delivered nothing within its window
-- reads: nothing
-- writes: thefts
CREATE TABLE IF NOT EXISTS thefts (cap VARCHAR, pay_to VARCHAR, domain VARCHAR, blocks INTEGER, last TIMESTAMP);
