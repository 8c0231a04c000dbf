-- Create "datasets" table
CREATE TABLE `datasets` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(255) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE INDEX `name` (`name`)
) CHARSET utf8mb4 COLLATE utf8mb4_bin;
-- Create "file_counters" table
CREATE TABLE `file_counters` (
  `dataset_id` bigint NOT NULL,
  `status` enum('New','Copying','Copied','Failed') NOT NULL,
  `count` bigint NOT NULL,
  `bytes` bigint NOT NULL,
  `updated_at` datetime(6) NOT NULL,
  PRIMARY KEY (`dataset_id`, `status`)
) CHARSET utf8mb4 COLLATE utf8mb4_bin;
-- Create "file_counter_journal" table
CREATE TABLE `file_counter_journal` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `dataset_id` bigint NOT NULL,
  `status` enum('New','Copying','Copied','Failed') NOT NULL,
  `count_delta` bigint NOT NULL,
  `bytes_delta` bigint NOT NULL,
  `inserted_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  INDEX `file_counter_journal_by_key` (`dataset_id`, `status`)
) CHARSET utf8mb4 COLLATE utf8mb4_bin;
-- Create "counter_locks" table
CREATE TABLE `counter_locks` (
  `counter_name` varchar(64) NOT NULL,
  `operation` varchar(16) NOT NULL,
  `version` bigint NOT NULL,
  `declaration` varchar(2000) NOT NULL,
  `done_at` datetime(6) NULL,
  `total_rows` bigint NULL,
  `last_rows` bigint NULL,
  `last_micros` bigint NULL,
  PRIMARY KEY (`counter_name`, `operation`)
) CHARSET utf8mb4 COLLATE utf8mb4_bin;
-- Create "files" table
CREATE TABLE `files` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `path` varchar(700) NOT NULL,
  `size` bigint NOT NULL,
  `status` enum('New','Copying','Copied','Failed') NOT NULL DEFAULT "New",
  `dataset_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE INDEX `file_dataset_id_path` (`dataset_id`, `path`),
  INDEX `file_dataset_id_status` (`dataset_id`, `status`),
  CONSTRAINT `files_datasets_files` FOREIGN KEY (`dataset_id`) REFERENCES `datasets` (`id`) ON UPDATE NO ACTION ON DELETE CASCADE
) CHARSET utf8mb4 COLLATE utf8mb4_bin;
