-- lock row
UPDATE `counter_locks` SET `version` = `version` + 1 WHERE `counter_name` = ? AND `operation` = ?
-- [File fold]

-- missing lock rows
INSERT INTO `counter_locks` (`counter_name`, `operation`, `version`, `declaration`) VALUES (?, ?, 0, ''), (?, ?, 0, ''), (?, ?, 0, '') ON DUPLICATE KEY UPDATE `version` = `counter_locks`.`version`
-- [File fold File rebuild File rebuilt]

-- claim
SELECT `id` FROM `file_counter_journal` FORCE INDEX (PRIMARY) ORDER BY `id` LIMIT 5000 FOR UPDATE SKIP LOCKED
-- []

-- claim but for a key
SELECT `id` FROM `file_counter_journal` FORCE INDEX (PRIMARY) WHERE NOT (`dataset_id` = ? AND `status` = ?) ORDER BY `id` LIMIT 5000 FOR UPDATE SKIP LOCKED
-- [7 new]

-- claimed rows
SELECT `id`, `dataset_id`, `status`, `count_delta`, `bytes_delta`, CAST(`inserted_at` AS CHAR) FROM `file_counter_journal` FORCE INDEX (PRIMARY) WHERE `id` IN (3,5,8)
-- []

-- add to counter rows
INSERT INTO `file_counters` (`dataset_id`, `status`, `count`, `bytes`, `updated_at`) VALUES (?, ?, ?, ?, ?), (?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE `count` = `count` + VALUES(`count`), `bytes` = `bytes` + VALUES(`bytes`), `updated_at` = GREATEST(`updated_at`, VALUES(`updated_at`))
-- [7 new -2 -30 then 7 copied 2 30 now]

-- delete what was added
DELETE `j` FROM JSON_TABLE('[3,5]', '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS `c` STRAIGHT_JOIN `file_counter_journal` AS `j` FORCE INDEX (PRIMARY) ON `j`.`id` = `c`.`id`
-- []

-- lock row, if it is free
SELECT 1 FROM `counter_locks` WHERE `counter_name` = ? AND `operation` = ? FOR UPDATE SKIP LOCKED
-- [File fold]

-- fold done
UPDATE `counter_locks` SET `done_at` = UTC_TIMESTAMP(6), `total_rows` = COALESCE(`total_rows`, 0) + ?, `last_rows` = ?, `last_micros` = ? WHERE `counter_name` = ? AND `operation` = ?
-- [5000 5000 70000 File fold]

-- pause
INSERT INTO `counter_locks` (`counter_name`, `operation`, `version`, `declaration`, `done_at`) VALUES (?, ?, 0, '', UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE `version` = `counter_locks`.`version`
-- [File paused]

-- deepest key
SELECT `dataset_id`, `status`, COUNT(*) AS `n`, CAST(ROUND(SUM(COUNT(*)) OVER ()) AS DECIMAL(65, 0)) FROM (SELECT `dataset_id`, `status` FROM `file_counter_journal` ORDER BY `id` LIMIT 100000) AS `t` GROUP BY `dataset_id`, `status` ORDER BY `n` DESC, `dataset_id`, `status` LIMIT 1
-- []

-- negative keys
SELECT `dataset_id`, `status`, COUNT(*) OVER () FROM (SELECT `dataset_id`, `status` FROM (SELECT `dataset_id`, `status`, `count`, `bytes` FROM (SELECT `dataset_id`, `status`, `count`, `bytes` FROM `file_counters` LIMIT 1000000) AS `c` WHERE `count` < 0 OR `bytes` < 0 UNION SELECT `c`.`dataset_id`, `c`.`status`, `c`.`count`, `c`.`bytes` FROM (SELECT DISTINCT `dataset_id`, `status` FROM `file_counter_journal`) AS `j` JOIN `file_counters` AS `c` ON `c`.`dataset_id` = `j`.`dataset_id` AND `c`.`status` = `j`.`status` UNION ALL SELECT `dataset_id`, `status`, `count_delta`, `bytes_delta` FROM `file_counter_journal`) AS `u` GROUP BY `dataset_id`, `status` HAVING SUM(`count`) < 0 OR SUM(`bytes`) < 0) AS `n` ORDER BY `dataset_id`, `status` LIMIT 1
-- []

-- what deleted rows leave
SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'
-- []

-- versions of rebuilds
SELECT `version` FROM `counter_locks` WHERE `counter_name` = ? AND `operation` IN (?, ?) ORDER BY `operation`
-- [File rebuild rebuilt]

-- rebuild done
UPDATE `counter_locks` SET `version` = ?, `declaration` = ?, `done_at` = UTC_TIMESTAMP(6) WHERE `counter_name` = ? AND `operation` = ?
-- [12 SELECT 1 File rebuilt]

-- rebuild
SELECT `k0`, `k1`, SUM(`r0`) - SUM(`c0`), SUM(`r1`) - SUM(`c1`) FROM (SELECT `t0`.`dataset_id` AS `k0`, `t0`.`status` AS `k1`, COUNT(*) AS `r0`, COALESCE(SUM(`t0`.`size`), 0) AS `r1`, 0 AS `c0`, 0 AS `c1` FROM `files` AS `t0` WHERE `t0`.`dataset_id` IS NOT NULL AND `t0`.`status` IS NOT NULL GROUP BY 1, 2 UNION ALL SELECT `dataset_id` AS `k0`, `status` AS `k1`, 0 AS `r0`, 0 AS `r1`, `count` AS `c0`, `bytes` AS `c1` FROM `file_counters` UNION ALL SELECT `dataset_id` AS `k0`, `status` AS `k1`, 0 AS `r0`, 0 AS `r1`, `count_delta` AS `c0`, `bytes_delta` AS `c1` FROM `file_counter_journal`) AS `t` GROUP BY `k0`, `k1` HAVING SUM(`c0`) <> SUM(`r0`) OR SUM(`c1`) <> SUM(`r1`) LIMIT 50000
-- []

-- rebuild of a scope
SELECT `k0`, `k1`, SUM(`r0`) - SUM(`c0`), SUM(`r1`) - SUM(`c1`) FROM (SELECT `t0`.`dataset_id` AS `k0`, `t0`.`status` AS `k1`, COUNT(*) AS `r0`, COALESCE(SUM(`t0`.`size`), 0) AS `r1`, 0 AS `c0`, 0 AS `c1` FROM `files` AS `t0` WHERE `t0`.`dataset_id` IS NOT NULL AND `t0`.`status` IS NOT NULL AND `t0`.`dataset_id` = ? GROUP BY 1, 2 UNION ALL SELECT `dataset_id` AS `k0`, `status` AS `k1`, 0 AS `r0`, 0 AS `r1`, `count` AS `c0`, `bytes` AS `c1` FROM `file_counters` WHERE `dataset_id` = ? UNION ALL SELECT `dataset_id` AS `k0`, `status` AS `k1`, 0 AS `r0`, 0 AS `r1`, `count_delta` AS `c0`, `bytes_delta` AS `c1` FROM `file_counter_journal` WHERE `dataset_id` = ?) AS `t` GROUP BY `k0`, `k1` HAVING SUM(`c0`) <> SUM(`r0`) OR SUM(`c1`) <> SUM(`r1`) LIMIT 50000
-- [7 7 7]

-- verify a scope, odd names
SELECT `k0`, `k1`, SUM(`c0`), SUM(`c1`), SUM(`r0`), SUM(`r1`) FROM (SELECT `t0`.`from` AS `k0`, `t0`.`where` AS `k1`, COUNT(*) AS `r0`, COALESCE(SUM(`t0`.`all`), 0) AS `r1`, 0 AS `c0`, 0 AS `c1` FROM `values` AS `t0` WHERE `t0`.`from` IS NOT NULL AND `t0`.`where` IS NOT NULL AND `t0`.`from` = ? AND `t0`.`where` = ? GROUP BY 1, 2 UNION ALL SELECT `order` AS `k0`, `select` AS `k1`, 0 AS `r0`, 0 AS `r1`, `key` AS `c0`, `index` AS `c1` FROM `group` WHERE `order` = ? AND `select` = ? UNION ALL SELECT `order` AS `k0`, `select` AS `k1`, 0 AS `r0`, 0 AS `r1`, `count` AS `c0`, `sum` AS `c1` FROM `table` WHERE `order` = ? AND `select` = ?) AS `t` GROUP BY `k0`, `k1` HAVING SUM(`c0`) <> SUM(`r0`) OR SUM(`c1`) <> SUM(`r1`)
-- [7 new 7 new 7 new]

-- build of a part
SELECT `k0`, `k1`, SUM(`r0`) - SUM(`c0`), SUM(`r1`) - SUM(`c1`), (SELECT `version` FROM `counter_locks` WHERE `counter_name` = ? AND `operation` = ?), (SELECT `version` FROM `counter_locks` WHERE `counter_name` = ? AND `operation` = ?) FROM (SELECT `t0`.`dataset_id` AS `k0`, `t0`.`status` AS `k1`, COUNT(*) AS `r0`, COALESCE(SUM(`t0`.`size`), 0) AS `r1`, 0 AS `c0`, 0 AS `c1` FROM `files` AS `t0` WHERE `t0`.`dataset_id` IS NOT NULL AND `t0`.`status` IS NOT NULL AND `t0`.`dataset_id` = ? AND `t0`.`status` IN (?, ?) GROUP BY 1, 2 UNION ALL SELECT `dataset_id` AS `k0`, `status` AS `k1`, 0 AS `r0`, 0 AS `r1`, `count` AS `c0`, `bytes` AS `c1` FROM `file_counters` WHERE `dataset_id` = ? AND `status` IN (?, ?) UNION ALL SELECT `dataset_id` AS `k0`, `status` AS `k1`, 0 AS `r0`, 0 AS `r1`, `count_delta` AS `c0`, `bytes_delta` AS `c1` FROM `file_counter_journal` WHERE `dataset_id` = ? AND `status` IN (?, ?)) AS `t` GROUP BY `k0`, `k1` HAVING SUM(`c0`) <> SUM(`r0`) OR SUM(`c1`) <> SUM(`r1`) LIMIT 50000
-- [File rebuilt File build 7 new copied 7 new copied 7 new copied]

-- indexes
SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND INDEX_TYPE = 'BTREE' AND TABLE_NAME = ? ORDER BY INDEX_NAME, SEQ_IN_INDEX
-- [files]

-- parts of a counter
SELECT v, SUM(n) FROM (SELECT `t0`.`dataset_id` AS v, COUNT(*) AS n FROM `files` AS `t0` WHERE `t0`.`dataset_id` IS NOT NULL GROUP BY 1 UNION ALL SELECT DISTINCT `dataset_id` AS v, 0 AS n FROM `file_counters` UNION ALL SELECT DISTINCT `dataset_id` AS v, 0 AS n FROM `file_counter_journal`) AS t GROUP BY v ORDER BY v
-- []

-- parts of a part
SELECT v, SUM(n) FROM (SELECT `t0`.`status` AS v, COUNT(*) AS n FROM `files` AS `t0` WHERE `t0`.`dataset_id` = ? AND `t0`.`status` IS NOT NULL GROUP BY 1 UNION ALL SELECT DISTINCT `status` AS v, 0 AS n FROM `file_counters` WHERE `dataset_id` = ? UNION ALL SELECT DISTINCT `status` AS v, 0 AS n FROM `file_counter_journal` WHERE `dataset_id` = ?) AS t GROUP BY v ORDER BY v
-- [7 7 7]

-- delete a scope
DELETE FROM `file_counter_journal` WHERE `dataset_id` = ?
-- [7]

-- read
SELECT * FROM (SELECT `dataset_id`, `status`, SUM(`count`) AS `count`, SUM(`bytes`) AS `bytes`, CAST(MAX(`updated_at`) AS CHAR) AS `updated_at`, SUM(`pending`) AS `pending` FROM (SELECT `dataset_id`, `status`, `count` AS `count`, `bytes` AS `bytes`, `updated_at` AS `updated_at`, 0 AS `pending` FROM `file_counters` AS `file_counters` WHERE `file_counters`.`dataset_id` = ? AND `file_counters`.`status` IN (?, ?) UNION ALL SELECT `dataset_id`, `status`, `count_delta` AS `count`, `bytes_delta` AS `bytes`, `inserted_at` AS `updated_at`, 1 AS `pending` FROM `file_counter_journal` AS `file_counters` WHERE `file_counters`.`dataset_id` = ? AND `file_counters`.`status` IN (?, ?)) AS `deltas` GROUP BY `dataset_id`, `status`) AS `file_counters`
-- [7 new copied 7 new copied]

-- read of one key
SELECT * FROM (SELECT COALESCE(`file_counters`.`dataset_id`, `entcounter_journal`.`k0`) AS `dataset_id`, COALESCE(`file_counters`.`status`, `entcounter_journal`.`k1`) AS `status`, COALESCE(`file_counters`.`count`, 0) + COALESCE(`entcounter_journal`.`m0_0`, 0) AS `count`, COALESCE(`file_counters`.`bytes`, 0) + COALESCE(`entcounter_journal`.`m1_0`, 0) AS `bytes`, CAST(GREATEST(COALESCE(`file_counters`.`updated_at`, `entcounter_journal`.`at`), COALESCE(`entcounter_journal`.`at`, `file_counters`.`updated_at`)) AS CHAR) AS `updated_at`, `entcounter_journal`.`n` AS `pending` FROM (SELECT MIN(`dataset_id`) AS `k0`, MIN(`status`) AS `k1`, SUM(`count_delta`) AS `m0_0`, SUM(`bytes_delta`) AS `m1_0`, MAX(`inserted_at`) AS `at`, COUNT(*) AS `n` FROM `file_counter_journal` AS `file_counters` WHERE `file_counters`.`dataset_id` = ? AND `file_counters`.`status` = ?) AS `entcounter_journal` LEFT JOIN `file_counters` AS `file_counters` ON `file_counters`.`dataset_id` = ? AND `file_counters`.`status` = ? WHERE `entcounter_journal`.`n` > 0 OR `file_counters`.`dataset_id` IS NOT NULL) AS `file_counters`
-- [7 new 7 new]

-- draw numbers of Task.number
INSERT INTO `task_number_sequence` (`project_id`, `next_number`) VALUES (?, 0) ON DUPLICATE KEY UPDATE `next_number` = LAST_INSERT_ID(IF(`next_number` = 0, 0, `next_number` + ?))
-- [7 3]

-- greatest number
SELECT MAX(`number`) FROM `tasks` WHERE `project_id` = ?
-- [7]

-- next number
UPDATE `task_number_sequence` SET `next_number` = ? WHERE `project_id` = ?
-- [42 7]

-- numbers back
UPDATE `task_number_sequence` SET `next_number` = `next_number` - ? WHERE `project_id` = ?
-- [3 7]

-- draw numbers of Invoice.key
INSERT INTO `group` (`id`, `next_number`) VALUES (?, 0) ON DUPLICATE KEY UPDATE `next_number` = LAST_INSERT_ID(IF(`next_number` = 0, 0, `next_number` + ?))
-- [1 3]

-- greatest number
SELECT MAX(`key`) FROM `select`
-- []

-- next number
UPDATE `group` SET `next_number` = ? WHERE `id` = ?
-- [42 1]

-- numbers back
UPDATE `group` SET `next_number` = `next_number` - ? WHERE `id` = ?
-- [3 1]

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

