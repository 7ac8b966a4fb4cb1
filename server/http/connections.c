// SPDX-License-Identifier: MIT
#include "server/http/connections.h"

#include "engine/base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define TICK_MILLISECONDS 250
#define EVENTS_AT_ONCE 64
#define BACKLOG 511
// A connection that is younger is not given up for another one.
#define LEAST_IDLE_SECONDS 1.0
// Descriptors that are no connections: the program's own, and files of stores.
#define OTHER_DESCRIPTORS 256
// Connections that were turned away, and whose clients may still read why.
#define MOST_TURNED_AWAY 64
#define TURNED_AWAY_SECONDS 1.0
// For what has arrived before a client's end to be taken for a whole request.
#define HALF_A_REQUEST_SECONDS 1.0
// Beyond the time of a request, for what is left of the answer to go out.
#define GRACE_SECONDS 5.0

// A descriptor, by its number.
typedef struct slot {
    bool open;
    bool ending; // it was shut down, and counts no more
    bool busy;
    bool sending;     // while busy: the whole answer is there
    bool streaming;   // while busy: it comes by and by
    bool hung;        // the client will send nothing more
    bool turned_away; // it is this thread's: it waits for the client to close it
    uint32_t serial;
    double since;
    double hung_since;
    int unsent;   // while sending or streaming: bytes that the client's machine has not taken
    double moved; // when that changed
    uint8_t address[16];
    connection_watch watch; // while busy
} slot;

struct connections {
    connections_options options;
    int listener, epoll, stopper;
    uint16_t port;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; // of all below
    slot *slots;          // [slot_count]
    size_t slot_count;
    connection_counts counts;
    size_t turned_away; // the thread's
    uint32_t serial;    // of the latest connection; likewise
};

// ---- Listening ----

static int listen_at(const struct addrinfo *at)
{
    const int on = 1;
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        const int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        return 0;
    }
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

static kvern_status open_listener(connections *c, engine_error *error)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found;
    char port[8];
    snprintf(port, sizeof port, "%u", c->options.port);
    const int why = getaddrinfo(c->options.host, port, &hints, &found);
    if (why != 0) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", c->options.host, gai_strerror(why));
    }
    c->listener = listen_at(found);
    const int failure = errno;
    freeaddrinfo(found);
    if (c->listener < 0) {
        return engine_fail(error, KVERN_ERR_IO, "listening at %s port %u: %s", c->options.host,
                           c->options.port, strerror(failure));
    }
    c->port = port_of(c->listener);
    return KVERN_OK;
}

// As many descriptors as all connections want, if the system permits it; else fewer connections.
static kvern_status make_slots(connections *c, engine_error *error)
{
    struct rlimit limit;
    const size_t wanted = 2 * c->options.most + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        if (limit.rlim_cur < wanted) {
            return engine_fail(error, KVERN_ERR_RANGE,
                               "%zu connections take more files than the %llu that the system "
                               "permits (ulimit -n)",
                               c->options.most, (unsigned long long)limit.rlim_cur);
        }
    }
    c->slot_count = wanted;
    c->slots = calloc(c->slot_count, sizeof *c->slots);
    return c->slots ? KVERN_OK : engine_fail(error, KVERN_ERR_MEMORY, "no memory for connections");
}

// An event may be taken after its descriptor was closed and another connection got the number: so
// each has a serial number besides.
static bool watch_descriptor(const connections *c, int fd, uint32_t serial, uint32_t events)
{
    struct epoll_event event = {.events = events,
                                .data.u64 = (uint64_t)serial << 32 | (uint32_t)fd};
    return epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static kvern_status open_all(connections *c, engine_error *error)
{
    kvern_status status = make_slots(c, error);
    if (status == KVERN_OK) {
        status = open_listener(c, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->stopper = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->epoll < 0 || c->stopper < 0 || !watch_descriptor(c, c->listener, 0, EPOLLIN) ||
        !watch_descriptor(c, c->stopper, 0, EPOLLIN)) {
        return engine_fail(error, KVERN_ERR_IO, "watching connections: %s", strerror(errno));
    }
    return KVERN_OK;
}

kvern_status connections_create(const connections_options *options, connections **out,
                                engine_error *error)
{
    connections *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c || pthread_mutex_init(&c->lock, NULL) != 0) {
        free(c);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for connections");
    }
    c->options = *options;
    c->listener = c->epoll = c->stopper = -1;
    const kvern_status status = open_all(c, error);
    if (status != KVERN_OK) {
        connections_destroy(c);
        return status;
    }
    *out = c;
    return KVERN_OK;
}

static void end_lingering(connections *c, int fd)
{
    c->slots[fd] = (slot){0};
    c->turned_away--;
    close(fd);
}

static void close_descriptor(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void connections_destroy(connections *c)
{
    if (!c) {
        return;
    }
    connections_stop(c);
    for (size_t i = 0; c->turned_away > 0 && i < c->slot_count; i++) {
        if (c->slots[i].turned_away) {
            end_lingering(c, (int)i);
        }
    }
    close_descriptor(&c->epoll);
    close_descriptor(&c->stopper);
    free(c->slots);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

uint16_t connections_port(const connections *c)
{
    return c->port;
}

// ---- Accepting ----

// IPv4 addresses become those of IPv6 that stand for them.
static void address_of(const struct sockaddr_storage *from, uint8_t address[16])
{
    memset(address, 0, 16);
    if (from->ss_family == AF_INET6) {
        memcpy(address, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
    } else {
        address[10] = address[11] = 0xff;
        memcpy(address + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    }
}

static size_t count_of(const connections *c, const uint8_t address[16])
{
    size_t count = 0;
    for (size_t i = 0; i < c->slot_count; i++) {
        const slot *s = &c->slots[i];
        count += s->open && !s->ending && memcmp(s->address, address, 16) == 0;
    }
    return count;
}

// Its thread sees that and closes it; until then the descriptor is its own.
static void shut_down(connections *c, int fd)
{
    slot *s = &c->slots[fd];
    if (!s->ending) {
        s->ending = true;
        c->counts.open--;
        shutdown(fd, SHUT_RDWR);
    }
}

// Since when it has done nothing that it could do; < 0: it cannot do anything.
static double idle_since(const slot *s)
{
    if (s->busy) {
        return s->sending ? s->moved : -1;
    }
    return s->since;
}

// Makes room for a connection at the cost of the one that does nothing for the longest.
static bool evict(connections *c, double now)
{
    int oldest = -1;
    for (size_t i = 0; i < c->slot_count; i++) {
        const slot *s = &c->slots[i];
        const double since = idle_since(s);
        if (s->open && !s->ending && since >= 0 && now - since >= LEAST_IDLE_SECONDS &&
            (oldest < 0 || since < idle_since(&c->slots[oldest]))) {
            oldest = (int)i;
        }
    }
    if (oldest >= 0) {
        shut_down(c, oldest);
        c->counts.evicted++;
    }
    return oldest >= 0;
}

static bool admit(connections *c, int fd, const struct sockaddr_storage *from)
{
    uint8_t address[16];
    const double now = engine_seconds();
    address_of(from, address);
    pthread_mutex_lock(&c->lock);
    const size_t each = c->options.most_each;
    const bool room = (size_t)fd < c->slot_count && (each == 0 || count_of(c, address) < each) &&
                      (c->counts.open < c->options.most || evict(c, now));
    if (room) {
        c->slots[fd] = (slot){.open = true, .serial = ++c->serial, .since = now};
        memcpy(c->slots[fd].address, address, 16);
        c->counts.open++;
        c->counts.accepted++;
    } else {
        c->counts.refused++;
    }
    pthread_mutex_unlock(&c->lock);
    return room;
}

// To close a connection that has sent something which nobody has read would take the answer away.
static void linger(connections *c, int fd)
{
    shutdown(fd, SHUT_WR);
    if ((size_t)fd >= c->slot_count || c->turned_away == MOST_TURNED_AWAY ||
        !watch_descriptor(c, fd, ++c->serial, EPOLLIN)) {
        close(fd);
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->slots[fd] = (slot){.turned_away = true, .serial = c->serial, .since = engine_seconds()};
    c->turned_away++;
    pthread_mutex_unlock(&c->lock);
}

// Under the lock. What it says is not looked at.
static void drop_input(connections *c, int fd)
{
    char data[4096];
    const ssize_t bytes = recv(fd, data, sizeof data, MSG_DONTWAIT);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
        end_lingering(c, fd);
    }
}

static void turn_away(connections *c, int fd)
{
    static const char ANSWER[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        "Content-Length: 112\r\nConnection: close\r\n\r\n"
        "{\"error\":{\"message\":\"there are too many connections\",\"type\":\"server_error\","
        "\"param\":null,\"code\":\"connections\"}}\r\n";
    (void)!send(fd, ANSWER, sizeof ANSWER - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    linger(c, fd);
}

static void take_connection(connections *c, int fd, const struct sockaddr_storage *from,
                            socklen_t bytes)
{
    const int on = 1;
    if (!admit(c, fd, from)) {
        turn_away(c, fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!watch_descriptor(c, fd, c->serial, EPOLLRDHUP | EPOLLET)) {
        connection_closed(c, fd);
        close(fd);
    } else if (!c->options.take(c->options.user, fd, (const struct sockaddr *)from, bytes)) {
        connection_closed(c, fd);
    }
}

static void accept_all(connections *c)
{
    for (int i = 0; i < EVENTS_AT_ONCE; i++) {
        struct sockaddr_storage from = {0};
        socklen_t bytes = sizeof from;
        const int fd =
            accept4(c->listener, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            return;
        }
        take_connection(c, fd, &from, bytes);
    }
}

// ---- Watching ----

static void note_event(connections *c, int fd, uint32_t serial)
{
    pthread_mutex_lock(&c->lock);
    slot *s = &c->slots[fd];
    if (s->serial != serial) {
        // it is gone
    } else if (s->turned_away) {
        drop_input(c, fd);
    } else if (s->open && !s->hung) {
        s->hung = true;
        s->hung_since = engine_seconds();
        if (s->busy && s->watch.gone) {
            s->watch.gone(s->watch.user);
        }
    }
    pthread_mutex_unlock(&c->lock);
}

// Whether it has taken nothing for too long: of a whole answer, or of what has come of a stream.
static bool is_stuck(const connections *c, slot *s, int fd, double now)
{
    int unsent = 0;
    if (!s->open || s->ending || !(s->sending || s->streaming)) {
        return false;
    }
    const bool told = ioctl(fd, TIOCOUTQ, &unsent) == 0;
    if (told && (unsent != s->unsent || (unsent == 0 && !s->sending))) {
        s->unsent = unsent;
        s->moved = now;
    }
    return now - s->moved > c->options.read_seconds;
}

static void look_at(connections *c, int fd, double now)
{
    slot *s = &c->slots[fd];
    if (s->turned_away && now - s->since > TURNED_AWAY_SECONDS) {
        end_lingering(c, fd);
        return;
    }
    if (s->open && !s->ending && !s->busy && s->hung &&
        now - s->hung_since > HALF_A_REQUEST_SECONDS) {
        shut_down(c, fd); // nothing will complete what has come
        return;
    }
    if (is_stuck(c, s, fd, now)) {
        c->counts.timed_out++;
        shut_down(c, fd);
        return;
    }
    const double most = s->busy ? c->options.request_seconds : c->options.read_seconds;
    const double late = now - s->since - most;
    if (!s->open || s->ending || most <= 0 || late < 0) {
        return;
    }
    if (s->busy && late < GRACE_SECONDS) {
        if (s->watch.expired) {
            s->watch.expired(s->watch.user);
        }
        return;
    }
    c->counts.timed_out++;
    shut_down(c, fd);
}

static void look_at_all(connections *c)
{
    const double now = engine_seconds();
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->slot_count; i++) {
        look_at(c, (int)i, now);
    }
    pthread_mutex_unlock(&c->lock);
}

static bool take_event(connections *c, const struct epoll_event *event)
{
    const int fd = (int)(uint32_t)event->data.u64;
    if (fd == c->stopper) {
        return false;
    }
    if (fd == c->listener) {
        accept_all(c);
    } else {
        note_event(c, fd, (uint32_t)(event->data.u64 >> 32));
    }
    return true;
}

static void *watch(void *user)
{
    connections *c = user;
    struct epoll_event events[EVENTS_AT_ONCE];
    bool go_on = true;
    double looked = engine_seconds();
    while (go_on) {
        const bool idle = connections_count(c).open + c->turned_away == 0;
        const int tick = idle ? -1 : TICK_MILLISECONDS;
        const int count = epoll_wait(c->epoll, events, EVENTS_AT_ONCE, tick);
        for (int i = 0; i < count && go_on; i++) {
            go_on = take_event(c, &events[i]);
        }
        if (engine_seconds() - looked >= 1e-3 * TICK_MILLISECONDS) {
            looked = engine_seconds();
            look_at_all(c);
        }
    }
    return NULL;
}

kvern_status connections_start(connections *c, engine_error *error)
{
    c->started = pthread_create(&c->thread, NULL, watch, c) == 0;
    return c->started ? KVERN_OK
                      : engine_fail(error, KVERN_ERR_THREADS, "starting a thread failed");
}

void connections_stop(connections *c)
{
    const uint64_t one = 1;
    if (c->started) {
        (void)!write(c->stopper, &one, sizeof one);
        pthread_join(c->thread, NULL);
    }
    c->started = false;
    close_descriptor(&c->listener);
}

// ---- What becomes of them ----

void connection_busy(connections *c, int fd, const connection_watch *with)
{
    pthread_mutex_lock(&c->lock);
    slot *s = &c->slots[fd];
    s->busy = true;
    s->sending = s->streaming = false;
    s->since = engine_seconds();
    s->watch = *with;
    if (s->hung && with->gone) {
        with->gone(with->user);
    }
    pthread_mutex_unlock(&c->lock);
}

static void note_sending(connections *c, int fd, bool whole)
{
    pthread_mutex_lock(&c->lock);
    slot *s = &c->slots[fd];
    s->sending = s->busy && whole;
    s->streaming = s->busy && !whole;
    s->unsent = -1;
    s->moved = engine_seconds();
    pthread_mutex_unlock(&c->lock);
}

void connection_sending(connections *c, int fd)
{
    note_sending(c, fd, true);
}

void connection_streaming(connections *c, int fd)
{
    note_sending(c, fd, false);
}

void connection_idle(connections *c, int fd)
{
    pthread_mutex_lock(&c->lock);
    slot *s = &c->slots[fd];
    s->busy = s->sending = s->streaming = false;
    s->since = engine_seconds();
    s->watch = (connection_watch){0};
    pthread_mutex_unlock(&c->lock);
}

void connection_closed(connections *c, int fd)
{
    pthread_mutex_lock(&c->lock);
    slot *s = &c->slots[fd];
    c->counts.open -= s->open && !s->ending;
    *s = (slot){0};
    pthread_mutex_unlock(&c->lock);
}

connection_counts connections_count(connections *c)
{
    pthread_mutex_lock(&c->lock);
    const connection_counts counts = c->counts;
    pthread_mutex_unlock(&c->lock);
    return counts;
}
