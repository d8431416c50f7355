# shellcheck shell=bash
# A private Postgres: initdb and pg_ctl, as user postgres when we are root,
# since Postgres refuses to run as root.

# find_postgres prints the folder of Postgres's programs.
find_postgres() {
	local dir found=''
	if command -v initdb >/dev/null; then
		dir=$(dirname "$(readlink -f "$(command -v initdb)")")
		if [ -x "$dir/postgres" ]; then
			echo "$dir"
			return
		fi
	fi
	for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin; do
		[ ! -x "$dir/initdb" ] || found="$found$dir
"
	done
	[ -n "$found" ] || return 1
	printf '%s' "$found" | sort -V | tail -n 1
}

postgres_user() {
	if id postgres >/dev/null 2>&1; then echo postgres; else echo nobody; fi
}

as_postgres() {
	if [ "$(id -u)" = 0 ]; then
		runuser -u "$(postgres_user)" -- "$@"
	else
		"$@"
	fi
}

# postgres_data makes the folder for the data: under .services, or under
# /var/tmp where user postgres may not enter the checkout.
postgres_data() {
	local dir=$STATE/postgres/cluster
	mkdir -p "$STATE/postgres"
	if ! as_postgres test -x "$STATE/postgres"; then
		dir=/var/tmp/oxbow-services-$(printf '%s' "$ROOT" | cksum | cut -d' ' -f1)
	fi
	rm -rf "$dir"
	mkdir -p "$dir"
	chmod 700 "$dir"
	[ "$(id -u)" != 0 ] || chown "$(postgres_user)" "$dir"
	echo "$dir"
}

start_postgres() {
	local bin data port log=$STATE/postgres.log try
	bin=$(find_postgres)
	cd /
	data=$(postgres_data)
	set_state postgres data "$data"
	set_state postgres mark "$data"
	: >"$log"
	say "postgres: creating a cluster ($("$bin/postgres" --version | sed 's/^postgres (PostgreSQL) //'))"
	# shellcheck disable=SC2046
	quietly "$log" as_postgres "$bin/initdb" -D "$data" -U oxbow -A trust -E UTF8 --no-sync --no-instructions $(postgres_locale "$bin")
	postgres_config | as_postgres tee -a "$data/postgresql.conf" >/dev/null
	for try in 1 2 3 4 5; do
		port=$(free_port)
		if quietly "$log" as_postgres "$bin/pg_ctl" start -w -t 60 -D "$data" -l "$data/server.log" -o "-p $port"; then
			break
		fi
		tail -n 5 "$data/server.log" >&2
		[ "$try" != 5 ] || return 1
	done
	set_state postgres pid "$(head -n 1 "$data/postmaster.pid")"
	set_state postgres url "postgres://oxbow@127.0.0.1:$port/oxbow?sslmode=disable"
	set_state postgres mode local
	quietly "$log" as_postgres "$bin/createdb" -h 127.0.0.1 -p "$port" -U oxbow oxbow
	say "postgres: ready at $(state postgres url)"
}

# postgres_locale asks for the collation of a language, as production databases
# have it, so that text which must compare bytewise is seen to do so.
postgres_locale() {
	if "$1/initdb" --help | grep -q -- --icu-locale && as_postgres "$1/initdb" --help | grep -q -- --locale-provider; then
		echo --locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US
	else
		echo --locale=C
	fi
}

# postgres_config trades durability for speed: the data live as long as the test.
postgres_config() {
	cat <<'CONF'
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
shared_buffers = 256MB
fsync = off
synchronous_commit = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_wal_size = 4GB
checkpoint_timeout = 30min
jit = off
CONF
}

stop_postgres() { end_process "$(state postgres pid)" "$(state postgres mark)" QUIT; }
