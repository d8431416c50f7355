# shellcheck shell=bash
# PgBouncer is no service of ours: the tests that need a pooler start their own.
# Only the program must be there.

# find_pgbouncer prints the program. Debian puts it where users who are not root
# do not look.
find_pgbouncer() {
	local path
	for path in "$(command -v pgbouncer)" /usr/sbin/pgbouncer /opt/homebrew/bin/pgbouncer /usr/local/bin/pgbouncer; do
		if [ -n "$path" ] && [ -x "$path" ]; then
			echo "$path"
			return
		fi
	done
	return 1
}
