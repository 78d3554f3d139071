/* Refuse with ENOSPC to write more than FULL_BYTES bytes below the folder FULL_BELOW. Loaded before all other libraries (LD_PRELOAD). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long used;

/* Whether growing the file to `end` bytes is refused; if not, the growth is counted. */
static int refused(int fd, off_t end) {
    const char *below = getenv("FULL_BELOW"), *bytes = getenv("FULL_BYTES");
    char link[64], path[PATH_MAX];
    struct stat state;
    if (!below || !bytes) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0 || fstat(fd, &state) || !S_ISREG(state.st_mode)) return 0;
    path[length] = 0;
    if (strncmp(path, below, strlen(below))) return 0;
    long growth = (long)(end - state.st_size);
    if (growth <= 0) return 0;
    if (atomic_fetch_add(&used, growth) + growth <= atol(bytes)) return 0;
    atomic_fetch_sub(&used, growth);
    errno = ENOSPC;
    return 1;
}

ssize_t write(int fd, const void *data, size_t count) {
    ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at >= 0 && refused(fd, at + (off_t)count) ? -1 : next(fd, data, count);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    return refused(fd, at + (off_t)count) ? -1 : next(fd, data, count, at);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t at) {
    ssize_t (*next)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    return refused(fd, at + (off_t)count) ? -1 : next(fd, data, count, at);
}
