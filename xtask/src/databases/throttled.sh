# The same database on a slow disk: alone, and behind caches with both presets. Arguments: the binary; one that is not used; the
# file system.
#
# The disk is the model with one head, 143 random operations a second. The database has four times the size of its own buffer
# pool, and of the cache. Until each is warm, the disk is fast; the proxy then hands all on to a server of the slow one.
filesystem=$3
tables=4 rows=280000 pool_mib=64 log_mib=64
flash_size=68MiB disk_size=768MiB
warm_transactions=10000 seconds=60 threads=4
# EXTENDED looks up every row of every index, by way of the disk.
check_depth=

declare -A transactions

make_database() {
    mkdir base
    truncate -s $disk_size base/disk
    serve base --disk base/disk
    raise base s
    make_file_system "$(cat base/loop)"
    mount_file_system base
    engine_create base
    echo "data: $(du -sm base/fs/data/sbtest | cut -f 1) MiB; buffer pool: $pool_mib MiB; flash: $flash_size"
    engine_stop base
    await 300 umount base/fs
    lower base
}

# measure NAME FLAGS…: transactions a second on the slow disk; flags are for the server.
measure() {
    local at=$1
    shift
    serve "$at" --disk "$at/disk" "$@"
    steady "$at"
    raise "$at" steady
    mount_file_system "$at"
    engine_start "$at"
    sysbench_on "$at" oltp_read_write --threads=$threads --events=$warm_transactions --time=0 run >"$at/warm.log" 2>&1
    end "$at/server" TERM
    serve "$at" --disk "hdd:$at/disk" "$@"
    sysbench_on "$at" oltp_read_write --threads=$threads --time=$seconds run >"$at/sysbench.log" 2>&1
    [ $# = 0 ] || "$flashwright" block status --socket "$at/s" >"$at/status.log"
    end "$at/server" TERM
    serve "$at" --disk "$at/disk" "$@"
    engine_check "$at"
    engine_stop "$at"
    await 300 umount "$at/fs"
    check_file_system "$(cat "$at/loop")"
    lower "$at"
    transactions[$at]=$(sed -n 's|^ *transactions:.*(\([0-9.]*\) per sec.*|\1|p' "$at/sysbench.log")
    echo "$at: ${transactions[$at]} transactions a second"
}

measure_cached() {
    mkdir "$1"
    cp base/disk "$1/"
    "$flashwright" block create --flash "$1/flash" --flash-size $flash_size --disk "$1/disk" --preset "$1" --yes --quiet
    measure "$1" --flash "$1/flash"
}

ratio() { awk -v above="${transactions[$1]}" -v below="${transactions[$2]}" 'BEGIN { printf "%.2f", above / below }'; }

need sysbench
need_file_system
engine_need
settle
make_database
mkdir alone
cp base/disk alone/
measure alone
measure_cached v2
measure_cached v3
echo "v2 over no cache: $(ratio v2 alone); v3 over no cache: $(ratio v3 alone); v3 over v2: $(ratio v3 v2)"
