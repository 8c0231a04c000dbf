-- lock row
UPDATE `counter_locks` SET `version` = `version` + 1 WHERE `counter_name` = ? AND `operation` = ?
-- [File fold]

-- missing lock rows
INSERT INTO `counter_locks` (`counter_name`, `operation`, `version`) VALUES (?, ?, 0), (?, ?, 0), (?, ?, 0) ON DUPLICATE KEY UPDATE `version` = `counter_locks`.`version`
-- [File fold File rebuild File rebuilt]

-- claim
SELECT `id` FROM `file_counter_journal` FORCE INDEX (PRIMARY) ORDER BY `id` LIMIT 5000 FOR UPDATE SKIP LOCKED
-- []

-- claimed rows
SELECT `id`, `dataset_id`, `status`, `count_delta`, `bytes_delta`, CAST(`inserted_at` AS CHAR) FROM `file_counter_journal` FORCE INDEX (PRIMARY) WHERE `id` IN (3,5,8)
-- []

-- add to counter rows
INSERT INTO `file_counters` (`dataset_id`, `status`, `count`, `bytes`, `updated_at`) VALUES (?, ?, ?, ?, ?), (?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE `count` = `count` + VALUES(`count`), `bytes` = `bytes` + VALUES(`bytes`), `updated_at` = GREATEST(`updated_at`, VALUES(`updated_at`))
-- [7 new -2 -30 then 7 copied 2 30 now]

-- delete what was added
DELETE `j` FROM JSON_TABLE('[3,5]', '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS `c` STRAIGHT_JOIN `file_counter_journal` AS `j` FORCE INDEX (PRIMARY) ON `j`.`id` = `c`.`id`
-- []

-- versions of rebuilds
SELECT `version` FROM `counter_locks` WHERE `counter_name` = ? AND `operation` IN (?, ?) ORDER BY `operation`
-- [File rebuild rebuilt]

-- rebuild done
UPDATE `counter_locks` SET `version` = ? WHERE `counter_name` = ? AND `operation` = ?
-- [12 File rebuilt]

-- rebuild
SELECT `k0`, `k1`, SUM(`r0` - `c0`), SUM(`r1` - `c1`) FROM (SELECT `dataset_id` AS `k0`, `status` AS `k1`, 0 AS `c0`, 0 AS `c1`, COUNT(*) AS `r0`, COALESCE(SUM(`size`), 0) AS `r1` FROM `files` WHERE `dataset_id` IS NOT NULL AND `status` IS NOT NULL GROUP BY `dataset_id`, `status` UNION ALL SELECT `dataset_id`, `status`, `count`, `bytes`, 0, 0 FROM `file_counters` UNION ALL SELECT `dataset_id`, `status`, `count_delta`, `bytes_delta`, 0, 0 FROM `file_counter_journal`) AS `t` GROUP BY `k0`, `k1` HAVING SUM(`c0`) <> SUM(`r0`) OR SUM(`c1`) <> SUM(`r1`) LIMIT 50000
-- []

-- rebuild of a scope
SELECT `k0`, `k1`, SUM(`r0` - `c0`), SUM(`r1` - `c1`) FROM (SELECT `dataset_id` AS `k0`, `status` AS `k1`, 0 AS `c0`, 0 AS `c1`, COUNT(*) AS `r0`, COALESCE(SUM(`size`), 0) AS `r1` FROM `files` WHERE `dataset_id` = ? AND `dataset_id` IS NOT NULL AND `status` IS NOT NULL GROUP BY `dataset_id`, `status` UNION ALL SELECT `dataset_id`, `status`, `count`, `bytes`, 0, 0 FROM `file_counters` WHERE `dataset_id` = ? UNION ALL SELECT `dataset_id`, `status`, `count_delta`, `bytes_delta`, 0, 0 FROM `file_counter_journal` WHERE `dataset_id` = ?) AS `t` GROUP BY `k0`, `k1` HAVING SUM(`c0`) <> SUM(`r0`) OR SUM(`c1`) <> SUM(`r1`) LIMIT 50000
-- [7 7 7]

-- verify a scope, odd names
SELECT `k0`, `k1`, SUM(`c0`), SUM(`c1`), SUM(`r0`), SUM(`r1`) FROM (SELECT `from` AS `k0`, `where` AS `k1`, 0 AS `c0`, 0 AS `c1`, COUNT(*) AS `r0`, COALESCE(SUM(`all`), 0) AS `r1` FROM `values` WHERE `from` = ? AND `where` = ? AND `from` IS NOT NULL AND `where` IS NOT NULL GROUP BY `from`, `where` UNION ALL SELECT `order`, `select`, `key`, `index`, 0, 0 FROM `group` WHERE `order` = ? AND `select` = ? UNION ALL SELECT `order`, `select`, `count`, `sum`, 0, 0 FROM `table` WHERE `order` = ? AND `select` = ?) AS `t` GROUP BY `k0`, `k1` HAVING SUM(`c0`) <> SUM(`r0`) OR SUM(`c1`) <> SUM(`r1`)
-- [7 new 7 new 7 new]

-- delete a scope
DELETE FROM `file_counter_journal` WHERE `dataset_id` = ?
-- [7]

-- read
SELECT * FROM (SELECT `dataset_id`, `status`, SUM(`count`) AS `count`, SUM(`bytes`) AS `bytes`, CAST(MAX(`updated_at`) AS CHAR) AS `updated_at`, SUM(`pending`) AS `pending` FROM (SELECT `dataset_id`, `status`, `count` AS `count`, `bytes` AS `bytes`, `updated_at` AS `updated_at`, 0 AS `pending` FROM `file_counters` AS `file_counters` WHERE `file_counters`.`dataset_id` = ? AND `file_counters`.`status` IN (?, ?) UNION ALL SELECT `dataset_id`, `status`, `count_delta` AS `count`, `bytes_delta` AS `bytes`, `inserted_at` AS `updated_at`, 1 AS `pending` FROM `file_counter_journal` AS `file_counters` WHERE `file_counters`.`dataset_id` = ? AND `file_counters`.`status` IN (?, ?)) AS `deltas` GROUP BY `dataset_id`, `status`) AS `file_counters`
-- [7 new copied 7 new copied]

-- page of keys
SELECT `file_counters`.`dataset_id`, `file_counters`.`status`, `file_counters`.`count`, `file_counters`.`bytes`, `file_counters`.`updated_at`, `file_counters`.`pending` FROM (SELECT `dataset_id`, `status`, SUM(`count`) AS `count`, SUM(`bytes`) AS `bytes`, CAST(MAX(`updated_at`) AS CHAR) AS `updated_at`, SUM(`pending`) AS `pending` FROM (SELECT * FROM (SELECT `dataset_id`, `status`, `count` AS `count`, `bytes` AS `bytes`, `updated_at` AS `updated_at`, 0 AS `pending` FROM `file_counters` AS `file_counters` WHERE `file_counters`.`dataset_id` >= ? AND (`file_counters`.`dataset_id` > ? OR (`file_counters`.`dataset_id` = ? AND `file_counters`.`status` > ?)) ORDER BY `dataset_id`, `status` LIMIT 100) AS `file_counters` UNION ALL SELECT `dataset_id`, `status`, `count_delta` AS `count`, `bytes_delta` AS `bytes`, `inserted_at` AS `updated_at`, 1 AS `pending` FROM `file_counter_journal` AS `file_counters` WHERE `file_counters`.`dataset_id` >= ? AND (`file_counters`.`dataset_id` > ? OR (`file_counters`.`dataset_id` = ? AND `file_counters`.`status` > ?))) AS `deltas` GROUP BY `dataset_id`, `status`) AS `file_counters` WHERE `file_counters`.`dataset_id` >= ? AND (`file_counters`.`dataset_id` > ? OR (`file_counters`.`dataset_id` = ? AND `file_counters`.`status` > ?)) ORDER BY `file_counters`.`dataset_id`, `file_counters`.`status` LIMIT 100
-- [7 7 7 new 7 7 7 new 7 7 7 new]

-- total
SELECT `file_counters`.`count`, `file_counters`.`bytes`, `file_counters`.`updated_at`, `file_counters`.`pending` FROM (SELECT SUM(`count`) AS `count`, SUM(`bytes`) AS `bytes`, CAST(MAX(`updated_at`) AS CHAR) AS `updated_at`, SUM(`pending`) AS `pending` FROM (SELECT `dataset_id`, `status`, `count` AS `count`, `bytes` AS `bytes`, `updated_at` AS `updated_at`, 0 AS `pending` FROM `file_counters` AS `file_counters` WHERE `file_counters`.`status` IN (?, ?) UNION ALL SELECT `dataset_id`, `status`, `count_delta` AS `count`, `bytes_delta` AS `bytes`, `inserted_at` AS `updated_at`, 1 AS `pending` FROM `file_counter_journal` AS `file_counters` WHERE `file_counters`.`status` IN (?, ?)) AS `deltas`) AS `file_counters`
-- [new copied new copied]

-- largest totals of keys with counts
SELECT `file_counters`.`dataset_id`, `file_counters`.`count`, `file_counters`.`bytes`, `file_counters`.`updated_at`, `file_counters`.`pending` FROM (SELECT `dataset_id`, SUM(`count`) AS `count`, SUM(`bytes`) AS `bytes`, CAST(MAX(`updated_at`) AS CHAR) AS `updated_at`, SUM(`pending`) AS `pending` FROM (SELECT * FROM (SELECT `dataset_id`, `status`, SUM(`count`) AS `count`, SUM(`bytes`) AS `bytes`, CAST(MAX(`updated_at`) AS CHAR) AS `updated_at`, SUM(`pending`) AS `pending` FROM (SELECT `dataset_id`, `status`, `count` AS `count`, `bytes` AS `bytes`, `updated_at` AS `updated_at`, 0 AS `pending` FROM `file_counters` AS `file_counters` UNION ALL SELECT `dataset_id`, `status`, `count_delta` AS `count`, `bytes_delta` AS `bytes`, `inserted_at` AS `updated_at`, 1 AS `pending` FROM `file_counter_journal` AS `file_counters`) AS `deltas` GROUP BY `dataset_id`, `status`) AS `file_counters` WHERE `file_counters`.`count` > ?) AS `file_counters` GROUP BY `dataset_id`) AS `file_counters` ORDER BY `file_counters`.`bytes` DESC, `file_counters`.`dataset_id` LIMIT 10
-- [0]

-- distribution
SELECT `file_counters`.`dataset_id`, `file_counters`.`count`, `file_counters`.`bytes`, `file_counters`.`updated_at`, `file_counters`.`pending`, `file_counters`.`entcounter_weight`, `file_counters`.`entcounter_up_to`, `file_counters`.`entcounter_rows`, `file_counters`.`entcounter_distinct`, `file_counters`.`entcounter_added`, `file_counters`.`entcounter_number` FROM (SELECT *, SUM(`entcounter_weight`) OVER (ORDER BY `dataset_id`) AS `entcounter_up_to`, SUM(`entcounter_weight`) OVER () AS `entcounter_rows`, SUM(CASE WHEN `entcounter_weight` > 0 THEN 1 ELSE 0 END) OVER () AS `entcounter_distinct`, SUM(`pending`) OVER () AS `entcounter_added`, ROW_NUMBER() OVER (ORDER BY `dataset_id`) AS `entcounter_place` FROM (SELECT `dataset_id`, SUM(`count`) AS `count`, SUM(`bytes`) AS `bytes`, CAST(MAX(`updated_at`) AS CHAR) AS `updated_at`, SUM(`pending`) AS `pending`, SUM(CASE WHEN `count` > 0 THEN `count` ELSE 0 END) AS `entcounter_weight`, `dataset_id` AS `entcounter_number` FROM (SELECT * FROM (SELECT `dataset_id`, `status`, SUM(`count`) AS `count`, SUM(`bytes`) AS `bytes`, CAST(MAX(`updated_at`) AS CHAR) AS `updated_at`, SUM(`pending`) AS `pending` FROM (SELECT `dataset_id`, `status`, `count` AS `count`, `bytes` AS `bytes`, `updated_at` AS `updated_at`, 0 AS `pending` FROM `file_counters` AS `file_counters` WHERE `file_counters`.`status` = ? UNION ALL SELECT `dataset_id`, `status`, `count_delta` AS `count`, `bytes_delta` AS `bytes`, `inserted_at` AS `updated_at`, 1 AS `pending` FROM `file_counter_journal` AS `file_counters` WHERE `file_counters`.`status` = ?) AS `deltas` GROUP BY `dataset_id`, `status`) AS `file_counters` WHERE `file_counters`.`status` = ?) AS `file_counters` GROUP BY `dataset_id`) AS `file_counters`) AS `file_counters` WHERE `entcounter_place` = 1 OR `entcounter_weight` > 0 AND (`entcounter_up_to` = `entcounter_weight` OR `entcounter_up_to` = `entcounter_rows` OR `entcounter_up_to` - `entcounter_weight` - 2 < 0.5 * (`entcounter_rows` - 1) AND `entcounter_up_to` + 2 > 0.5 * (`entcounter_rows` - 1)) ORDER BY `file_counters`.`dataset_id`
-- [new new new]

