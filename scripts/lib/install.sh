# shellcheck shell=bash
# Installing servers where that is ours to do: as root, with apt-get.

# apt_install installs the Debian packages of the named services. The packages
# would start servers of the whole machine; policy-rc.d keeps them from it.
apt_install() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
	local log=$STATE/apt.log packages='' name policy=/usr/sbin/policy-rc.d ours=no code=0
	for name in "$@"; do
		case $name in
		postgres) packages="$packages postgresql" ;;
		rabbitmq) packages="$packages rabbitmq-server" ;;
		pgbouncer) packages="$packages pgbouncer" ;;
		esac
	done
	say "installing with apt-get:$packages (once per machine; log in .services/apt.log)"
	if [ ! -e "$policy" ]; then
		ours=yes
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	# shellcheck disable=SC2086
	with_ticks 'still installing' apt_get "$log" $packages 9>&- || code=1
	[ "$ours" = no ] || rm -f "$policy"
	if [ "$code" = 0 ]; then
		disable_system_services "$@"
		say 'installed'
	fi
	return "$code"
}

apt_get() {
	local log=$1
	shift
	export DEBIAN_FRONTEND=noninteractive
	quietly "$log" apt-get -o DPkg::Lock::Timeout=300 update ||
		say 'going on with the package lists that are there'
	quietly "$log" apt-get -o DPkg::Lock::Timeout=300 -y --no-install-recommends install "$@"
}

# disable_system_services keeps what was just installed from starting at boot.
disable_system_services() {
	[ -d /run/systemd/system ] || return 0
	local name unit
	for name in "$@"; do
		case $name in
		postgres) unit=postgresql ;;
		rabbitmq) unit=rabbitmq-server ;;
		*) unit=$name ;;
		esac
		systemctl disable --now "$unit" >/dev/null 2>&1 || true
	done
}

how_to_install() {
	case $1 in
	postgres)
		say 'postgres: not found. Install Postgres 14 or newer (Debian: apt-get install postgresql; macOS: brew install postgresql@17),'
		say '          or start a Docker engine, or set DATABASE_URL=postgres://user:password@host:5432/database'
		;;
	rabbitmq)
		say 'rabbitmq: not found. Install RabbitMQ (Debian: apt-get install rabbitmq-server; macOS: brew install rabbitmq),'
		say '          or start a Docker engine, or set AMQP_URL=amqp://user:password@host:5672/'
		;;
	pgbouncer)
		say 'pgbouncer: not found, so the tests behind a pooler are skipped. Install PgBouncer (Debian: apt-get install pgbouncer;'
		say '           macOS: brew install pgbouncer)'
		;;
	esac
}
