/* The time of day as a test wants it: so many seconds ahead of the real one as the file CLOCK_AHEAD says when the process starts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long ahead;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_AHEAD");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file || fscanf(file, "%ld", &ahead) != 1) abort();
    fclose(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_REALTIME) time->tv_sec += ahead;
    return (int)failed;
}
