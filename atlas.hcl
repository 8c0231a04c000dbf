# For those who have the Atlas command line: the folders and the table of revisions are those of
# `go run ./migrate`, so that either goes on where the other stopped.
#
#   atlas migrate apply --env mysql --var url="mysql://user:password@localhost:3306/files"
#   atlas migrate diff add_something --env mysql
#
# The desired state is printed by this repository's own program, because ent:// reads schema/ without the
# extensions in ent/entc.go: it does not know the tables of counters, and plans to drop them. An external schema
# is a feature of the official builds of Atlas; the others can apply, hash and check.

variable "url" {
  type    = string
  default = ""
}

data "external_schema" "mysql" {
  program = ["go", "run", "./migrate", "schema", "-dialect", "mysql"]
}

data "external_schema" "mariadb" {
  program = ["go", "run", "./migrate", "schema", "-dialect", "mariadb"]
}

data "external_schema" "postgres" {
  program = ["go", "run", "./migrate", "schema", "-dialect", "postgres"]
}

data "external_schema" "sqlite" {
  program = ["go", "run", "./migrate", "schema", "-dialect", "sqlite"]
}

env "mysql" {
  src = data.external_schema.mysql.url
  url = var.url
  dev = "docker://mysql/8/dev"
  migration {
    dir = "file://migrate/migrations/mysql"
  }
}

# MariaDB shares the folder with MySQL.
env "mariadb" {
  src = data.external_schema.mariadb.url
  url = var.url
  dev = "docker://mariadb/10.11/dev"
  migration {
    dir = "file://migrate/migrations/mysql"
  }
}

env "postgres" {
  src = data.external_schema.postgres.url
  url = var.url
  dev = "docker://postgres/15/dev?search_path=public"
  migration {
    dir = "file://migrate/migrations/postgres"
  }
}

env "sqlite" {
  src = data.external_schema.sqlite.url
  url = var.url
  dev = "sqlite://dev?mode=memory"
  migration {
    dir = "file://migrate/migrations/sqlite"
  }
}
