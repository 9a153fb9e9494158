# Transactions in SQL for every engine, by clients that record acknowledged commits outside the cached disk: each
# moves an amount to an account, adds it to the history, and selects its own number. AT/acks.CLIENT has these numbers,
# one per line.
accounts=50000

bank_create() {
    {
        echo "create table accounts (id integer primary key, balance bigint not null, filler char(84));"
        echo "create table history (client integer, number integer, amount bigint, primary key (client, number));"
        awk -v accounts=$accounts 'BEGIN {
            print "begin;"
            for (id = 1; id <= accounts; id++) {
                if (id % 500 == 1) printf "insert into accounts values "
                printf "(%d, 0, \047%084d\047)%s", id, id, (id % 500 == 0 || id == accounts) ? ";\n" : ","
            }
            print "commit;"
        }'
    } | engine_sql "$1"
}

# The statements of one client, until the file "enough" exists.
bank_orders() {
    awk -v client="$1" -v accounts=$accounts 'BEGIN {
        srand(client)
        for (number = 1; (getline line < "enough") < 0; number++) {
            amount = int(rand() * 2001) - 1000
            printf "begin; update accounts set balance = balance + %d where id = %d; ", amount, 1 + int(rand() * accounts)
            printf "insert into history values (%d, %d, %d); commit; select %d;\n", client, number, amount, number
        }
    }'
}

# bank_open AT CLIENTS: starts the clients.
bank_open() {
    local client
    clients=()
    for client in $(seq "$2"); do
        mkfifo "orders.$client"
        bank_orders "$client" >"orders.$client" &
        engine_sql "$1" <"orders.$client" >"acks.$client" 2>"client.$client.log" &
        clients+=($!)
    done
}

# Waits until the clients have finished their statements; none may have failed.
bank_close() {
    local client
    for client in $(seq ${#clients[@]}); do
        wait "${clients[client - 1]}" || { log "client.$client.log"; fail "client $client failed"; }
    done
    rm -f orders.*
}

# Number of acknowledged transactions of each client.
bank_acknowledged() { wc -l $(seq -f "acks.%g" ${#clients[@]}) | awk '$2 != "total" { print $1 }'; }

# bank_verify AT ACKNOWLEDGED…: all of these exist completely, and each account is the sum of its history.
bank_verify() {
    local at=$1 client=0 acknowledged found
    shift
    for acknowledged in "$@"; do
        client=$((client + 1))
        found=$(bank_ask "$at" "select count(*) from history where client = $client and number <= $acknowledged")
        [ "$found" = "$acknowledged" ] || fail "client $client: $acknowledged transactions were acknowledged, $found exist"
    done
    found=$(bank_ask "$at" "select (select sum(balance) from accounts) = (select coalesce(sum(amount), 0) from history)")
    case $found in 1 | t) ;; *) fail "the accounts and their history differ" ;; esac
}

bank_ask() { echo "$2;" | engine_sql "$1"; }
