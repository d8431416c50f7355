# shellcheck shell=bash
# What the parts of scripts/services share: progress lines, the lock, the state
# under .services/NAME/ (one small file per fact), ports and processes.

say() { printf '[%3ds] %s\n' "$SECONDS" "$*" >&2; }
die() {
	say "$*"
	exit 1
}

# take_lock lets one command of a checkout run at a time.
take_lock() {
	mkdir -p "$STATE"
	if command -v flock >/dev/null; then
		exec 9>"$STATE/lock"
		flock -n 9 || {
			say 'waiting for another scripts/services of this checkout'
			flock 9
		}
		return
	fi
	exec 9>/dev/null
	until mkdir "$STATE/lock.d" 2>/dev/null; do
		kill -0 "$(cat "$STATE/lock.d/pid" 2>/dev/null || echo $$)" 2>/dev/null || rm -rf "$STATE/lock.d"
		sleep 0.2
	done
	echo $$ >"$STATE/lock.d/pid"
	trap 'rm -rf "$STATE/lock.d"' EXIT
}

# state NAME FACT prints a stored fact, or nothing; set_state stores one.
state() { cat "$STATE/$1/$2" 2>/dev/null || true; }
set_state() {
	mkdir -p "$STATE/$1"
	printf '%s\n' "$3" >"$STATE/$1/$2"
}

given_url() {
	case $1 in
	postgres) printf '%s' "${DATABASE_URL:-}" ;;
	rabbitmq) printf '%s' "${AMQP_URL:-}" ;;
	esac
}

# is_given says whether the environment names a server that is not ours.
is_given() {
	local url
	url=$(given_url "$1")
	[ -n "$url" ] && [ "$url" != "$(state "$1" url)" ]
}

# check_given refuses a URL behind which nothing answers, for example one left
# over from servers that were ended.
check_given() {
	local url host_port variable
	url=$(given_url "$1")
	variable=DATABASE_URL
	[ "$1" = postgres ] || variable=AMQP_URL
	host_port=$(printf '%s' "$url" | sed -nE 's,^[a-z]+://([^@/]*@)?([^/?,:]+):([0-9]+)([/?].*)?$,\2 \3,p')
	# shellcheck disable=SC2086
	if [ -n "$host_port" ] && ! answers $host_port; then
		die "$variable is set, but nothing answers at ${host_port/ /:}: start it, or unset $variable to have one started"
	fi
	say "$1: using $variable"
}

url_of() {
	if is_given "$1"; then
		given_url "$1"
	elif is_running "$1"; then
		state "$1" url
	else
		return 1
	fi
}

answers() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }

# free_port picks a port below the range that the kernel hands out for outgoing
# connections. Between this look and the server's start another program may take
# it, so starts are tried again on another port.
free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		answers 127.0.0.1 "$port" || break
	done
	echo "$port"
}

# owns says whether process $1 lives and has $2 in its command line: a pid alone
# may have gone to another program since.
owns() {
	[ -n "$1" ] || return 1
	if [ -r "/proc/$1/cmdline" ]; then
		tr '\0' ' ' <"/proc/$1/cmdline" | grep -qF -- "$2"
	elif [ ! -d /proc/self ]; then
		ps -o command= -p "$1" 2>/dev/null | grep -qF -- "$2"
	else
		return 1
	fi
}

# end_process ends process $1 if it is ours: signal $3 first, KILL after 10 s.
end_process() {
	local pid=$1 mark=$2 tries=0
	owns "$pid" "$mark" || return 0
	kill -s "$3" "$pid" 2>/dev/null || return 0
	while owns "$pid" "$mark"; do
		tries=$((tries + 1))
		if [ "$tries" = 100 ]; then kill -s KILL "$pid" 2>/dev/null || true; fi
		sleep 0.1
	done
}

is_running() {
	case $(state "$1" mode) in
	local) owns "$(state "$1" pid)" "$(state "$1" mark)" ;;
	compose) compose_running "$1" ;;
	*) return 1 ;;
	esac
}

# forget ends a server of ours, if one runs, and removes its data.
forget() {
	if [ "$(state "$1" mode)" = local ]; then
		! is_running "$1" || say "$1: ending"
		"stop_$1"
	fi
	local data
	data=$(state "$1" data)
	[ -z "$data" ] || rm -rf "$data"
	rm -rf "${STATE:?}/$1"
}

# quietly runs a command with its output in log $1; a failure shows the log's end.
quietly() {
	local log=$1
	shift
	"$@" >>"$log" 2>&1 </dev/null && return
	say "this did not work: $*"
	tail -n 15 "$log" >&2
	return 1
}

# with_ticks runs a command and says every 10 s that it still does.
with_ticks() {
	local label=$1 pid ticks=0
	shift
	"$@" &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.5
		ticks=$((ticks + 1))
		[ $((ticks % 20)) != 0 ] || say "$label …"
	done
	wait "$pid"
}
