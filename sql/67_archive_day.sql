-- Records of a type and UTC day wait from now on when they are loaded.
-- grain: one (type, UTC day)
-- reads: $type, $day
-- writes: archived_day
INSERT OR IGNORE INTO archived_day VALUES ($type, $day::DATE)
