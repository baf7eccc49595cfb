-- Asks (requests to probe a url that is not in the record), their results, and how many clients checked known
-- endpoints.
-- grain: asked = one ask; looked = one ask that was processed; demand = one capability in a replica's tally of one day
-- reads: endpoint
-- writes: asked, looked, demand; macros begun_before, begun_under
CREATE TABLE IF NOT EXISTS asked (cap VARCHAR, t TIMESTAMP, id VARCHAR, body VARCHAR);
CREATE TABLE IF NOT EXISTS looked (cap VARCHAR, t TIMESTAMP, found VARCHAR[]);
CREATE TABLE IF NOT EXISTS demand (cap VARCHAR, day DATE, clients BIGINT);
-- Number of asks processed in the hour before `now`, by registrable domain, since asks of each domain are limited by
-- the hour.
CREATE OR REPLACE MACRO begun_before(now) AS TABLE
  SELECT e.domain, count(*) AS n FROM looked l JOIN endpoint e USING (cap)
  WHERE l.t > epoch_ms(now) - INTERVAL 1 HOUR GROUP BY e.domain;
-- Number of asks processed in the hour before `now`, by hosting platform. They are limited too, since names under a
-- platform cost nothing, and somebody could create many.
CREATE OR REPLACE MACRO begun_under(now) AS TABLE
  SELECT e.platform, count(*) AS n FROM looked l JOIN endpoint e USING (cap)
  WHERE l.t > epoch_ms(now) - INTERVAL 1 HOUR GROUP BY e.platform;
