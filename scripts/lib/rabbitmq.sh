# shellcheck shell=bash
# A private RabbitMQ: its own node name, ports, epmd, cookie and folders, so that
# a RabbitMQ of the machine is neither seen nor touched.

# find_rabbitmq prints the folder of RabbitMQ's scripts. Debian's wrapper in
# /usr/sbin is passed over: it changes to the user rabbitmq.
find_rabbitmq() {
	local path
	for path in /usr/lib/rabbitmq/bin/rabbitmq-server /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server \
		/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server /usr/local/opt/rabbitmq/sbin/rabbitmq-server "$(command -v rabbitmq-server)"; do
		if [ -x "$path" ] && [ "$path" != /usr/sbin/rabbitmq-server ]; then
			dirname "$path"
			return
		fi
	done
	return 1
}

# rabbitmq_environment exports what makes a node of our own; used by the server
# and by rabbitmqctl.
rabbitmq_environment() {
	local dir=$STATE/rabbitmq
	export HOME=$dir/home
	export ERL_EPMD_PORT ERL_EPMD_ADDRESS=127.0.0.1
	ERL_EPMD_PORT=$(state rabbitmq epmd_port)
	export RABBITMQ_NODENAME=oxbow@localhost
	export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1
	export RABBITMQ_NODE_PORT RABBITMQ_DIST_PORT
	RABBITMQ_NODE_PORT=$(state rabbitmq port)
	RABBITMQ_DIST_PORT=$(state rabbitmq dist_port)
	export RABBITMQ_CONF_ENV_FILE=$dir/rabbitmq-env.conf
	export RABBITMQ_CONFIG_FILE=$dir/rabbitmq.conf
	export RABBITMQ_ADVANCED_CONFIG_FILE=$dir/advanced.config
	export RABBITMQ_MNESIA_BASE=$dir/mnesia
	export RABBITMQ_LOG_BASE=$dir/log
	export RABBITMQ_PID_FILE=$dir/server.pid
	export RABBITMQ_ENABLED_PLUGINS_FILE=$dir/enabled_plugins
	export RABBITMQ_PLUGINS_EXPAND_DIR=$dir/plugins
	export RABBITMQ_GENERATED_CONFIG_DIR=$dir/config
	# The cores are shared with the tests: schedulers sleep instead of spinning, and
	# where there are two cores, two would spend a quarter of their time on waking
	# each other.
	local schedulers=''
	[ "$(getconf _NPROCESSORS_ONLN)" -gt 2 ] || schedulers='+S 1:1'
	export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} $schedulers +sbwt none +sbwtdcpu none +sbwtdio none"
}

rabbitmq_files() {
	local dir=$STATE/rabbitmq
	mkdir -p "$dir/home" "$dir/log" "$dir/mnesia" "$dir/config"
	printf '%s%s%s' "$RANDOM" "$RANDOM" "$$" >"$dir/home/.erlang.cookie"
	chmod 400 "$dir/home/.erlang.cookie"
	echo '[].' >"$dir/enabled_plugins"
	echo '[].' >"$dir/advanced.config"
	: >"$dir/rabbitmq-env.conf"
	cat >"$dir/rabbitmq.conf" <<'CONF'
loopback_users = none
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
log.console = false
CONF
}

start_rabbitmq() {
	local bin try
	bin=$(find_rabbitmq)
	for try in 1 2 3; do
		rabbitmq_files
		if rabbitmq_boot "$bin"; then
			set_state rabbitmq url "amqp://guest:guest@127.0.0.1:$(state rabbitmq port)/"
			set_state rabbitmq mode local
			say "rabbitmq: ready at $(state rabbitmq url)"
			return
		fi
		tail -n 15 "$STATE/rabbitmq.log" "$STATE"/rabbitmq/log/*.log >&2 2>/dev/null || true
		stop_rabbitmq
		rm -rf "$STATE/rabbitmq"
		[ "$try" = 3 ] || say 'rabbitmq: once more, on other ports'
	done
	return 1
}

# rabbitmq_boot starts epmd and the node and waits until the node speaks AMQP.
rabbitmq_boot() {
	local bin=$1 pid deadline tick=0
	set_state rabbitmq epmd_port "$(free_port)"
	set_state rabbitmq port "$(free_port)"
	set_state rabbitmq dist_port "$(free_port)"
	set_state rabbitmq mark "$STATE/rabbitmq/"
	say 'rabbitmq: starting (about 10 s)'
	pid=$(
		rabbitmq_environment
		cd "$STATE/rabbitmq"
		: >"$STATE/rabbitmq.log"
		detached "$(find_epmd)" -port "$ERL_EPMD_PORT" -address 127.0.0.1
		echo "$!" >epmd_pid
		detached "$bin/rabbitmq-server"
		echo "$!"
	)
	set_state rabbitmq script_pid "$pid"
	deadline=$((SECONDS + 120))
	until speaks_amqp "$(state rabbitmq port)"; do
		kill -0 "$pid" 2>/dev/null || return 1
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.2
		tick=$((tick + 1))
		[ $((tick % 50)) != 0 ] || say 'rabbitmq: still starting …'
	done
	set_state rabbitmq pid "$(cat "$STATE/rabbitmq/server.pid")"
}

# detached starts a command in the background, in a session of its own so that
# an interrupt at the terminal does not reach it.
detached() {
	local session=''
	! command -v setsid >/dev/null || session=setsid
	$session "$@" >>"$STATE/rabbitmq.log" 2>&1 </dev/null &
}

find_epmd() {
	command -v epmd || ls /usr/lib/erlang/bin/epmd /usr/lib/erlang/erts-*/bin/epmd 2>/dev/null | head -n 1
}

# speaks_amqp sends the protocol header and waits for the first byte of an answer.
speaks_amqp() {
	(
		exec 3<>"/dev/tcp/127.0.0.1/$1"
		printf 'AMQP\x00\x00\x09\x01' >&3
		IFS= read -r -t 5 -n 1 _ <&3
	) 2>/dev/null
}

stop_rabbitmq() {
	end_process "$(state rabbitmq pid)" "$(state rabbitmq mark)" TERM
	end_process "$(state rabbitmq script_pid)" rabbitmq TERM
	end_process "$(state rabbitmq epmd_pid)" "-port $(state rabbitmq epmd_port)" TERM
}

rabbitmq_ctl() {
	[ "$(state rabbitmq mode)" = local ] || die 'ctl needs a RabbitMQ that scripts/services started from installed programs'
	local bin
	bin=$(find_rabbitmq)
	rabbitmq_environment
	"$bin/rabbitmqctl" "$@"
}
