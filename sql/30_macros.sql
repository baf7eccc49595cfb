-- Short names for the numbers of the method; every number comes from grading-params.json as a session variable.
-- grain: none
-- reads: session variables, set by pipelines/3-grade/variables.ts
-- writes: temporary macros
CREATE OR REPLACE TEMP MACRO param(name) AS getvariable(name);

-- Half up to 6 decimals. `half` lies a hair over 0.5, so that a half stays a half in whatever order its parts were added.
CREATE OR REPLACE TEMP MACRO r6(x) AS floor(x * param('scale') + param('half')) / param('scale');

-- Successes out of n from which on the lower bound reaches .95, and up to which it stays within .05. The four lines of
-- lines4 are exponentials of straight lines, so both are straight lines too.
CREATE OR REPLACE TEMP MACRO need_high(n) AS least(
  n * param('high_1') + param('line_1'), n * param('high_2') + param('line_2'),
  n * param('high_3') + param('line_3'), n * param('high_4') + param('line_4'));
CREATE OR REPLACE TEMP MACRO need_low(n) AS least(
  n * param('low_1') + param('line_1'), n * param('low_2') + param('line_2'),
  n * param('low_3') + param('line_3'), n * param('low_4') + param('line_4'));
