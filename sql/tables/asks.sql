-- What was asked for: urls that nobody knew, what became of them, and how many clients checked what is known.
-- grain: asked = one ask; looked = one ask that was looked at; demand = one capability of one tally
-- reads: endpoint
-- writes: asked, looked, demand; macros begun_before, begun_under
CREATE TABLE IF NOT EXISTS asked (cap VARCHAR, t TIMESTAMP, id VARCHAR, body VARCHAR);
CREATE TABLE IF NOT EXISTS looked (cap VARCHAR, t TIMESTAMP, found VARCHAR[]);
CREATE TABLE IF NOT EXISTS demand (cap VARCHAR, day DATE, clients BIGINT);
-- Looks begun in the hour before a moment, by registrable domain: each has an hourly bound.
CREATE OR REPLACE MACRO begun_before(now) AS TABLE
  SELECT e.domain, count(*) AS n FROM looked l JOIN endpoint e USING (cap)
  WHERE l.t > epoch_ms(now) - INTERVAL 1 HOUR GROUP BY e.domain;
-- The same by platform, under which names cost nothing.
CREATE OR REPLACE MACRO begun_under(now) AS TABLE
  SELECT e.platform, count(*) AS n FROM looked l JOIN endpoint e USING (cap)
  WHERE l.t > epoch_ms(now) - INTERVAL 1 HOUR GROUP BY e.platform;
