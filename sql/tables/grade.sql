-- What grading keeps between runs: a run replaces the rows of the endpoints it grades, and never reads the others.
-- grain: thefts = one endpoint that took money, and whose theft lies in its window
-- reads: nothing
-- writes: thefts
CREATE TABLE IF NOT EXISTS thefts (cap VARCHAR, pay_to VARCHAR, domain VARCHAR, blocks INTEGER, last TIMESTAMP);
