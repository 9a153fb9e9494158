# One database on a slow disk: alone, behind caches with both presets, and with settings for it. Arguments: the binary; an
# unused one; the file system.
#
# The disk is the model with one head, 143 random operations per second. The database is four times as large as its buffer
# pool and as the cache. Until each is warm, the disk is fast; then the proxy switches to a server of the slow disk.
filesystem=$3
tables=4 rows=280000 pool_mib=64 log_mib=64
flash_size=68MiB disk_size=768MiB
warm_transactions=10000 seconds=60 threads=4
# EXTENDED reads every row of every index from the disk.
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

# turn AT KIND: switches the disk at AT to a fast or a slow one. Its proxy resends unanswered requests.
turn() {
    end "$1/server" TERM
    case $2 in
        fast) serve "$1" --disk "$1/disk" ;;
        slow) serve "$1" --disk "hdd:$1/disk" ;;
    esac
}

new_disk() {
    mkdir "$1"
    cp base/disk "$1/"
    turn "$1" fast
    steady "$1"
}

# measure AT DISK: transactions per second of the database at AT on the slow disk. Only a fast disk warms a cache in time.
measure() {
    local at=$1 disk=$2
    mount_file_system "$at"
    engine_start "$at"
    sysbench_on "$at" oltp_read_write --threads=$threads --events=$warm_transactions --time=0 run >"$at/warm.log" 2>&1
    turn "$disk" slow
    sysbench_on "$at" oltp_read_write --threads=$threads --time=$seconds run >"$at/sysbench.log" 2>&1
    turn "$disk" fast
    engine_check "$at"
    engine_stop "$at"
    await 300 umount "$at/fs"
    check_file_system "$(cat "$at/loop")"
    transactions[$at]=$(sed -n 's|^ *transactions:.*(\([0-9.]*\) per sec.*|\1|p' "$at/sysbench.log")
    echo "$at: ${transactions[$at]} transactions per second"
}

measure_alone() {
    new_disk alone
    raise alone steady
    measure alone alone
    lower alone
}

# measure_cached AT FLAGS…: the same with a cache created with these flags.
measure_cached() {
    local at=$1 disk=disk-of-$1
    shift
    mkdir "$at"
    new_disk "$disk"
    expose "$disk" steady
    "$flashwright" block create --flash "$at/flash" --flash-size $flash_size --disk "$disk/mp/nbd" --yes --quiet "$@"
    serve "$at" --flash "$at/flash" --disk "$disk/mp/nbd"
    raise "$at" s
    measure "$at" "$disk"
    lower "$at"
    lower "$disk"
}

ratio() { awk -v above="${transactions[$1]}" -v below="${transactions[$2]}" 'BEGIN { printf "%.2f", above / below }'; }

need sysbench
need_file_system
engine_need
settle
make_database
measure_alone
measure_cached v2 --preset v2
# Cleaning as in Flashcache 3.
measure_cached lazy --preset v3 --set dirty_percent=60 --set lazy_depth=1
measure_cached v3 --preset v3
# Settings for InnoDB: blocks as large as its pages, and dirty blocks kept until there are many.
measure_cached set --preset v3 --block-size 16KiB --set dirty_percent=80
echo "over no cache: v2 $(ratio v2 alone), lazy $(ratio lazy alone), v3 $(ratio v3 alone), set for it $(ratio set alone)"
echo "over v2: lazy $(ratio lazy v2), v3 $(ratio v3 v2)"
