/* The addresses of this host's interfaces, and whether a program can bind to each: one line for each address. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int binds(int type, struct sockaddr *at)
{
    int fd = socket(at->sa_family, type, 0);
    socklen_t len = at->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int done = bind(fd, at, len);
    close(fd);
    return done;
}

int main(void)
{
    struct ifaddrs *all, *one;
    for (int round = 0; round < 100; round++) {
        if (getifaddrs(&all))
            return 1;
        for (one = all; round == 0 && one; one = one->ifa_next) {
            char address[INET6_ADDRSTRLEN], mask[INET6_ADDRSTRLEN];
            if (!one->ifa_addr || (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
                continue;
            int v4 = one->ifa_addr->sa_family == AF_INET;
            const void *at = v4 ? (void *)&((struct sockaddr_in *)one->ifa_addr)->sin_addr
                                : (void *)&((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr;
            const void *net = v4 ? (void *)&((struct sockaddr_in *)one->ifa_netmask)->sin_addr
                                 : (void *)&((struct sockaddr_in6 *)one->ifa_netmask)->sin6_addr;
            inet_ntop(one->ifa_addr->sa_family, at, address, sizeof address);
            inet_ntop(one->ifa_addr->sa_family, net, mask, sizeof mask);
            printf("%s %s/%s up %d, binds %d %d\n", one->ifa_name, address, mask, !!(one->ifa_flags & IFF_UP),
                   binds(SOCK_STREAM, one->ifa_addr), binds(SOCK_DGRAM, one->ifa_addr));
        }
        freeifaddrs(all);
    }
    return 0;
}
