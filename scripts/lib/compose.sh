# shellcheck shell=bash
# The last resort: containers, with compose.yaml, where a Docker engine answers.

compose() { docker compose -p "oxbow-$(printf '%s' "$ROOT" | cksum | cut -d' ' -f1)" -f "$ROOT/compose.yaml" "$@" </dev/null; }

compose_answers() {
	command -v docker >/dev/null && docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1
}

compose_start() {
	local name=$1 log=$STATE/$1.log address inner=5432
	[ "$name" = postgres ] || inner=5672
	say "$name: starting in a container (the image is fetched the first time)"
	: >"$STATE/compose"
	set_state "$name" mode compose
	with_ticks "$name: still starting" quietly "$log" compose up --detach --wait "$name"
	address=$(compose port "$name" "$inner")
	case $name in
	postgres) set_state "$name" url "postgres://oxbow:oxbow@$address/oxbow?sslmode=disable" ;;
	rabbitmq) set_state "$name" url "amqp://guest:guest@$address/" ;;
	esac
	say "$name: ready at $(state "$name" url)"
}

compose_running() { [ -n "$(compose ps --quiet --status running "$1" 2>/dev/null)" ]; }

# compose_down removes the containers, if some were started.
compose_down() {
	[ -e "$STATE/compose" ] || return 0
	quietly "$STATE/compose.log" compose down --volumes --timeout 5
	rm -f "$STATE/compose"
}
