#!/bin/sh
# Look for Java 17 or newer, which Spark needs; install it where that is safe to do unasked,
# otherwise print the command for this platform.
#
# usage: java.sh [--require]    --require: exit with 1 when there is no usable Java in the end
set -u

wanted=17

# Prints the major version of the Java launcher given as argument; fails when it does not run.
major_version() {
    text=$("$1" -version 2>&1) || return 1
    version=$(printf '%s\n' "$text" | sed -n 's/.* version "\([0-9][0-9._]*\).*/\1/p' | head -n 1)
    case $version in
        "") return 1 ;;
        1.*) version=${version#1.} ;; # Java 8 calls itself 1.8
    esac
    printf '%s\n' "${version%%[._]*}"
}

# True when JAVA_HOME, or else the PATH, holds a Java that is new enough.
java_found() {
    if [ -n "${JAVA_HOME:-}" ]; then
        launcher=$JAVA_HOME/bin/java
    else
        launcher=$(command -v java) || return 1
    fi
    major=$(major_version "$launcher") && [ "$major" -ge "$wanted" ]
}

on_debian() {
    command -v apt-get >/dev/null 2>&1 && [ -r /etc/os-release ] &&
        grep -Eq '^(ID|ID_LIKE)=.*(debian|ubuntu)' /etc/os-release
}

# Prints the oldest headless Java runtime on offer that is new enough: 17 where there is one, as
# that is the version Spark is tested with most.
debian_package() {
    apt-cache search --names-only '^openjdk-[0-9]+-jre-headless$' 2>/dev/null |
        sed -n 's/^openjdk-\([0-9]*\)-jre-headless.*/\1/p' | sort -n |
        awk -v wanted="$wanted" '$1 >= wanted { print "openjdk-" $1 "-jre-headless"; exit }'
}

install_on_debian() {
    echo "no Java $wanted or newer found: installing Debian's package"
    apt-get update -qq || return 1
    package=$(debian_package)
    [ -n "$package" ] || return 1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"
}

command_for_platform() {
    if on_debian; then
        echo "sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless"
    elif command -v dnf >/dev/null 2>&1; then
        echo "sudo dnf install -y java-17-openjdk-headless"
    elif [ "$(uname -s)" = Darwin ]; then
        # Homebrew keeps its Java off the PATH.
        echo 'brew install openjdk@17 && export JAVA_HOME="$(brew --prefix openjdk@17)"'
    elif command -v winget >/dev/null 2>&1; then
        echo "winget install --id EclipseAdoptium.Temurin.17.JRE"
    else
        echo "install a Java runtime, version $wanted or newer, and set JAVA_HOME to its folder"
    fi
}

java_found && exit 0
if [ -n "${JAVA_HOME:-}" ]; then
    # Spark follows JAVA_HOME whatever the PATH holds, so an installation would not help.
    {
        echo "JAVA_HOME is $JAVA_HOME, which holds no Java $wanted or newer; Spark needs it"
        echo "hint: set JAVA_HOME to the folder of a newer Java, or unset it"
    } >&2
    [ "${1:-}" != --require ]
    exit
fi
if on_debian && [ "$(id -u)" -eq 0 ]; then
    install_on_debian >&2
    hash -r
    java_found && exit 0
fi
{
    echo "no Java $wanted or newer found; Spark needs it, everything in process works without"
    echo "hint: $(command_for_platform)"
} >&2
[ "${1:-}" != --require ]
