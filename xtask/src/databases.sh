# PostgreSQL on ext4 on a loop device on nbdfuse on a reconnecting proxy on `flashwright block serve`, whose server is killed
# while pgbench runs. Arguments: the binary, and how often to kill. Prints SKIPPED where something is missing.
set -eu
flashwright=$1 kills=$2
for tool in nbdkit nbdfuse losetup mkfs.ext4 e2fsck pgbench psql; do
    command -v $tool >/dev/null || { echo "SKIPPED: $tool is not installed"; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "SKIPPED: loop devices are root's"; exit 0; }
programs=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1) || { echo "SKIPPED: no PostgreSQL"; exit 0; }
place=$(mktemp -d "${TMPDIR:-/var/tmp}/databases.XXXXXX")
cd "$place"
chmod 755 .

server= proxy= loop=
serve() {
    "$flashwright" block serve --flash flash --disk disk --socket s >log 2>&1 &
    server=$!
    for _ in $(seq 200); do grep -q ready log && return; sleep 0.1; done
    cat log
    exit 1
}
as_postgres() { su postgres -c "$1" >>postgres.log 2>&1; }
start() { as_postgres "$programs/pg_ctl -w -D $place/fs/data -o '-k $place/run -c listen_addresses= -c shared_buffers=16MB' start"; }
stop() { as_postgres "$programs/pg_ctl -m $1 -D $place/fs/data stop"; }
# Undoes what was done, in any state; the exit code stays.
clean_up() {
    code=$?
    set +e
    stop fast
    mountpoint -q fs && umount fs
    [ -z "$loop" ] || losetup -d "$loop"
    mountpoint -q mp && fusermount3 -u mp
    [ -z "$proxy" ] || kill "$proxy" 2>/dev/null
    [ -z "$server" ] || kill "$server" 2>/dev/null
    wait 2>/dev/null
    [ $code -ne 0 ] && echo "left for a look: $place" || rm -rf "$place"
    exit $code
}
trap clean_up EXIT

"$flashwright" block create --flash flash --flash-size 128MiB --disk disk --disk-size 512MiB --yes --quiet
serve
nbdkit -f -U steady --filter=retry nbd "uri=nbd+unix:///?socket=$place/s" retries=60 retry-delay=1 retry-exponential=no &
proxy=$!
mkdir mp fs run
chown postgres run
touch postgres.log
sleep 1
nbdfuse mp "nbd+unix:///?socket=$place/steady" &
for _ in $(seq 100); do [ -e mp/nbd ] && break; sleep 0.1; done
loop=$(losetup --find --show --direct-io=on mp/nbd)
mkfs.ext4 -q -F -E nodiscard "$loop"
mount "$loop" fs
mkdir fs/data
chown postgres fs/data
as_postgres "$programs/initdb -k -D $place/fs/data"
start
to="-h $place/run -U postgres"
createdb $to bench
pgbench $to -q -i -s 5 bench 2>/dev/null

pgbench $to -c 4 -T $((3 * kills + 6)) bench >pgbench.log 2>&1 &
bench=$!
for _ in $(seq "$kills"); do
    sleep 3
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    serve
done
wait $bench || { cat pgbench.log; exit 1; }
grep -E 'tps|actually processed' pgbench.log

# As after a crash of the database too: its own recovery must find everything that it flushed.
stop immediate
start
psql $to -q bench -c 'create extension if not exists amcheck'
"$programs/pg_amcheck" $to bench
same='select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)'
[ "$(psql $to bench -Atc "$same")" = t ] || { echo "the accounts and their history differ"; exit 1; }
stop fast
as_postgres "$programs/pg_checksums -c -D $place/fs/data"
umount fs
e2fsck -fn "$loop" >e2fsck.log 2>&1 || { cat e2fsck.log; exit 1; }
"$flashwright" block flush --socket s
echo "clean after $kills kills"
