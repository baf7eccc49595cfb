-- What a load has beside the records that it staged, of records that were staged out of the waiting room: their shapes, which
-- are all known, and their endpoints.
-- grain: shape_here = one shape, touched = one endpoint
-- reads: temp stage, shape
-- writes: temp shape_here, temp touched
CREATE OR REPLACE TEMP TABLE shape_here AS SELECT id, name, text, FALSE AS is_new FROM shape WHERE id IN (SELECT shape FROM stage);
CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT cap FROM stage
