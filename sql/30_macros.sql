-- A short name for the numbers of the method; every number comes from grading-params.json as a session variable.
-- grain: none
-- reads: session variables, set by pipelines/3-grade/variables.ts
-- writes: temporary macros
CREATE OR REPLACE TEMP MACRO param(name) AS getvariable(name);
