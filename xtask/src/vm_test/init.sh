#!/bin/busybox sh
# The first program of a virtual machine: sets it up, then runs a shell for the host.
/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin /proc /sys /dev /run /tmp /srv
/bin/busybox --install -s
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/net
while read -r module; do
    insmod "/modules/$module.ko" || echo "no $module"
done </modules/order
[ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
ip link set lo up
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
stty -echo -icrnl 2>/dev/null
echo "@@ ready"
number=0
while IFS= read -r line; do
    number=$((number + 1))
    eval "$line"
    echo "@@ $number $?"
done
poweroff -f
