-- What was asked for: urls that nobody knew, what became of them, and how many clients checked what is known.
-- grain: asked = one ask; looked = one ask that was looked at; demand = one capability of one tally
-- reads: nothing
-- writes: asked, looked, demand
CREATE TABLE IF NOT EXISTS asked (cap VARCHAR, t TIMESTAMP, id VARCHAR, body VARCHAR);
CREATE TABLE IF NOT EXISTS looked (cap VARCHAR, t TIMESTAMP, found VARCHAR[]);
CREATE TABLE IF NOT EXISTS demand (cap VARCHAR, day DATE, clients BIGINT);
