/* Writes down every write, truncation, removal and sync of the database and its log, in order, with what was written, into the file
 * POWER_TRACE; what goes to the file `service.db-marks` is written down as a mark. Loaded before libc, for the tests only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;

enum { DATABASE, LOG, MARKS, OTHER };

static int kind_of(const char *path) {
    const char *name = strstr(path, "service.db");
    if (!name) return OTHER;
    name += strlen("service.db");
    if (!*name) return DATABASE;
    if (!strcmp(name, "-wal")) return LOG;
    return strcmp(name, "-marks") ? OTHER : MARKS;
}

static int kind_of_fd(int fd) {
    char link[64], path[512];
    if (fd < 3 || fd == trace) return OTHER;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return OTHER;
    path[length] = 0;
    return kind_of(path);
}

static void put(const void *from, size_t count) {
    const char *at = from;
    while (count) {
        ssize_t done = NEXT(write)(trace, at, count);
        if (done <= 0) abort();
        at += done, count -= (size_t)done;
    }
}

static void note(char what, int file, uint64_t at, const void *data, uint32_t count) {
    struct __attribute__((packed)) { char what; uint8_t file; uint64_t at; uint32_t count; } head;
    head.what = what, head.file = (uint8_t)file, head.at = at, head.count = count;
    if (trace < 0) {
        const char *path = getenv("POWER_TRACE");
        trace = path ? open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600) : -1;
        if (trace < 0) abort();
    }
    put(&head, sizeof head);
    put(data, count);
}

ssize_t write(int fd, const void *from, size_t count) {
    int file = kind_of_fd(fd);
    if (file == OTHER) return NEXT(write)(fd, from, count);
    pthread_mutex_lock(&order);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t done = NEXT(write)(fd, from, count);
    if (done > 0) note(file == MARKS ? 'm' : 'w', file, (uint64_t)at, from, (uint32_t)done);
    pthread_mutex_unlock(&order);
    return done;
}

static ssize_t noted_pwrite(int fd, const void *from, size_t count, off64_t at) {
    int file = kind_of_fd(fd);
    if (file == OTHER) return NEXT(pwrite64)(fd, from, count, at);
    pthread_mutex_lock(&order);
    ssize_t done = NEXT(pwrite64)(fd, from, count, at);
    if (done > 0) note('w', file, (uint64_t)at, from, (uint32_t)done);
    pthread_mutex_unlock(&order);
    return done;
}
ssize_t pwrite(int fd, const void *from, size_t count, off_t at) { return noted_pwrite(fd, from, count, at); }
ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) { return noted_pwrite(fd, from, count, at); }

static int noted(int fd, char what, uint64_t at, int result) {
    int file = kind_of_fd(fd);
    if (file != OTHER && result == 0) {
        pthread_mutex_lock(&order);
        note(what, file, at, "", 0);
        pthread_mutex_unlock(&order);
    }
    return result;
}
int fsync(int fd) { return noted(fd, 's', 0, NEXT(fsync)(fd)); }
int fdatasync(int fd) { return noted(fd, 's', 0, NEXT(fdatasync)(fd)); }
int ftruncate(int fd, off_t length) { return noted(fd, 't', (uint64_t)length, NEXT(ftruncate)(fd, length)); }
int ftruncate64(int fd, off64_t length) { return noted(fd, 't', (uint64_t)length, NEXT(ftruncate64)(fd, length)); }

int unlink(const char *path) {
    int file = kind_of(path), result = NEXT(unlink)(path);
    if (file != OTHER && result == 0) {
        pthread_mutex_lock(&order);
        note('u', file, 0, "", 0);
        pthread_mutex_unlock(&order);
    }
    return result;
}
