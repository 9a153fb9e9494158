# SQLite with a write-ahead log that is flushed at every commit. It has one writer at a time.
engine="SQLite"
bank_clients=1

engine_need() { need sqlite3; }
engine_create() { [ "$(sqlite3 "$1/fs/bank" "pragma journal_mode = wal")" = wal ] || fail "no write-ahead log"; }
engine_start() { :; }
engine_stop() { :; }
engine_crash() { :; }
engine_kill() { :; }
engine_sql() { stdbuf -oL sqlite3 -bail -cmd ".timeout 600000" -cmd "pragma synchronous = full" "$1/fs/bank"; }

# Readers beside the writer, so that the log is read and checkpointed while it grows.
engine_load() {
    while [ ! -e enough ]; do
        bank_ask "$1" "select sum(balance) from accounts" >/dev/null || return 1
        sleep 0.2
    done
}
engine_load_done() { echo 0; }

engine_check() {
    local found
    found=$(bank_ask "$1" "pragma integrity_check")
    [ "$found" = ok ] || { echo "$found" | log; fail "the integrity check found damage"; }
}

engine_check_load() { :; }
engine_check_files() { :; }
