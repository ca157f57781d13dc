/* Lets write() below a folder fail after some bytes, as a network file system or a quota does.
   DISK_FOLDER, DISK_ERRNO, DISK_BYTES (of all files together); for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long long written;

static int refused(int fd, size_t count)
{
    char link[64], path[PATH_MAX];
    const char *folder = getenv("DISK_FOLDER");
    ssize_t length;

    if (!folder || fd < 3)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (strncmp(path, folder, strlen(folder)))
        return 0;
    written += count;
    if (written <= atoll(getenv("DISK_BYTES")))
        return 0;
    errno = atoi(getenv("DISK_ERRNO"));
    return 1;
}

ssize_t write(int fd, const void *data, size_t count)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    return refused(fd, count) ? -1 : real(fd, data, count);
}

ssize_t writev(int fd, const struct iovec *parts, int number)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    size_t count = 0;
    if (!real)
        real = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    for (int at = 0; at < number; at++)
        count += parts[at].iov_len;
    return refused(fd, count) ? -1 : real(fd, parts, number);
}
