-- Modify "counter_locks" table
ALTER TABLE `counter_locks` ADD COLUMN `done_at` datetime(6) NULL, ADD COLUMN `total_rows` bigint NULL, ADD COLUMN `last_rows` bigint NULL, ADD COLUMN `last_micros` bigint NULL;
