/* Shifts the wall clock of one process, and no other clock, by as many seconds as a file says: eight
 * bytes, signed, in the order of this machine, read anew each time. So a test turns the clocks of a
 * cluster while it runs, and nobody else's.
 *
 *     gcc -shared -fPIC -O2 -o wall_clock.so wall_clock.c
 *     LD_PRELOAD=./wall_clock.so WALL_CLOCK_FILE=./shift PROGRAM
 *
 * (libfaketime 0.9.10 of Debian 12 breaks time.sleep of Python 3.11, which sleeps until a moment of
 * the monotonic clock.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WALL_CLOCK_FILE");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (mapped != MAP_FAILED) shift = mapped;
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (real_clock_gettime == NULL)
        real_clock_gettime =
            (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int status = real_clock_gettime(clock, now);
    if (status == 0 && shift != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *shift;
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int status = clock_gettime(CLOCK_REALTIME, &exact);
    (void)zone;
    if (status == 0) {
        now->tv_sec = exact.tv_sec;
        now->tv_usec = exact.tv_nsec / 1000;
    }
    return status;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now != NULL) *now = exact.tv_sec;
    return exact.tv_sec;
}
