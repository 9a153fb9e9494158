# Kills the server of a database's disk during work. Arguments: the binary, the number of kills, the file system, the
# kind of cache: write-back, ordered (write-back in the order of flushes) or write-through, and the frontend: nbd or fuse.
#
# Two properties are tested. The running database does not notice the kill: the proxy resends unanswered requests to the
# next server. (A FUSE file system ends with its server, so that server is only stopped while the image is taken.)
# And at every kill the flash and the disk are copied: the state that a machine would have after losing power then.
# The image is served, mounted, recovered and checked: it must contain all acknowledged transactions. If the kind of
# cache guarantees consistency of the disk alone, every other image is used without its flash.
kills=$2 filesystem=$3 kind=$4 front=$5
case $kind in
    write-back | write-through) create_flags="--mode $kind" ;;
    ordered) create_flags=--ordered ;;
esac

serve_pair() {
    local at=$1
    shift
    serve "$at" --flash "$at/flash" --disk "$at/disk" "$@"
}

# begin: the database's disk exists. halt, go_on: it does not answer in between.
case $front in
    nbd)
        begin() {
            serve_pair live
            steady live
            raise live steady
        }
        halt() { end live/server KILL; }
        go_on() { serve_pair live; }
        ;;
    fuse)
        begin() {
            mkdir live/mp
            serve_pair live --fuse live/mp --name nbd
            attach live
        }
        halt() { kill -STOP "$(cat live/server)"; }
        go_on() { kill -CONT "$(cat live/server)"; }
        ;;
esac

# Takes the image. The killed server acknowledged everything acknowledged until now.
take_image() {
    mkdir image
    acknowledged=$(bank_acknowledged)
    # With the mark and the modification time by which the cache identifies its disk.
    cp --preserve=timestamps,xattr live/flash live/disk image/
}

serve_image() {
    if [ $kind = write-back ] || [ $((kill % 2)) = 0 ]; then
        "$flashwright" block check --flash image/flash --disk image/disk --quiet || fail "the cache's own check found damage"
        serve_pair image
    else
        serve image --disk image/disk --force-disk
        # An ordered disk is consistent but old: no number of transactions is guaranteed.
        [ $kind = write-through ] || acknowledged=$(echo "$acknowledged" | sed 's/.*/0/')
        without_flash=$((without_flash + 1))
    fi
}

verify_image() {
    serve_image
    raise image s
    mount_file_system image
    engine_start image
    bank_verify image $acknowledged
    engine_check image
    engine_stop image
    await 300 umount image/fs
    check_file_system "$(cat image/loop)"
    lower image
    rm -rf image
}

need_file_system
engine_need
settle
mkdir live
"$flashwright" block create --flash live/flash --flash-size 64MiB --disk live/disk --disk-size 512MiB \
    $create_flags --yes --quiet
begin
make_file_system "$(cat live/loop)"
mount_file_system live
engine_create live
bank_create live
"$flashwright" block flush --socket live/s >flush.log 2>&1 || { log flush.log; exit 1; }

without_flash=0
engine_load live &
load=$!
bank_open live $bank_clients
for kill in $(seq "$kills"); do
    # Every third kill follows immediately, so that a server that recovers or has just recovered is killed too.
    [ $((kill % 3)) = 0 ] && sleep 0.$((RANDOM % 10)) || sleep $((1 + RANDOM % 3))
    kill -0 "$(cat live/server)" || fail "the server had ended already: $(tail -n 3 live/serve.log)"
    halt
    take_image
    go_on
    [ $((kill % 3)) = 2 ] && rm -rf image || verify_image
done
touch enough
wait $load || fail "the load failed"
bank_close

# Crashes the database too: its recovery must find everything that it flushed.
engine_crash live
engine_start live
acknowledged=$(bank_acknowledged)
bank_verify live $acknowledged
engine_check live
engine_check_load live
engine_stop live
engine_check_files live
await 300 umount live/fs
check_file_system "$(cat live/loop)"
"$flashwright" block flush --socket live/s >flush.log 2>&1 || { log flush.log; exit 1; }
lower live
"$flashwright" block check --flash live/flash --disk live/disk --full --quiet || fail "the cache's own check found damage"
total=$(echo "$acknowledged" | awk '{ n += $1 } END { print n }')
echo "$engine on $filesystem, $kind, by $front: clean after $kills kills; $total transactions of the bank verified," \
    "$(engine_load_done) of the load, $((kills - (kills + 1) / 3)) images, $without_flash of them without flash"
