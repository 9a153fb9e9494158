# PostgreSQL with page checksums. pgbench runs beside the bank.
engine="PostgreSQL"
bank_clients=2

engine_need() {
    need psql pgbench createdb su
    programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1) || skip "PostgreSQL's server is not installed"
    [ -x "$programs/pg_amcheck" ] || skip "pg_amcheck is not installed"
}

as_postgres() { su postgres -c "$1" >>postgres.log 2>&1 || { log postgres.log; fail "failed: $1"; }; }

engine_create() {
    mkdir "$1/fs/data"
    chown postgres "$1/fs/data" "$1/run"
    as_postgres "$programs/initdb -k -D $place/$1/fs/data"
    engine_start "$1"
    createdb -h "$place/$1/run" -U postgres bank
    echo "create extension amcheck;" | engine_sql "$1"
    pgbench -h "$place/$1/run" -U postgres -q -i -s 5 bank 2>/dev/null
}

# The process id file of an image belongs to another machine.
engine_start() {
    chown postgres "$1/run"
    [ "$1" = live ] || rm -f "$1/fs/data/postmaster.pid"
    as_postgres "$programs/pg_ctl -w -t 300 -D $place/$1/fs/data \
        -o '-k $place/$1/run -c listen_addresses= -c shared_buffers=16MB -c max_wal_size=64MB' start"
}

engine_stop() { as_postgres "$programs/pg_ctl -w -t 300 -m fast -D $place/$1/fs/data stop"; }
engine_crash() { as_postgres "$programs/pg_ctl -w -t 300 -m immediate -D $place/$1/fs/data stop"; }
engine_kill() {
    [ -s "$1/fs/data/postmaster.pid" ] || return 0
    local main
    main=$(head -n 1 "$1/fs/data/postmaster.pid")
    kill -9 $(ps -o pid= --ppid "$main") "$main" 2>/dev/null
    sleep 1
}

engine_sql() { stdbuf -oL psql -h "$place/$1/run" -U postgres -At -q -v ON_ERROR_STOP=1 bank; }

# The usual load, repeated while there is time.
engine_load() {
    while [ ! -e enough ]; do
        pgbench -h "$place/$1/run" -U postgres -n -c 4 -t 250 bank >>pgbench.log 2>&1 || { log pgbench.log; return 1; }
    done
}

# Number of committed transactions that the load was acknowledged.
engine_load_done() { sed -n 's|^number of transactions actually processed: \([0-9]*\).*|\1|p' pgbench.log | awk '{ n += $1 } END { print n + 0 }'; }

engine_check() {
    "$programs/pg_amcheck" -h "$place/$1/run" -U postgres bank >amcheck.log 2>&1 || { log amcheck.log; fail "pg_amcheck found damage"; }
    local same="select (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history)"
    [ "$(bank_ask "$1" "$same")" = t ] || fail "pgbench's accounts and their history differ"
}

# At the end, without requests in flight: no transaction of the load is missing.
engine_check_load() {
    local found
    found=$(bank_ask "$1" "select count(*) from pgbench_history")
    [ "$found" = "$(engine_load_done)" ] || fail "$(engine_load_done) transactions of pgbench were acknowledged, $found exist"
}

# No page is torn. The engine is stopped.
engine_check_files() { as_postgres "$programs/pg_checksums -c -D $place/$1/fs/data"; }
