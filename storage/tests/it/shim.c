/* Makes the n-th write or sync of the database's files fail: FAULT_AT is its number, FAULT_ERRNO the error, FAULT_TIMES
 * how many calls in a row fail. Loaded before libc; counts calls into FAULT_LOG at exit. For the tests only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls, fired;
static long fault_at = -1, fault_times = 1;
static int fault_errno;

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("FAULT_AT"), *times = getenv("FAULT_TIMES"), *code = getenv("FAULT_ERRNO");
    if (at) fault_at = atol(at);
    if (times) fault_times = atol(times);
    if (code) fault_errno = atoi(code);
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAULT_LOG");
    FILE *log = path ? fopen(path, "w") : NULL;
    if (log) {
        fprintf(log, "%ld %ld\n", atomic_load(&calls), atomic_load(&fired));
        fclose(log);
    }
}

static int fails(int fd) {
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (!strstr(path, "service.db") || strstr(path, "-shm") || strstr(path, "-ballast")) return 0;
    long number = atomic_fetch_add(&calls, 1);
    if (fault_at < 0 || number < fault_at || number >= fault_at + fault_times) return 0;
    atomic_fetch_add(&fired, 1);
    errno = fault_errno;
    return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *from, size_t count) {
    return fd > 2 && fails(fd) ? -1 : NEXT(write)(fd, from, count);
}
ssize_t pwrite(int fd, const void *from, size_t count, off_t at) {
    return fails(fd) ? -1 : NEXT(pwrite)(fd, from, count, at);
}
ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) {
    return fails(fd) ? -1 : NEXT(pwrite64)(fd, from, count, at);
}
int fsync(int fd) { return fails(fd) ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return fails(fd) ? -1 : NEXT(fdatasync)(fd); }
int ftruncate(int fd, off_t length) { return fails(fd) ? -1 : NEXT(ftruncate)(fd, length); }
int ftruncate64(int fd, off64_t length) { return fails(fd) ? -1 : NEXT(ftruncate64)(fd, length); }
