-- Add column "done_at" to table: "counter_locks"
ALTER TABLE `counter_locks` ADD COLUMN `done_at` datetime NULL;
-- Add column "total_rows" to table: "counter_locks"
ALTER TABLE `counter_locks` ADD COLUMN `total_rows` integer NULL;
-- Add column "last_rows" to table: "counter_locks"
ALTER TABLE `counter_locks` ADD COLUMN `last_rows` integer NULL;
-- Add column "last_micros" to table: "counter_locks"
ALTER TABLE `counter_locks` ADD COLUMN `last_micros` integer NULL;
