-- A run looks at everything that was dirty: nothing is, once its transaction stands.
-- grain: one capability
-- reads: nothing
-- writes: dirty
DELETE FROM dirty
