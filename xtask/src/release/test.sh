# Installs the .deb of the directory $1 in a fresh Debian 12, starts the server of the unit as its user, and purges the package.
# Needs root, debootstrap and a Debian mirror. Exit 77: skipped.
packages=$1
skip() { echo "SKIPPED: $*"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }
[ "$(id -u)" = 0 ] || skip "chroot needs root"
command -v debootstrap > /dev/null || skip "debootstrap is not installed"
deb=$(ls -t "$packages"/flashwright_*.deb 2> /dev/null | head -1)
[ -n "$deb" ] || fail "no flashwright_*.deb in $packages: run cargo xtask package"

base=$packages/debian-12.tar
if [ ! -e "$base" ]; then
    fresh=$(mktemp -d)
    debootstrap --variant=minbase --include=systemd bookworm "$fresh" > "$packages/debootstrap.log" \
        || skip "debootstrap failed: see $packages/debootstrap.log"
    tar -C "$fresh" -cf "$base" .
    rm -rf "$fresh"
fi
root=$(mktemp -d)
trap 'umount "$root/proc" 2> /dev/null || true; rm -rf "$root"' EXIT
tar -C "$root" -xf "$base"
# mktemp made it 700, and the user of the service must reach its files.
chmod 755 "$root"
mount -t proc proc "$root/proc"
cp "$deb" "$root/flashwright.deb"
within() { chroot "$root" env LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }

within apt-get install -y -qq /flashwright.deb > /dev/null || fail "apt-get install"
within id flashwright > /dev/null || fail "no user flashwright"
for file in usr/bin/flashwright usr/share/man/man1/flashwright-serve.1.gz etc/flashwright/serve.d/main.toml \
    usr/share/bash-completion/completions/flashwright usr/lib/systemd/system/flashwright-block@.service; do
    [ -e "$root/$file" ] || fail "$file is not installed"
done
# systemd-analyze needs an instance.
for kind in serve block; do
    cp "$root/usr/lib/systemd/system/flashwright-$kind@.service" "$root/run/flashwright-$kind@main.service"
    within systemd-analyze verify --man=no "/run/flashwright-$kind@main.service" || fail "systemd-analyze verify"
    within systemd-analyze security --offline=true --threshold=30 --no-pager "/run/flashwright-$kind@main.service" \
        | tail -1 || fail "exposure of flashwright-$kind@ is over 3.0"
done

# As the unit does: its directory, its user, its command line, its notification.
within install -d -o flashwright -g flashwright -m 750 /var/lib/flashwright/main
command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/flashwright-serve@.service" | sed 's/%i/main/')
serve() {
    # shellcheck disable=SC2086
    chroot --userspec=flashwright:flashwright "$root" $command > "$root/log" 2>&1 &
    server=$!
    for _ in $(seq 100); do grep -q '^serving' "$root/log" && return; sleep 0.1; done
    cat "$root/log"
    fail "the server does not start"
}
request() {
    exec 3<> /dev/tcp/127.0.0.1/11211
    printf '%s' "$1" >&3
    cat <&3
    exec 3>&-
}
(exec 3<> /dev/tcp/127.0.0.1/11211) 2> /dev/null && skip "port 11211 is in use"
serve
[ "$(stat -c %U "/proc/$server")" != root ] || fail "the server runs as root"
reply=$(request $'set key 0 0 5\r\nvalue\r\nquit\r\n')
[ "$reply" = $'STORED\r' ] || fail "reply to set: $reply"
kill "$server"; wait "$server" || fail "the server does not stop cleanly"
serve
reply=$(request $'get key\r\nquit\r\n')
case $reply in *value*) ;; *) fail "the item is lost by a restart: $reply" ;; esac
kill "$server"; wait "$server" || fail "the server does not stop cleanly"
within flashwright block list | grep -q 'no NAME.toml' || fail "block list"

within apt-get purge -y -qq flashwright > /dev/null || fail "apt-get purge"
[ -s "$root/var/lib/flashwright/main/flash" ] || fail "purge removed data"
rm -rf "$root/var/lib/flashwright/main"
left=$(find "$root/etc" "$root/usr" "$root/lib" -iname '*flashwright*' | grep -v '/var/lib/dpkg' || true)
[ -z "$left" ] || fail "purge left $left"
within apt-get install -y -qq /flashwright.deb > /dev/null || fail "second apt-get install"
within apt-get purge -y -qq flashwright > /dev/null || fail "second apt-get purge"
[ ! -e "$root/var/lib/flashwright" ] || fail "purge left an empty /var/lib/flashwright"
within id flashwright > /dev/null 2>&1 && fail "purge without data left the user"
echo "the package installs in Debian 12, serves, and is purged"
