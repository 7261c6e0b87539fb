#!/bin/sh
# Look for the server programs of PostgreSQL, which the tests of its sink start; install them where
# that is safe to do unasked, otherwise print the command for this platform. Never fails: without
# them those tests are skipped.
set -u

# True when Debian's folder or the PATH holds the programs.
postgres_found() {
    for program in /usr/lib/postgresql/*/bin/initdb; do
        [ -x "$program" ] && return 0
    done
    command -v initdb >/dev/null 2>&1
}

on_debian() {
    command -v apt-get >/dev/null 2>&1 && [ -r /etc/os-release ] &&
        grep -Eq '^(ID|ID_LIKE)=.*(debian|ubuntu)' /etc/os-release
}

# Without a cluster of its own: the tests make one in a temporary folder.
install_on_debian() {
    echo "no PostgreSQL found: installing Debian's package"
    apt-get update -qq || return 1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        postgresql-common || return 1
    conf=/etc/postgresql-common/createcluster.conf
    [ -w "$conf" ] && sed -i 's/^#*create_main_cluster.*/create_main_cluster = false/' "$conf"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql
}

command_for_platform() {
    if on_debian; then
        echo "sudo apt-get update && sudo apt-get install -y postgresql"
    elif command -v dnf >/dev/null 2>&1; then
        echo "sudo dnf install -y postgresql-server"
    elif [ "$(uname -s)" = Darwin ]; then
        echo "brew install postgresql"
    else
        echo "install the PostgreSQL server, and put the folder of initdb on the PATH"
    fi
}

postgres_found && exit 0
if on_debian && [ "$(id -u)" -eq 0 ]; then
    install_on_debian >&2
    postgres_found && exit 0
fi
{
    echo "no PostgreSQL found; the tests of the sink into it are skipped, all else works without"
    echo "hint: $(command_for_platform)"
} >&2
exit 0
