-- The table that grading keeps between runs. A run replaces the rows of the endpoints that it grades, and does not
-- change the others.
-- grain: thefts = one endpoint that took money and delivered nothing within its window
-- reads: nothing
-- writes: thefts
CREATE TABLE IF NOT EXISTS thefts (cap VARCHAR, pay_to VARCHAR, domain VARCHAR, blocks INTEGER, last TIMESTAMP);
