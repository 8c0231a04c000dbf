# For those who have the Atlas command line: the folders and the table of revisions are those of
# `go run ./migrate`, so that either goes on where the other has stopped.
#
#   atlas migrate status --env mysql --var url="mysql://user:password@localhost:3306/files"
#   atlas migrate apply  --env mysql --var url="mysql://user:password@localhost:3306/files"
#   atlas migrate diff add_something --env mysql_diff
#
# The environments named *_diff take the desired schema from the program that prints it, which the official
# builds of Atlas can do. With the others, print it to a file and give --to file://schema.sql. Not ent://: it
# reads schema/ without the extensions in ent/entc.go, knows no tables of counters, and plans to drop them.

variable "url" {
  type    = string
  default = ""
}

locals {
  folder = {
    mysql    = "file://migrate/migrations/mysql"
    mariadb  = "file://migrate/migrations/mysql" # shared
    postgres = "file://migrate/migrations/postgres"
    sqlite   = "file://migrate/migrations/sqlite"
  }
  dev = {
    mysql    = "docker://mysql/8/dev"
    mariadb  = "docker://mariadb/10.11/dev"
    postgres = "docker://postgres/15/dev?search_path=public"
    sqlite   = "sqlite://dev?mode=memory"
  }
}

env "mysql" {
  url = var.url
  dev = local.dev.mysql
  migration {
    dir = local.folder.mysql
  }
}

env "mariadb" {
  url = var.url
  dev = local.dev.mariadb
  migration {
    dir = local.folder.mariadb
  }
}

env "postgres" {
  url = var.url
  dev = local.dev.postgres
  migration {
    dir = local.folder.postgres
  }
}

env "sqlite" {
  url = var.url
  dev = local.dev.sqlite
  migration {
    dir = local.folder.sqlite
  }
}

data "external_schema" "mysql" {
  program = ["go", "run", "./migrate", "schema", "-dialect", "mysql"]
}

data "external_schema" "postgres" {
  program = ["go", "run", "./migrate", "schema", "-dialect", "postgres"]
}

data "external_schema" "sqlite" {
  program = ["go", "run", "./migrate", "schema", "-dialect", "sqlite"]
}

env "mysql_diff" {
  src = data.external_schema.mysql.url
  dev = local.dev.mysql
  migration {
    dir = local.folder.mysql
  }
}

env "postgres_diff" {
  src = data.external_schema.postgres.url
  dev = local.dev.postgres
  migration {
    dir = local.folder.postgres
  }
}

env "sqlite_diff" {
  src = data.external_schema.sqlite.url
  dev = local.dev.sqlite
  migration {
    dir = local.folder.sqlite
  }
}
