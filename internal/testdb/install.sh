#!/bin/sh
# Installs what the tests need, as far as it is missing: database servers, the checker of alert rules, and the
# browser that the console is looked at with.
#
#   MariaDB     Debian's mariadb-server-core and -client-core (programs, no service)
#   PostgreSQL  Debian's postgresql
#   MySQL       Oracle's server, which Debian ships in sid only: its packages are unpacked,
#               with every library they need, into ${ENTCOUNTER_CACHE:-$HOME/.cache/entcounter}/mysql,
#               and nothing of sid is ever installed or added to the machine's apt sources.
#   promtool    of Debian's prometheus, whose package would start a service: it is unpacked
#               into the same folder's prometheus
#   Chromium    Debian's chromium
#
# A kind whose DSN is in the environment (ENTCOUNTER_MARIADB_DSN, ENTCOUNTER_MYSQL_DSN,
# ENTCOUNTER_POSTGRES_DSN) needs nothing, nor does the browser if ENTCOUNTER_CHROMIUM names its program;
# where a container engine answers, no server is needed on a machine that cannot install. Run again, it
# only looks.
#
# `install.sh postgres18` also unpacks PostgreSQL 18 with the extension pg_ivm, likewise from sid, into
# ${ENTCOUNTER_CACHE:-/var/cache/entcounter}/postgres18: for `go run ./bench -postgres18`, and for tests with
# ENTCOUNTER_POSTGRES_BIN. It is not in a home directory, through which the user postgres cannot pass.
set -eu

cache=${ENTCOUNTER_CACHE:-${HOME:-/root}/.cache/entcounter}
shared_cache=${ENTCOUNTER_CACHE:-/var/cache/entcounter}
case ${1:-} in
"") with_postgres18= ;;
postgres18) with_postgres18=yes ;;
*)
	echo "usage: install.sh [postgres18]" >&2
	exit 2
	;;
esac
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

say() { echo "install.sh: $*" >&2; }

has_mariadb() {
	[ -n "${ENTCOUNTER_MARIADB_DSN:-}" ] && return
	PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null &&
		command -v mariadb-install-db >/dev/null && command -v my_print_defaults >/dev/null
}

has_postgres() {
	[ -n "${ENTCOUNTER_POSTGRES_DSN:-}" ] && return
	for initdb in /usr/lib/postgresql/*/bin/initdb; do
		[ -x "$initdb" ] && return
	done
	command -v initdb >/dev/null && command -v postgres >/dev/null
}

has_mysql() {
	[ -n "${ENTCOUNTER_MYSQL_DSN:-}" ] && return
	[ -x "$cache/mysql/mysqld" ] && return
	# MariaDB installs a mysqld too, which is not the one meant here.
	mysqld=$(PATH=$PATH:/usr/sbin command -v mysqld) || return
	case $("$mysqld" --version 2>/dev/null) in *MariaDB* | '') return 1 ;; esac
}

has_promtool() {
	command -v promtool >/dev/null || [ -x "$cache/prometheus/promtool" ]
}

has_chromium() {
	[ -n "${ENTCOUNTER_CHROMIUM:-}" ] && return
	for name in chromium chromium-browser google-chrome google-chrome-stable; do
		command -v "$name" >/dev/null && return
	done
	return 1
}

has_postgres18() {
	[ -z "$with_postgres18" ] || [ -x "$shared_cache/postgres18/usr/lib/postgresql/18/bin/postgres" ]
}

# missing prints what is still missing.
missing() {
	has_mariadb || echo MariaDB
	has_postgres || echo PostgreSQL
	has_mysql || echo MySQL
	has_promtool || echo promtool
	has_chromium || echo Chromium
	has_postgres18 || echo PostgreSQL-18
}

todo=$(missing)
[ -n "$todo" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || ! grep -qs '^ID=debian' /etc/os-release; then
	if has_promtool && has_chromium && command -v docker >/dev/null && docker info >/dev/null 2>&1; then
		say "not installed, containers will do:" $todo
		exit 0
	fi
	say "missing:" $todo
	say "this script installs them as root on Debian only. By hand, one of these for each:"
	say "  - install the server (mariadbd and mariadb-install-db; initdb and postgres; Oracle's mysqld)"
	say "  - set ENTCOUNTER_MARIADB_DSN, ENTCOUNTER_POSTGRES_DSN, ENTCOUNTER_MYSQL_DSN to an admin DSN"
	say "  - start docker, and the tests start containers"
	say "  - for promtool, install Prometheus"
	say "Chromium or Google Chrome: install it, or set ENTCOUNTER_CHROMIUM to its program"
	exit 1
fi

mkdir -p "$cache"
# Two runs at once would fight for apt; the second one waits, and then finds nothing to do.
exec 9>"$cache/install.lock"
flock 9

work=$(mktemp -d "$cache/install.XXXXXX")
policy=/usr/sbin/policy-rc.d
own_policy=
cleanup() {
	[ -z "$own_policy" ] || rm -f "$policy"
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

apt() { apt-get -y -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" </dev/null 9>&- >>"$work/log" 2>&1; }

fail() {
	tail -n 30 "$work/log" >&2 || :
	say "$*"
	exit 1
}

# install_debian PACKAGE...: from the machine's own sources, starting no service.
install_debian() {
	# Debian packages start their service unless this program says no (exit 101). One that is there
	# already is somebody's decision, and stays.
	if [ ! -e "$policy" ]; then
		own_policy=yes
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	# The lists may be absent, or too old to fetch by: then update, and try again.
	apt install --no-install-recommends "$@" ||
		{ apt update && apt install --no-install-recommends "$@"; } ||
		fail "could not install $*"
}

# sid ARGUMENT...: apt-get with lists, cache, status and sources of its own. The empty status makes
# it download every dependency, libc included, since nothing of the machine's own may be relied on.
sid() {
	apt -o Dir::Etc::SourceList="$work/sid.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" \
		-o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none \
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
		-o APT::Update::Post-Invoke::= -o APT::Update::Post-Invoke-Success::= "$@"
}

# sid_lists fetches sid's package list from the first mirror that has it, out of those that the
# machine's own sources use for its release (which leaves out security and updates).
sid_lists() {
	release=$(. /etc/os-release && echo "${VERSION_CODENAME:-sid}")
	mirrors=$(apt-get --print-uris update 9>&- |
		sed -n "s|^'\([a-z]*://.*\)/dists/$release/InRelease'.*|\1|p")
	for mirror in $mirrors; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg check-valid-until=no]" \
			"$mirror sid main" >"$work/sid.list"
		if sid update --error-on=any; then
			return
		fi
	done
	return 1
}

# unpack_sid PACKAGE...: with every library that they need, into $work/root.
unpack_sid() {
	rm -rf "$work/cache" "$work/root"
	mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root"
	: >"$work/status"
	sid_lists || fail "found no Debian mirror with sid among the machine's apt sources"
	# docker-clean and its like delete what was downloaded; keep it.
	sid install --download-only --no-install-recommends -o APT::Keep-Downloaded-Packages=true \
		"$@" || fail "could not download $*"
	for deb in "$work"/cache/archives/*.deb; do
		dpkg -x "$deb" "$work/root" || fail "could not unpack $deb"
	done
	# A program runs by the loader and the libraries that it was linked with, wherever the folder is.
	libs=$(cd "$work/root/usr/lib" && echo *-linux-gnu*)
	loader=$(cd "$work/root" && ls usr/lib/*/ld-linux*.so.* usr/lib64/ld-linux*.so.* 2>/dev/null | head -n 1)
}

install_mysql() {
	unpack_sid mysql-server-core
	cat >"$work/root/mysqld" <<-END
		#!/bin/sh
		root=\$(cd "\$(dirname "\$0")" && pwd)
		exec "\$root/$loader" --library-path "\$root/usr/lib/$libs" "\$root/usr/sbin/mysqld" "\$@" \\
			--basedir="\$root/usr" \\
			--lc-messages-dir="\$root/usr/share/mysql" \\
			--character-sets-dir="\$root/usr/share/mysql/charsets"
	END
	chmod 755 "$work/root/mysqld"
	"$work/root/mysqld" --version >>"$work/log" 2>&1 || fail "the unpacked mysqld does not run"
	# A rename, so that an interrupted run leaves nothing that looks installed.
	rm -rf "$cache/mysql"
	mv "$work/root" "$cache/mysql"
}

install_promtool() {
	mkdir "$work/prometheus"
	# apt-get download writes into the working folder, as a user of its own if that may.
	(cd "$work/prometheus" && apt download -o APT::Sandbox::User=root prometheus) ||
		{ apt update && (cd "$work/prometheus" && apt download -o APT::Sandbox::User=root prometheus); } ||
		fail "could not download prometheus"
	dpkg -x "$work"/prometheus/*.deb "$work/prometheus/root" || fail "could not unpack prometheus"
	mkdir -p "$cache/prometheus"
	mv "$work/prometheus/root/usr/bin/promtool" "$cache/prometheus/promtool"
}

install_postgres18() {
	unpack_sid postgresql-18 postgresql-18-pg-ivm
	bin=usr/lib/postgresql/18/bin
	# Each program finds the others, and its files, by the folder that it is called in.
	for program in initdb postgres; do
		mv "$work/root/$bin/$program" "$work/root/$bin/$program.bin"
		cat >"$work/root/$bin/$program" <<-END
			#!/bin/sh
			bin=\$(cd "\$(dirname "\$0")" && pwd)
			root=\${bin%/$bin}
			exec "\$root/$loader" --argv0 "\$bin/$program" --library-path "\$root/usr/lib/$libs" "\$bin/$program.bin" "\$@"
		END
		chmod 755 "$work/root/$bin/$program"
		"$work/root/$bin/$program" --version >>"$work/log" 2>&1 || fail "the unpacked $program does not run"
	done
	mkdir -p "$shared_cache"
	rm -rf "$shared_cache/postgres18" "$shared_cache/postgres18.new"
	chmod 755 "$work/root"
	cp -a "$work/root" "$shared_cache/postgres18.new"
	mv "$shared_cache/postgres18.new" "$shared_cache/postgres18"
}

# A run that this one waited for may have installed it all.
todo=$(missing)
[ -z "$todo" ] || say "installing:" $todo
packages=
has_mariadb || packages="$packages mariadb-server-core mariadb-client-core"
has_postgres || packages="$packages postgresql"
has_chromium || packages="$packages chromium"
[ -z "$packages" ] || install_debian $packages
has_mysql || install_mysql
has_promtool || install_promtool
has_postgres18 || install_postgres18

todo=$(missing)
[ -z "$todo" ] || fail "still missing:" $todo
