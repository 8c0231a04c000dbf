-- lock row
UPDATE "counter_locks" SET "version" = "version" + 1 WHERE "counter_name" = $1 AND "operation" = $2
-- [File fold]

-- missing lock rows
INSERT INTO "counter_locks" ("counter_name", "operation", "version", "declaration") VALUES ($1, $2, 0, ''), ($3, $4, 0, ''), ($5, $6, 0, '') ON CONFLICT DO NOTHING
-- [File fold File rebuild File rebuilt]

-- fold
WITH "claimed" AS (DELETE FROM "file_counter_journal" WHERE "id" = ANY(ARRAY(SELECT "id" FROM "file_counter_journal" ORDER BY "id" LIMIT 5000 FOR UPDATE SKIP LOCKED)) RETURNING *), "folded" AS (INSERT INTO "file_counters" AS "c" ("dataset_id", "status", "count", "bytes", "updated_at") SELECT "dataset_id", "status", CAST(SUM("count_delta") AS BIGINT), CAST(SUM("bytes_delta") AS BIGINT), MAX("inserted_at") FROM "claimed" GROUP BY "dataset_id", "status" ORDER BY "dataset_id", "status" ON CONFLICT ("dataset_id", "status") DO UPDATE SET "count" = "c"."count" + excluded."count", "bytes" = "c"."bytes" + excluded."bytes", "updated_at" = GREATEST("c"."updated_at", excluded."updated_at") RETURNING 1) SELECT (SELECT COUNT(*) FROM "claimed"), (SELECT COUNT(*) FROM "folded"), (SELECT COALESCE(MAX("n"), 0) FROM (SELECT COUNT(*) AS "n" FROM "claimed" GROUP BY "dataset_id", "status") AS "d")
-- []

-- fold all of a key
WITH "claimed" AS (DELETE FROM "file_counter_journal" WHERE "id" = ANY(ARRAY(SELECT "id" FROM "file_counter_journal" WHERE "dataset_id" = $1 AND "status" = $2 ORDER BY "id" FOR UPDATE SKIP LOCKED)) RETURNING *), "folded" AS (INSERT INTO "file_counters" AS "c" ("dataset_id", "status", "count", "bytes", "updated_at") SELECT "dataset_id", "status", CASE WHEN EXISTS (SELECT 1 FROM "file_counters" WHERE "dataset_id" = $3 AND "status" = $4) THEN 0 ELSE CAST(SUM("count_delta") AS BIGINT) END, CASE WHEN EXISTS (SELECT 1 FROM "file_counters" WHERE "dataset_id" = $5 AND "status" = $6) THEN 0 ELSE CAST(SUM("bytes_delta") AS BIGINT) END, MAX("inserted_at") FROM "claimed" GROUP BY "dataset_id", "status" ORDER BY "dataset_id", "status" ON CONFLICT ("dataset_id", "status") DO UPDATE SET "count" = CAST("c"."count" + (SELECT SUM("count_delta") FROM "claimed") AS BIGINT), "bytes" = CAST("c"."bytes" + (SELECT SUM("bytes_delta") FROM "claimed") AS BIGINT), "updated_at" = GREATEST("c"."updated_at", excluded."updated_at") RETURNING 1) SELECT (SELECT COUNT(*) FROM "claimed"), (SELECT COUNT(*) FROM "folded"), (SELECT COALESCE(MAX("n"), 0) FROM (SELECT COUNT(*) AS "n" FROM "claimed" GROUP BY "dataset_id", "status") AS "d")
-- [7 new 7 new 7 new]

-- lock row, if it is free
SELECT 1 FROM "counter_locks" WHERE "counter_name" = $1 AND "operation" = $2 FOR UPDATE SKIP LOCKED
-- [File fold]

-- fold done
UPDATE "counter_locks" SET "done_at" = clock_timestamp(), "total_rows" = COALESCE("total_rows", 0) + $1, "last_rows" = $2, "last_micros" = $3 WHERE "counter_name" = $4 AND "operation" = $5
-- [5000 5000 70000 File fold]

-- pause
INSERT INTO "counter_locks" ("counter_name", "operation", "version", "declaration", "done_at") VALUES ($1, $2, 0, '', clock_timestamp()) ON CONFLICT DO NOTHING
-- [File paused]

-- deepest key
SELECT "dataset_id", "status", COUNT(*) AS "n", CAST(ROUND(SUM(COUNT(*)) OVER ()) AS BIGINT) FROM (SELECT "dataset_id", "status" FROM "file_counter_journal" ORDER BY "id" LIMIT 100000) AS "t" GROUP BY "dataset_id", "status" ORDER BY "n" DESC, "dataset_id", "status" LIMIT 1
-- []

-- negative keys
SELECT "dataset_id", "status", COUNT(*) OVER () FROM (SELECT "dataset_id", "status" FROM (SELECT "dataset_id", "status", "count", "bytes" FROM (SELECT "dataset_id", "status", "count", "bytes" FROM "file_counters" LIMIT 1000000) AS "c" WHERE "count" < 0 OR "bytes" < 0 UNION SELECT "c"."dataset_id", "c"."status", "c"."count", "c"."bytes" FROM (SELECT DISTINCT "dataset_id", "status" FROM "file_counter_journal") AS "j" JOIN "file_counters" AS "c" ON "c"."dataset_id" = "j"."dataset_id" AND "c"."status" = "j"."status" UNION ALL SELECT "dataset_id", "status", "count_delta", "bytes_delta" FROM "file_counter_journal") AS "u" GROUP BY "dataset_id", "status" HAVING SUM("count") < 0 OR SUM("bytes") < 0) AS "n" ORDER BY "dataset_id", "status" LIMIT 1
-- []

-- what deleted rows leave
SELECT CAST(COALESCE(SUM(n_dead_tup), 0) AS BIGINT) FROM pg_catalog.pg_stat_all_tables WHERE relid IN (CAST($1 AS regclass), CAST($2 AS regclass))
-- ["file_counters" "file_counter_journal"]

-- versions of rebuilds
SELECT "version" FROM "counter_locks" WHERE "counter_name" = $1 AND "operation" IN ($2, $3) ORDER BY "operation"
-- [File rebuild rebuilt]

-- rebuild done
UPDATE "counter_locks" SET "version" = $1, "declaration" = $2, "done_at" = clock_timestamp() WHERE "counter_name" = $3 AND "operation" = $4
-- [12 SELECT 1 File rebuilt]

-- rebuild
SELECT "k0", "k1", CAST(SUM("r0") - SUM("c0") AS BIGINT), CAST(SUM("r1") - SUM("c1") AS BIGINT) FROM (SELECT "t0"."dataset_id" AS "k0", "t0"."status" AS "k1", COUNT(*) AS "r0", COALESCE(CAST(SUM("t0"."size") AS BIGINT), 0) AS "r1", 0 AS "c0", 0 AS "c1" FROM "files" AS "t0" WHERE "t0"."dataset_id" IS NOT NULL AND "t0"."status" IS NOT NULL GROUP BY 1, 2 UNION ALL SELECT "dataset_id" AS "k0", "status" AS "k1", 0 AS "r0", 0 AS "r1", "count" AS "c0", "bytes" AS "c1" FROM "file_counters" UNION ALL SELECT "dataset_id" AS "k0", "status" AS "k1", 0 AS "r0", 0 AS "r1", "count_delta" AS "c0", "bytes_delta" AS "c1" FROM "file_counter_journal") AS "t" GROUP BY "k0", "k1" HAVING SUM("c0") <> SUM("r0") OR SUM("c1") <> SUM("r1") LIMIT 50000
-- []

-- rebuild of a scope
SELECT "k0", "k1", CAST(SUM("r0") - SUM("c0") AS BIGINT), CAST(SUM("r1") - SUM("c1") AS BIGINT) FROM (SELECT "t0"."dataset_id" AS "k0", "t0"."status" AS "k1", COUNT(*) AS "r0", COALESCE(CAST(SUM("t0"."size") AS BIGINT), 0) AS "r1", 0 AS "c0", 0 AS "c1" FROM "files" AS "t0" WHERE "t0"."dataset_id" IS NOT NULL AND "t0"."status" IS NOT NULL AND "t0"."dataset_id" = $1 GROUP BY 1, 2 UNION ALL SELECT "dataset_id" AS "k0", "status" AS "k1", 0 AS "r0", 0 AS "r1", "count" AS "c0", "bytes" AS "c1" FROM "file_counters" WHERE "dataset_id" = $2 UNION ALL SELECT "dataset_id" AS "k0", "status" AS "k1", 0 AS "r0", 0 AS "r1", "count_delta" AS "c0", "bytes_delta" AS "c1" FROM "file_counter_journal" WHERE "dataset_id" = $3) AS "t" GROUP BY "k0", "k1" HAVING SUM("c0") <> SUM("r0") OR SUM("c1") <> SUM("r1") LIMIT 50000
-- [7 7 7]

-- verify a scope, odd names
SELECT "k0", "k1", CAST(SUM("c0") AS BIGINT), CAST(SUM("c1") AS BIGINT), CAST(SUM("r0") AS BIGINT), CAST(SUM("r1") AS BIGINT) FROM (SELECT "t0"."from" AS "k0", "t0"."where" AS "k1", COUNT(*) AS "r0", COALESCE(CAST(SUM("t0"."all") AS BIGINT), 0) AS "r1", 0 AS "c0", 0 AS "c1" FROM "values" AS "t0" WHERE "t0"."from" IS NOT NULL AND "t0"."where" IS NOT NULL AND "t0"."from" = $1 AND "t0"."where" = $2 GROUP BY 1, 2 UNION ALL SELECT "order" AS "k0", "select" AS "k1", 0 AS "r0", 0 AS "r1", "key" AS "c0", "index" AS "c1" FROM "group" WHERE "order" = $3 AND "select" = $4 UNION ALL SELECT "order" AS "k0", "select" AS "k1", 0 AS "r0", 0 AS "r1", "count" AS "c0", "sum" AS "c1" FROM "table" WHERE "order" = $5 AND "select" = $6) AS "t" GROUP BY "k0", "k1" HAVING SUM("c0") <> SUM("r0") OR SUM("c1") <> SUM("r1")
-- [7 new 7 new 7 new]

-- build of a part
SELECT "k0", "k1", CAST(SUM("r0") - SUM("c0") AS BIGINT), CAST(SUM("r1") - SUM("c1") AS BIGINT), (SELECT "version" FROM "counter_locks" WHERE "counter_name" = $1 AND "operation" = $2), (SELECT "version" FROM "counter_locks" WHERE "counter_name" = $3 AND "operation" = $4) FROM (SELECT "t0"."dataset_id" AS "k0", "t0"."status" AS "k1", COUNT(*) AS "r0", COALESCE(CAST(SUM("t0"."size") AS BIGINT), 0) AS "r1", 0 AS "c0", 0 AS "c1" FROM "files" AS "t0" WHERE "t0"."dataset_id" IS NOT NULL AND "t0"."status" IS NOT NULL AND "t0"."dataset_id" = $5 AND "t0"."status" IN ($6, $7) GROUP BY 1, 2 UNION ALL SELECT "dataset_id" AS "k0", "status" AS "k1", 0 AS "r0", 0 AS "r1", "count" AS "c0", "bytes" AS "c1" FROM "file_counters" WHERE "dataset_id" = $8 AND "status" IN ($9, $10) UNION ALL SELECT "dataset_id" AS "k0", "status" AS "k1", 0 AS "r0", 0 AS "r1", "count_delta" AS "c0", "bytes_delta" AS "c1" FROM "file_counter_journal" WHERE "dataset_id" = $11 AND "status" IN ($12, $13)) AS "t" GROUP BY "k0", "k1" HAVING SUM("c0") <> SUM("r0") OR SUM("c1") <> SUM("r1") LIMIT 50000
-- [File rebuilt File build 7 new copied 7 new copied 7 new copied]

-- indexes
SELECT c.relname, a.attname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam AND m.amname = 'btree' CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n) LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE i.indisvalid AND i.indpred IS NULL AND k.n <= i.indnkeyatts AND i.indrelid = to_regclass($1) ORDER BY c.relname, k.n
-- ["files"]

-- parts of a counter
SELECT v, SUM(n) FROM (SELECT "t0"."dataset_id" AS v, COUNT(*) AS n FROM "files" AS "t0" WHERE "t0"."dataset_id" IS NOT NULL GROUP BY 1 UNION ALL SELECT DISTINCT "dataset_id" AS v, 0 AS n FROM "file_counters" UNION ALL SELECT DISTINCT "dataset_id" AS v, 0 AS n FROM "file_counter_journal") AS t GROUP BY v ORDER BY v
-- []

-- parts of a part
SELECT v, SUM(n) FROM (SELECT "t0"."status" AS v, COUNT(*) AS n FROM "files" AS "t0" WHERE "t0"."dataset_id" = $1 AND "t0"."status" IS NOT NULL GROUP BY 1 UNION ALL SELECT DISTINCT "status" AS v, 0 AS n FROM "file_counters" WHERE "dataset_id" = $2 UNION ALL SELECT DISTINCT "status" AS v, 0 AS n FROM "file_counter_journal" WHERE "dataset_id" = $3) AS t GROUP BY v ORDER BY v
-- [7 7 7]

-- delete a scope
DELETE FROM "file_counter_journal" WHERE "dataset_id" = $1
-- [7]

-- read
SELECT * FROM (SELECT "dataset_id", "status", CAST(SUM("count") AS BIGINT) AS "count", CAST(SUM("bytes") AS BIGINT) AS "bytes", MAX("updated_at") AS "updated_at", SUM("pending") AS "pending" FROM (SELECT "dataset_id", "status", "count" AS "count", "bytes" AS "bytes", "updated_at" AS "updated_at", 0 AS "pending" FROM "file_counters" AS "file_counters" WHERE "file_counters"."dataset_id" = $1 AND "file_counters"."status" IN ($2, $3) UNION ALL SELECT "dataset_id", "status", "count_delta" AS "count", "bytes_delta" AS "bytes", "inserted_at" AS "updated_at", 1 AS "pending" FROM "file_counter_journal" AS "file_counters" WHERE "file_counters"."dataset_id" = $4 AND "file_counters"."status" IN ($5, $6)) AS "deltas" GROUP BY "dataset_id", "status") AS "file_counters"
-- [7 new copied 7 new copied]

-- read of one key
SELECT * FROM (SELECT COALESCE("file_counters"."dataset_id", "entcounter_journal"."k0") AS "dataset_id", COALESCE("file_counters"."status", "entcounter_journal"."k1") AS "status", CAST(COALESCE("file_counters"."count", 0) + COALESCE("entcounter_journal"."m0_0", 0) AS BIGINT) AS "count", CAST(COALESCE("file_counters"."bytes", 0) + COALESCE("entcounter_journal"."m1_0", 0) AS BIGINT) AS "bytes", GREATEST(COALESCE("file_counters"."updated_at", "entcounter_journal"."at"), COALESCE("entcounter_journal"."at", "file_counters"."updated_at")) AS "updated_at", "entcounter_journal"."n" AS "pending" FROM (SELECT MIN("dataset_id") AS "k0", MIN("status") AS "k1", SUM("count_delta") AS "m0_0", SUM("bytes_delta") AS "m1_0", MAX("inserted_at") AS "at", COUNT(*) AS "n" FROM "file_counter_journal" AS "file_counters" WHERE "file_counters"."dataset_id" = $1 AND "file_counters"."status" = $2) AS "entcounter_journal" LEFT JOIN "file_counters" AS "file_counters" ON "file_counters"."dataset_id" = $3 AND "file_counters"."status" = $4 WHERE "entcounter_journal"."n" > 0 OR "file_counters"."dataset_id" IS NOT NULL) AS "file_counters"
-- [7 new 7 new]

-- draw numbers of Task.number
INSERT INTO "task_number_sequence" AS "s" ("project_id", "next_number") VALUES ($1, 0) ON CONFLICT ("project_id") DO UPDATE SET "next_number" = CASE WHEN "s"."next_number" = 0 THEN 0 ELSE "s"."next_number" + $2 END RETURNING "next_number"
-- [7 3]

-- greatest number
SELECT MAX("number") FROM "tasks" WHERE "project_id" = $1
-- [7]

-- next number
UPDATE "task_number_sequence" SET "next_number" = $1 WHERE "project_id" = $2
-- [42 7]

-- numbers back
UPDATE "task_number_sequence" SET "next_number" = "next_number" - $1 WHERE "project_id" = $2
-- [3 7]

-- draw numbers of Invoice.key
INSERT INTO "group" AS "s" ("id", "next_number") VALUES ($1, 0) ON CONFLICT ("id") DO UPDATE SET "next_number" = CASE WHEN "s"."next_number" = 0 THEN 0 ELSE "s"."next_number" + $2 END RETURNING "next_number"
-- [1 3]

-- greatest number
SELECT MAX("key") FROM "select"
-- []

-- next number
UPDATE "group" SET "next_number" = $1 WHERE "id" = $2
-- [42 1]

-- numbers back
UPDATE "group" SET "next_number" = "next_number" - $1 WHERE "id" = $2
-- [3 1]

-- page of keys
SELECT "file_counters"."dataset_id", "file_counters"."status", "file_counters"."count", "file_counters"."bytes", "file_counters"."updated_at", "file_counters"."pending" FROM (SELECT "dataset_id", "status", CAST(SUM("count") AS BIGINT) AS "count", CAST(SUM("bytes") AS BIGINT) AS "bytes", MAX("updated_at") AS "updated_at", SUM("pending") AS "pending" FROM (SELECT * FROM (SELECT "dataset_id", "status", "count" AS "count", "bytes" AS "bytes", "updated_at" AS "updated_at", 0 AS "pending" FROM "file_counters" AS "file_counters" WHERE "file_counters"."dataset_id" >= $1 AND ("file_counters"."dataset_id" > $2 OR ("file_counters"."dataset_id" = $3 AND "file_counters"."status" > $4)) ORDER BY "dataset_id", "status" LIMIT 100) AS "file_counters" UNION ALL SELECT "dataset_id", "status", "count_delta" AS "count", "bytes_delta" AS "bytes", "inserted_at" AS "updated_at", 1 AS "pending" FROM "file_counter_journal" AS "file_counters" WHERE "file_counters"."dataset_id" >= $5 AND ("file_counters"."dataset_id" > $6 OR ("file_counters"."dataset_id" = $7 AND "file_counters"."status" > $8))) AS "deltas" GROUP BY "dataset_id", "status") AS "file_counters" WHERE "file_counters"."dataset_id" >= $9 AND ("file_counters"."dataset_id" > $10 OR ("file_counters"."dataset_id" = $11 AND "file_counters"."status" > $12)) ORDER BY "file_counters"."dataset_id", "file_counters"."status" LIMIT 100
-- [7 7 7 new 7 7 7 new 7 7 7 new]

-- total
SELECT "file_counters"."count", "file_counters"."bytes", "file_counters"."updated_at", "file_counters"."pending" FROM (SELECT CAST(SUM("count") AS BIGINT) AS "count", CAST(SUM("bytes") AS BIGINT) AS "bytes", MAX("updated_at") AS "updated_at", SUM("pending") AS "pending" FROM (SELECT "dataset_id", "status", "count" AS "count", "bytes" AS "bytes", "updated_at" AS "updated_at", 0 AS "pending" FROM "file_counters" AS "file_counters" WHERE "file_counters"."status" IN ($1, $2) UNION ALL SELECT "dataset_id", "status", "count_delta" AS "count", "bytes_delta" AS "bytes", "inserted_at" AS "updated_at", 1 AS "pending" FROM "file_counter_journal" AS "file_counters" WHERE "file_counters"."status" IN ($3, $4)) AS "deltas") AS "file_counters"
-- [new copied new copied]

-- largest totals of keys with counts
SELECT "file_counters"."dataset_id", "file_counters"."count", "file_counters"."bytes", "file_counters"."updated_at", "file_counters"."pending" FROM (SELECT "dataset_id", CAST(SUM("count") AS BIGINT) AS "count", CAST(SUM("bytes") AS BIGINT) AS "bytes", MAX("updated_at") AS "updated_at", SUM("pending") AS "pending" FROM (SELECT * FROM (SELECT "dataset_id", "status", CAST(SUM("count") AS BIGINT) AS "count", CAST(SUM("bytes") AS BIGINT) AS "bytes", MAX("updated_at") AS "updated_at", SUM("pending") AS "pending" FROM (SELECT "dataset_id", "status", "count" AS "count", "bytes" AS "bytes", "updated_at" AS "updated_at", 0 AS "pending" FROM "file_counters" AS "file_counters" UNION ALL SELECT "dataset_id", "status", "count_delta" AS "count", "bytes_delta" AS "bytes", "inserted_at" AS "updated_at", 1 AS "pending" FROM "file_counter_journal" AS "file_counters") AS "deltas" GROUP BY "dataset_id", "status") AS "file_counters" WHERE "file_counters"."count" > $1) AS "file_counters" GROUP BY "dataset_id") AS "file_counters" ORDER BY "file_counters"."bytes" DESC, "file_counters"."dataset_id" LIMIT 10
-- [0]

-- distribution
SELECT "file_counters"."dataset_id", "file_counters"."count", "file_counters"."bytes", "file_counters"."updated_at", "file_counters"."pending", "file_counters"."entcounter_weight", "file_counters"."entcounter_up_to", "file_counters"."entcounter_rows", "file_counters"."entcounter_distinct", "file_counters"."entcounter_added", "file_counters"."entcounter_number" FROM (SELECT *, SUM("entcounter_weight") OVER (ORDER BY "dataset_id") AS "entcounter_up_to", SUM("entcounter_weight") OVER () AS "entcounter_rows", SUM(CASE WHEN "entcounter_weight" > 0 THEN 1 ELSE 0 END) OVER () AS "entcounter_distinct", SUM("pending") OVER () AS "entcounter_added", ROW_NUMBER() OVER (ORDER BY "dataset_id") AS "entcounter_place" FROM (SELECT "dataset_id", CAST(SUM("count") AS BIGINT) AS "count", CAST(SUM("bytes") AS BIGINT) AS "bytes", MAX("updated_at") AS "updated_at", SUM("pending") AS "pending", SUM(CASE WHEN "count" > 0 THEN "count" ELSE 0 END) AS "entcounter_weight", "dataset_id" AS "entcounter_number" FROM (SELECT * FROM (SELECT "dataset_id", "status", CAST(SUM("count") AS BIGINT) AS "count", CAST(SUM("bytes") AS BIGINT) AS "bytes", MAX("updated_at") AS "updated_at", SUM("pending") AS "pending" FROM (SELECT "dataset_id", "status", "count" AS "count", "bytes" AS "bytes", "updated_at" AS "updated_at", 0 AS "pending" FROM "file_counters" AS "file_counters" WHERE "file_counters"."status" = $1 UNION ALL SELECT "dataset_id", "status", "count_delta" AS "count", "bytes_delta" AS "bytes", "inserted_at" AS "updated_at", 1 AS "pending" FROM "file_counter_journal" AS "file_counters" WHERE "file_counters"."status" = $2) AS "deltas" GROUP BY "dataset_id", "status") AS "file_counters" WHERE "file_counters"."status" = $3) AS "file_counters" GROUP BY "dataset_id") AS "file_counters") AS "file_counters" WHERE "entcounter_place" = 1 OR "entcounter_weight" > 0 AND ("entcounter_up_to" = "entcounter_weight" OR "entcounter_up_to" = "entcounter_rows" OR "entcounter_up_to" - "entcounter_weight" - 2 < 0.5 * ("entcounter_rows" - 1) AND "entcounter_up_to" + 2 > 0.5 * ("entcounter_rows" - 1)) ORDER BY "file_counters"."dataset_id"
-- [new new new]

