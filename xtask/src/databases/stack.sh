# A file system on a loop device on nbdfuse on `flashwright block serve`, several times, each in its own directory
# ("at"). Its files name the running parts: server, proxy (process ids), loop (the device).
set -euo pipefail
flashwright=$1

# A trial whose requirements are missing ends with a separate status, which is not success.
skip() { echo "SKIPPED: $*"; exit 77; }
fail() { echo "$*"; exit 1; }
need() {
    for tool in "$@"; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
}
log() { sed "s/^/    /" "$@" | tail -n 30; }

[ "$(id -u)" = 0 ] || skip "loop devices need root"
need nbdkit nbdfuse fusermount3 losetup stdbuf awk

# Creates the working directory and enters it. Databases run as their own users, who need access.
settle() {
    place=$(mktemp -d "${TMPDIR:-/var/tmp}/databases.XXXXXX")
    cd "$place"
    chmod 755 .
    trap clean_up EXIT
    trap 'echo "interrupted, or the time limit is exceeded"; exit 143' TERM INT
}

# Waits until a command succeeds, at most $1 tenths of a second.
await() {
    local tenths=$1
    shift
    for _ in $(seq "$tenths"); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "did not succeed within $((tenths / 10)) s: $*"
    return 1
}

# serve AT FLAGS…: starts a server at the socket AT/s.
serve() {
    local at=$1
    shift
    "$flashwright" block serve "$@" --socket "$at/s" >"$at/serve.log" 2>&1 &
    echo $! >"$at/server"
    await 1200 grep -q ready "$at/serve.log" || { log "$at/serve.log"; exit 1; }
}

# steady AT: a proxy at AT/steady that reconnects, so that the layers above survive the server.
steady() {
    nbdkit -f -U "$1/steady" --filter=retry nbd "uri=nbd+unix:///?socket=$place/$1/s" \
        retries=60 retry-delay=1 retry-exponential=no >"$1/proxy.log" 2>&1 &
    echo $! >"$1/proxy"
    await 300 test -S "$1/steady"
}

# expose AT SOCKET: makes the served disk available as the file AT/mp/nbd.
expose() {
    mkdir -p "$1/mp"
    nbdfuse "$1/mp" "nbd+unix:///?socket=$place/$1/$2" >"$1/fuse.log" 2>&1 &
    await 300 test -e "$1/mp/nbd"
}

# raise AT SOCKET: creates a loop device on it and a mount point.
raise() {
    expose "$1" "$2"
    attach "$1"
}

# attach AT: the same for the existing file.
attach() {
    mkdir -p "$1/fs" "$1/run"
    losetup --find --show --direct-io=on "$1/mp/nbd" >"$1/loop"
}

# end AT/NAME SIGNAL: ends the process of that name.
end() {
    [ -s "$1" ] || return 0
    local process
    process=$(cat "$1")
    { kill "-$2" "$process" && wait "$process"; } 2>/dev/null || true
    rm -f "$1"
}

# lower AT: removes the loop device and the file, and ends the servers. Nothing may be mounted on it. A server unmounts
# its own file system.
lower() {
    if [ -s "$1/loop" ]; then
        losetup -d "$(cat "$1/loop")"
        rm "$1/loop"
    fi
    [ ! -e "$1/fuse.log" ] || await 300 fusermount3 -u "$1/mp"
    end "$1/proxy" TERM
    end "$1/server" TERM
}

make_file_system() {
    case $filesystem in
        ext4) mkfs.ext4 -q -F -E nodiscard "$1" ;;
        xfs) mkfs.xfs -q -f -K "$1" ;;
    esac
}

# Two file systems of one identity can be mounted: the one in use and an image of it.
mount_file_system() {
    case $filesystem in
        ext4) mount "$(cat "$1/loop")" "$1/fs" ;;
        xfs) mount -o nouuid "$(cat "$1/loop")" "$1/fs" ;;
    esac
}

check_file_system() {
    case $filesystem in
        ext4) e2fsck -fn "$1" >fsck.log 2>&1 ;;
        xfs) xfs_repair -n "$1" >fsck.log 2>&1 ;;
    esac || { log fsck.log; fail "the file system is damaged"; }
}

need_file_system() {
    case $filesystem in
        ext4) need mkfs.ext4 e2fsck ;;
        xfs) need mkfs.xfs xfs_repair ;;
        *) fail "$filesystem: ext4 or xfs" ;;
    esac
    grep -qw "$filesystem" /proc/filesystems || modprobe "$filesystem" 2>/dev/null || skip "this kernel has no $filesystem"
}

# Also mounts without a server.
mounted() { grep -q " $place/$1 " /proc/mounts; }

# Cleans up in any state and keeps the exit code. Servers end first, so that waiting processes get an error instead of
# blocking forever.
clean_up() {
    local code=$? at
    set +e
    trap - TERM INT
    for at in */; do
        at=${at%/}
        [ -e "$at/loop" ] || [ -e "$at/server" ] || continue
        [ -s "$at/server" ] && timeout 10 "$flashwright" block status --socket "$at/s" >"$at/status.log" 2>&1
        end "$at/server" KILL
        end "$at/proxy" KILL
        engine_kill "$at"
        mounted "$at/fs" && { umount "$at/fs" || umount -l "$at/fs"; }
        [ -s "$at/loop" ] && losetup -d "$(cat "$at/loop")"
        mounted "$at/mp" && { fusermount3 -u "$at/mp" || fusermount3 -uz "$at/mp"; }
    done
    kill $(jobs -p) 2>/dev/null
    wait 2>/dev/null
    if [ $code -eq 0 ]; then rm -rf "$place"; else echo "kept for inspection: $place"; fi
    exit $code
}
