-- Create "datasets" table
CREATE TABLE `datasets` (
  `id` integer NOT NULL PRIMARY KEY AUTOINCREMENT,
  `name` text NOT NULL
);
-- Create index "datasets_name_key" to table: "datasets"
CREATE UNIQUE INDEX `datasets_name_key` ON `datasets` (`name`);
-- Create "files" table
CREATE TABLE `files` (
  `id` integer NOT NULL PRIMARY KEY AUTOINCREMENT,
  `path` text NOT NULL,
  `size` integer NOT NULL,
  `status` text NOT NULL DEFAULT ('New'),
  `dataset_id` integer NOT NULL,
  CONSTRAINT `files_datasets_files` FOREIGN KEY (`dataset_id`) REFERENCES `datasets` (`id`) ON DELETE CASCADE
);
-- Create index "file_dataset_id_path" to table: "files"
CREATE UNIQUE INDEX `file_dataset_id_path` ON `files` (`dataset_id`, `path`);
-- Create index "file_dataset_id_status" to table: "files"
CREATE INDEX `file_dataset_id_status` ON `files` (`dataset_id`, `status`);
-- Create "file_counters" table
CREATE TABLE `file_counters` (
  `dataset_id` integer NOT NULL,
  `status` text NOT NULL,
  `count` integer NOT NULL,
  `bytes` integer NOT NULL,
  `updated_at` datetime NOT NULL,
  PRIMARY KEY (`dataset_id`, `status`)
);
-- Create "file_counter_journal" table
CREATE TABLE `file_counter_journal` (
  `id` integer NOT NULL PRIMARY KEY AUTOINCREMENT,
  `dataset_id` integer NOT NULL,
  `status` text NOT NULL,
  `count_delta` integer NOT NULL,
  `bytes_delta` integer NOT NULL,
  `inserted_at` datetime NOT NULL
);
-- Create index "file_counter_journal_by_key" to table: "file_counter_journal"
CREATE INDEX `file_counter_journal_by_key` ON `file_counter_journal` (`dataset_id`, `status`);
-- Create "counter_locks" table
CREATE TABLE `counter_locks` (
  `counter_name` text NOT NULL,
  `operation` text NOT NULL,
  `version` integer NOT NULL,
  `declaration` text NOT NULL,
  `done_at` datetime NULL,
  `total_rows` integer NULL,
  `last_rows` integer NULL,
  `last_micros` integer NULL,
  PRIMARY KEY (`counter_name`, `operation`)
);
