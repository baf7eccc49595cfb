-- What shapes that are alike say, in the words of the first of them.
-- grain: one of those first shapes
-- reads: temp archive_forms, shape
-- writes: nothing
SELECT id::DOUBLE AS form, text FROM shape WHERE id IN (SELECT form FROM archive_forms)
