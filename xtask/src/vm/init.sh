#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
tries=0
while [ $(ls /dev/ng*n1 2>/dev/null | wc -l) -lt 5 ] && [ $tries -lt 300 ]; do sleep 0.1; tries=$((tries + 1)); done
failed=0
for probe in $(cat /probes); do $probe || failed=1; done
echo GUEST-RC=$failed
poweroff -f
