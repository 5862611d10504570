/* Servers of one kind of concurrency each: MODE, WORKERS, where it listens, and where a proxy's
 * server is. An address is a port of all addresses, ADDRESS:PORT, or a path of a Unix socket.
 *
 * A request has 64 bytes, an answer 1024. After a request that begins with `c` the server closes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUEST = 64, ANSWER = 1024, EVENTS = 64, MOST_WORKERS = 64, BACKLOG = 511, QUEUE = 1024 };

static char answer[ANSWER];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Addresses. */

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_un un;
};

static socklen_t parse(const char *text, union address *address)
{
	memset(address, 0, sizeof *address);
	if (text[0] == '/') {
		address->un.sun_family = AF_UNIX;
		if (strlen(text) >= sizeof address->un.sun_path) {
			errno = ENAMETOOLONG;
			fail(text);
		}
		strcpy(address->un.sun_path, text);
		return sizeof address->un;
	}
	char host[INET_ADDRSTRLEN] = "0.0.0.0";
	const char *colon = strchr(text, ':');
	if (colon && (size_t)(colon - text) < sizeof host) {
		memcpy(host, text, colon - text);
		host[colon - text] = 0;
	}
	address->in.sin_family = AF_INET;
	address->in.sin_port = htons((unsigned short)atoi(colon ? colon + 1 : text));
	if (inet_pton(AF_INET, host, &address->in.sin_addr) != 1) {
		errno = EINVAL;
		fail(text);
	}
	return sizeof address->in;
}

static void undelayed(int fd)
{
	int on = 1;
	/* A Unix socket does not have this option. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static int listen_at(const char *where, int flags)
{
	union address address;
	socklen_t length = parse(where, &address);
	int on = 1;
	int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	if (fd < 0)
		fail("socket");
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) || bind(fd, &address.any, length)
	    || listen(fd, BACKLOG))
		fail(where);
	return fd;
}

static int connect_to(const char *where)
{
	union address address;
	socklen_t length = parse(where, &address);
	int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, &address.any, length))
		fail(where);
	undelayed(fd);
	return fd;
}

/* A connection of a server with blocking calls. */

static int send_all(int fd, const char *bytes, size_t length)
{
	while (length) {
		ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return -1;
		bytes += sent;
		length -= (size_t)sent;
	}
	return 0;
}

static void serve(int fd)
{
	char request[REQUEST];
	size_t have = 0;
	undelayed(fd);
	for (;;) {
		ssize_t got = recv(fd, request + have, REQUEST - have, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		have += (size_t)got;
		if (have < REQUEST)
			continue;
		have = 0;
		if (send_all(fd, answer, ANSWER) || request[0] == 'c')
			break;
	}
	close(fd);
}

static int accept_one(int listener, int flags)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | flags);
		if (fd >= 0 || (errno != EINTR && errno != ECONNABORTED))
			return fd;
	}
}

/* An event loop: its listener or the channel for descriptors, and its connections. */

struct end {
	int fd;
	/* The other side of a proxy's connection. */
	struct end *other;
	size_t have;
	int is_over;
	char request[REQUEST];
};

static void watch(int epoll, int fd, void *what, unsigned events)
{
	struct epoll_event event = { .events = events, .data.ptr = what };
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		fail("epoll_ctl");
}

static struct end *new_end(int epoll, int fd)
{
	struct end *end = calloc(1, sizeof *end);
	if (!end)
		fail("calloc");
	end->fd = fd;
	undelayed(fd);
	watch(epoll, fd, end, EPOLLIN);
	return end;
}

/* Its memory stays until all events of a round are handled. */
static void finish(struct end *end, struct end **over)
{
	if (end->is_over)
		return;
	end->is_over = 1;
	close(end->fd);
	struct end *other = end->other;
	end->other = *over;
	*over = end;
	if (other)
		finish(other, over);
}

static void on_request(struct end *end, struct end **over)
{
	ssize_t got = recv(end->fd, end->request + end->have, REQUEST - end->have, 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		finish(end, over);
		return;
	}
	end->have += (size_t)got;
	if (end->have < REQUEST)
		return;
	end->have = 0;
	/* One request at a time, so there is room for its answer. */
	if (send_all(end->fd, answer, ANSWER) || end->request[0] == 'c')
		finish(end, over);
}

static void on_piece(struct end *end, struct end **over)
{
	char piece[4096];
	ssize_t got = recv(end->fd, piece, sizeof piece, 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0 || send_all(end->other->fd, piece, (size_t)got))
		finish(end, over);
}

static int receive_fd(int channel)
{
	char byte;
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec part = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	ssize_t got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
	if (got == 0)
		exit(0);
	struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	int fd = -1;
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(header), sizeof fd);
	return fd;
}

static void send_fd(int channel, int fd)
{
	char byte = 0;
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	while (sendmsg(channel, &message, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			fail("sendmsg");
}

static void event_loop(int listener, int channel, const char *backend)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event events[EVENTS];
	if (epoll < 0)
		fail("epoll_create1");
	if (listener >= 0)
		watch(epoll, listener, NULL, EPOLLIN | EPOLLEXCLUSIVE);
	else
		watch(epoll, channel, NULL, EPOLLIN);
	for (;;) {
		struct end *over = NULL;
		int count = epoll_wait(epoll, events, EVENTS, -1);
		for (int i = 0; i < count; i++) {
			struct end *end = events[i].data.ptr;
			if (!end) {
				int fd = listener >= 0 ? accept_one(listener, 0) : receive_fd(channel);
				if (fd < 0)
					continue;
				end = new_end(epoll, fd);
				if (backend) {
					end->other = new_end(epoll, connect_to(backend));
					end->other->other = end;
				}
			} else if (end->is_over) {
				continue;
			} else if (end->other) {
				on_piece(end, &over);
			} else {
				on_request(end, &over);
			}
		}
		while (over) {
			struct end *next = over->other;
			free(over);
			over = next;
		}
	}
}

/* Workers. */

/* Returns whether this is the child, which ends with its parent. */
static int forked(void)
{
	pid_t parent = getpid();
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child)
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	return 1;
}

static void wait_for_all(void)
{
	while (wait(NULL) > 0 || errno == EINTR)
		;
	exit(1);
}

static void event_loops(const char *where, int workers, const char *backend)
{
	int listener = listen_at(where, SOCK_NONBLOCK);
	for (int i = 0; i < workers; i++)
		if (forked())
			event_loop(listener, -1, backend);
	wait_for_all();
}

static void prefork(const char *where, int workers)
{
	int listener = listen_at(where, 0);
	for (int i = 0; i < workers; i++)
		if (forked())
			for (;;) {
				int fd = accept_one(listener, 0);
				if (fd >= 0)
					serve(fd);
			}
	wait_for_all();
}

static void passing(const char *where, int workers)
{
	int channels[MOST_WORKERS];
	int listener = listen_at(where, 0);
	for (int i = 0; i < workers; i++) {
		int pair[2];
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
			fail("socketpair");
		if (forked()) {
			close(listener);
			close(pair[0]);
			event_loop(-1, pair[1], NULL);
		}
		close(pair[1]);
		channels[i] = pair[0];
	}
	for (int next = 0;; next = (next + 1) % workers) {
		int fd = accept_one(listener, 0);
		if (fd < 0)
			continue;
		send_fd(channels[next], fd);
		close(fd);
	}
}

static void forking(const char *where)
{
	int listener = listen_at(where, 0);
	/* The kernel reaps children that have ended. */
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accept_one(listener, 0);
		if (fd < 0)
			continue;
		if (forked()) {
			close(listener);
			serve(fd);
			_exit(0);
		}
		close(fd);
	}
}

/* Threads take connections from a ring. */
static int ring[QUEUE];
static unsigned put, taken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER, room = PTHREAD_COND_INITIALIZER;

static void *of_pool(void *nothing)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		while (put == taken)
			pthread_cond_wait(&some, &lock);
		int fd = ring[taken++ % QUEUE];
		pthread_cond_signal(&room);
		pthread_mutex_unlock(&lock);
		serve(fd);
	}
	return nothing;
}

static void thread_pool(const char *where, int workers)
{
	int listener = listen_at(where, 0);
	for (int i = 0; i < workers; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, of_pool, NULL))
			fail("pthread_create");
	}
	for (;;) {
		int fd = accept_one(listener, 0);
		if (fd < 0)
			continue;
		pthread_mutex_lock(&lock);
		while (put - taken == QUEUE)
			pthread_cond_wait(&room, &lock);
		ring[put++ % QUEUE] = fd;
		pthread_cond_signal(&some);
		pthread_mutex_unlock(&lock);
	}
}

int main(int count, char **words)
{
	if (count < 4) {
		fprintf(stderr, "usage: %s MODE WORKERS ADDRESS [SERVER]\n", words[0]);
		return 2;
	}
	const char *mode = words[1], *where = words[3];
	int workers = atoi(words[2]);
	memset(answer, 'a', sizeof answer);
	if (workers < 1 || workers > MOST_WORKERS) {
		fprintf(stderr, "there can be 1 to %d workers\n", MOST_WORKERS);
		return 2;
	}
	if (!strcmp(mode, "event-loops"))
		event_loops(where, workers, NULL);
	if (!strcmp(mode, "proxy") && count > 4)
		event_loops(where, workers, words[4]);
	if (!strcmp(mode, "prefork"))
		prefork(where, workers);
	if (!strcmp(mode, "passing"))
		passing(where, workers);
	if (!strcmp(mode, "forking"))
		forking(where);
	if (!strcmp(mode, "thread-pool"))
		thread_pool(where, workers);
	fprintf(stderr, "there is no mode %s\n", mode);
	return 2;
}
