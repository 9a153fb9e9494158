# MariaDB's InnoDB with direct I/O. sysbench runs beside the bank, if it is installed.
engine="MariaDB"
bank_clients=4

engine_need() {
    need mariadbd mariadb-install-db mariadb mariadb-admin mariadb-check
    id mysql >/dev/null 2>&1 || skip "there is no user mysql"
    command -v sysbench >/dev/null || echo "sysbench is not installed: the bank's clients work alone"
}

mariadb_settings() {
    echo --user=mysql --innodb-flush-method=O_DIRECT --innodb-flush-log-at-trx-commit=1 \
        --innodb-log-file-size="${log_mib:-16}M" --innodb-buffer-pool-size="${pool_mib:-16}M"
}

engine_create() {
    mkdir "$1/fs/data"
    chown mysql "$1/fs/data"
    mariadb-install-db --no-defaults --datadir="$place/$1/fs/data" $(mariadb_settings) >install.log 2>&1 || { log install.log; exit 1; }
    engine_start "$1"
    echo "create database bank; create database sbtest;" | mariadb --no-defaults -S "$place/$1/run/sql" -u root
    command -v sysbench >/dev/null || return 0
    sysbench_on "$1" oltp_read_write prepare >sysbench.log || { log sysbench.log; exit 1; }
}

engine_start() {
    chown mysql "$1/run"
    mariadbd --no-defaults --datadir="$place/$1/fs/data" --socket="$place/$1/run/sql" --skip-networking \
        --pid-file="$place/$1/run/pid" $(mariadb_settings) >>"$1/mariadbd.log" 2>&1 &
    echo $! >"$1/engine"
    await 3000 mariadb-admin --no-defaults -S "$place/$1/run/sql" -u root --silent ping || { log "$1/mariadbd.log"; exit 1; }
}

engine_stop() { mariadb-admin --no-defaults -S "$place/$1/run/sql" -u root shutdown && end "$1/engine" 0; }
engine_crash() { end "$1/engine" KILL; }
engine_kill() { end "$1/engine" KILL; }

engine_sql() { mariadb --no-defaults -S "$place/$1/run/sql" -u root -N -B --unbuffered bank; }

# sysbench_on AT TEST …: two tables by default.
sysbench_on() {
    local at=$1 test=$2
    shift 2
    sysbench "$test" --mysql-socket="$place/$at/run/sql" --mysql-user=root --tables="${tables:-2}" \
        --table-size="${rows:-20000}" --rand-type=pareto "$@"
}

engine_load() {
    command -v sysbench >/dev/null || return 0
    while [ ! -e enough ]; do
        sysbench_on "$1" oltp_read_write --threads=2 --events=200 --time=0 run >>sysbench.log 2>&1 || { log sysbench.log; return 1; }
    done
}
engine_load_done() { sed -n 's|^ *transactions: *\([0-9]*\).*|\1|p' sysbench.log 2>/dev/null | awk '{ n += $1 } END { print n + 0 }'; }

# CHECK TABLE … EXTENDED, or another depth, of every table of both loads.
engine_check() {
    mariadb-check --no-defaults -S "$place/$1/run/sql" -u root --check ${check_depth-"--extended"} --databases bank sbtest >check.log 2>&1 \
        || { log check.log; fail "CHECK TABLE failed"; }
    ! grep -vq ' OK$' check.log || { log check.log; fail "CHECK TABLE found damage"; }
}

engine_check_load() { :; }
engine_check_files() { :; }
