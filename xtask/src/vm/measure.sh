#!/bin/busybox sh
# 4 KiB random reads at depth 32, by fio and by our program in turn, on the drive without placement.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
tries=0
while [ $(ls /dev/ng*n1 2>/dev/null | wc -l) -lt 5 ] && [ $tries -lt 300 ]; do sleep 0.1; tries=$((tries + 1)); done
for controller in /sys/class/nvme/nvme*; do
    grep -q PLAIN001 $controller/serial && plain=${controller##*/nvme}
done

# fio reports CPU time in percent of the run: divided by reads it is microseconds per read.
by_fio() {
    name=$1
    shift
    /bin/ld-linux-x86-64.so.2 --library-path /bin /bin/fio --name=read --rw=randread --bs=4k --iodepth=32 --runtime=4 \
        --time_based --output-format=json --thread "$@" >/tmp/fio
    awk -F'[:,]' -v name="$name" '
        /"total_ios"/ && !reads { reads = $2 }
        /"job_runtime"/ { milliseconds = $2 }
        /"usr_cpu"/ || /"sys_cpu"/ { percent += $2 }
        END {
            printf "MEASURE fio %s: %d reads/s, %.2f us CPU a read\n",
                name, reads * 1000 / milliseconds, percent / 100 * milliseconds * 1000 / reads
        }' /tmp/fio
}

for turn in 1 2 3; do
    by_fio io_uring_cmd --ioengine=io_uring_cmd --cmd_type=nvme --filename=/dev/ng${plain}n1
    by_fio io_uring --ioengine=io_uring --direct=1 --filename=/dev/nvme${plain}n1
    nvme_probe measure
done
poweroff -f
