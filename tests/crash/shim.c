/* Preloaded into a process: counts every call that changes the disk below a folder, and lets the n-th of them fail,
 * die or be torn. Nothing happens until crash_arm() is called. Linux, glibc; compiled by the tests that use it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { COUNT, FAIL, DIE_BEFORE, DIE_AFTER, TEAR, FAIL_FROM, TERMINATE, INTERRUPT, READ_ONLY };

static char root[PATH_MAX];
static size_t root_length;
static int action, failure, log_fd = -1, log_data;
static long target;
static atomic_long calls;
static atomic_long clock_seconds; /* added to the wall clock */
static long clock_jump;           /* seconds by which it jumps at the n-th call */

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static ssize_t raw_write(int fd, const void *data, size_t n) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return real(fd, data, n);
}

static int below(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

/* The absolute path of an open file; 1 if it is below the folder. */
static int of_fd(int fd, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    if (n < 0) return 0;
    out[n] = 0;
    return below(out);
}

static int of_path(int dir, const char *path, char *out) {
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
    } else {
        char base[PATH_MAX];
        if (dir == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return 0;
        } else {
            of_fd(dir, base);
        }
        while (path[0] == '.' && path[1] == '/') path += 2;
        if (strlen(base) + strlen(path) + 2 > PATH_MAX) return 0;
        snprintf(out, PATH_MAX, "%s", base);
        strcat(out, "/");
        strcat(out, path);
    }
    return below(out);
}

static void note(long n, const char *call, const char *one, const char *two, long at, const void *data, long size) {
    if (log_fd < 0) return;
    char line[2 * PATH_MAX + 128];
    long kept = log_data && data ? size : 0; /* bytes that follow the line */
    int length = snprintf(line, sizeof line, "%ld\t%s\t%s\t%s\t%ld\t%ld\n", n, call, one, two ? two : "", at, kept);
    raw_write(log_fd, line, length);
    if (kept > 0) raw_write(log_fd, data, kept);
}

/* Return 1 where the call is to fail (errno is set), 2 where it is to be torn, 3 where to die after it; else 0. */
static int now(const char *call, const char *one, const char *two, long at, const void *data, long size) {
    if (!root_length) return 0;
    long n = atomic_fetch_add(&calls, 1) + 1;
    note(n, call, one, two, at, data, size);
    if (n == target && clock_jump) atomic_fetch_add(&clock_seconds, clock_jump);
    int reached = action == FAIL_FROM || action == READ_ONLY ? target && n >= target : n == target;
    if (!reached) return 0;
    int frees = !strcmp(call, "unlink") || !strcmp(call, "rmdir") || !strcmp(call, "rename") || !strcmp(call, "exchange");
    switch (action) {
    case FAIL_FROM: /* a full disk lets one remove and rename */
        if (frees || (!strcmp(call, "open") && at == 0)) return 0;
        errno = failure;
        return 1;
    case READ_ONLY:
        if (!strcmp(call, "write") || !strcmp(call, "fsync")) return 0; /* what is open stays so */
        errno = failure;
        return 1;
    case FAIL: errno = failure; return 1;
    case DIE_BEFORE: kill(getpid(), SIGKILL); return 0;
    case DIE_AFTER: return 3;
    case TEAR: if (!strcmp(call, "write")) return 2; kill(getpid(), SIGKILL); return 0;
    case TERMINATE: kill(getpid(), SIGTERM); return 0;
    case INTERRUPT: kill(getpid(), SIGINT); return 0;
    }
    return 0;
}

static void after(int what) {
    if (what == 3) kill(getpid(), SIGKILL);
}

/* ---- what the tests call ---- */

void crash_arm(const char *folder, int what, long n, int error, int log, int with_data, long jump) {
    action = what; target = n; failure = error; log_fd = log; log_data = with_data; clock_jump = jump;
    atomic_store(&calls, 0);
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
}

long crash_calls(void) { return atomic_load(&calls); }

/* ---- the calls ---- */

#define WRITES(fd, data, size, at, go) \
    char path[PATH_MAX]; \
    if (!root_length || !of_fd(fd, path)) return go; \
    int what = now("write", path, 0, at, data, size); \
    if (what == 1) return -1; \
    if (what == 2) { torn(fd, data, size, at); kill(getpid(), SIGKILL); } \
    ssize_t done = go; \
    after(what); \
    return done

static long place(int fd) {
    if (fcntl(fd, F_GETFL) & O_APPEND) return lseek(fd, 0, SEEK_END);
    return lseek(fd, 0, SEEK_CUR);
}

static void torn(int fd, const void *data, size_t size, long at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t);
    if (data) real(fd, data, size / 2, at);
}

ssize_t write(int fd, const void *data, size_t n) {
    WRITES(fd, data, (long)n, place(fd), raw_write(fd, data, n));
}
#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t n, off_t at) { \
        REAL(ssize_t, #name, int, const void *, size_t, off_t); \
        WRITES(fd, data, (long)n, at, real(fd, data, n, at)); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)
ssize_t writev(int fd, const struct iovec *parts, int n) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    WRITES(fd, 0, n, place(fd), real(fd, parts, n));
}
#define SENDFILE(name) \
    ssize_t name(int out, int in, off_t *at, size_t n) { \
        REAL(ssize_t, #name, int, int, off_t *, size_t); \
        WRITES(out, 0, (long)n, place(out), real(out, in, at, n)); \
    }
SENDFILE(sendfile)
SENDFILE(sendfile64)
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    WRITES(out, 0, (long)n, place(out), real(in, from, out, to, n, flags));
}

#define ON_FD(name, call, at, go) \
    char path[PATH_MAX]; \
    if (!root_length || !of_fd(fd, path)) return go; \
    int what = now(call, path, 0, at, 0, 0); \
    if (what == 1) return -1; \
    int done = go; \
    after(what); \
    return done

int fsync(int fd) { REAL(int, "fsync", int); ON_FD(fsync, "fsync", 0, real(fd)); }
int fdatasync(int fd) { REAL(int, "fdatasync", int); ON_FD(fdatasync, "fsync", 0, real(fd)); }
int ftruncate(int fd, off_t n) { REAL(int, "ftruncate", int, off_t); ON_FD(ftruncate, "truncate", n, real(fd, n)); }
int ftruncate64(int fd, off64_t n) {
    REAL(int, "ftruncate64", int, off64_t);
    ON_FD(ftruncate64, "truncate", n, real(fd, n));
}
void sync(void) { /* noted and not done: a test fears no power cut, and the machine is not ours alone */
    after(root_length ? now("sync", root, 0, 0, 0, 0) : 0);
}

#define ON_PATH(call, dir, path, flag, go) \
    char full[PATH_MAX]; \
    if (!root_length || !of_path(dir, path, full)) return go; \
    int what = now(call, full, 0, flag, 0, 0); \
    if (what == 1) return -1; \
    int done = go; \
    after(what); \
    return done

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        if (!(flags & (O_WRONLY | O_RDWR | O_CREAT))) return real(path, flags, mode); \
        int made = flags & O_TRUNC ? 2 : access(path, F_OK) != 0; \
        ON_PATH("open", AT_FDCWD, path, made, real(path, flags, mode)); \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name) \
    int name(int dir, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        if (!(flags & (O_WRONLY | O_RDWR | O_CREAT))) return real(dir, path, flags, mode); \
        int made = flags & O_TRUNC ? 2 : faccessat(dir, path, F_OK, 0) != 0; \
        ON_PATH("open", dir, path, made, real(dir, path, flags, mode)); \
    }
OPENAT(openat)
OPENAT(openat64)

int mkdir(const char *p, mode_t m) { REAL(int, "mkdir", const char *, mode_t); ON_PATH("mkdir", AT_FDCWD, p, 0, real(p, m)); }
int mkdirat(int d, const char *p, mode_t m) { REAL(int, "mkdirat", int, const char *, mode_t); ON_PATH("mkdir", d, p, 0, real(d, p, m)); }
int unlink(const char *p) { REAL(int, "unlink", const char *); ON_PATH("unlink", AT_FDCWD, p, 0, real(p)); }
int unlinkat(int d, const char *p, int f) {
    REAL(int, "unlinkat", int, const char *, int);
    ON_PATH(f & AT_REMOVEDIR ? "rmdir" : "unlink", d, p, 0, real(d, p, f));
}
int rmdir(const char *p) { REAL(int, "rmdir", const char *); ON_PATH("rmdir", AT_FDCWD, p, 0, real(p)); }
int truncate(const char *p, off_t n) { REAL(int, "truncate", const char *, off_t); ON_PATH("truncate", AT_FDCWD, p, n, real(p, n)); }

#define ON_TWO(call, d1, p1, d2, p2, go) \
    char one[PATH_MAX], two[PATH_MAX]; \
    if (!root_length) return go; \
    int first = of_path(d1, p1, one), second = of_path(d2, p2, two); \
    if (!first && !second) return go; \
    int what = now(call, one, two, 0, 0, 0); \
    if (what == 1) return -1; \
    int done = go; \
    after(what); \
    return done

int rename(const char *a, const char *b) {
    REAL(int, "rename", const char *, const char *);
    ON_TWO("rename", AT_FDCWD, a, AT_FDCWD, b, real(a, b));
}
int renameat(int d, const char *a, int e, const char *b) {
    REAL(int, "renameat", int, const char *, int, const char *);
    ON_TWO("rename", d, a, e, b, real(d, a, e, b));
}
int renameat2(int d, const char *a, int e, const char *b, unsigned f) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    const char *kind = f & 2 ? "exchange" : "rename"; /* RENAME_EXCHANGE */
    ON_TWO(kind, d, a, e, b, real(d, a, e, b, f));
}
int link(const char *a, const char *b) {
    REAL(int, "link", const char *, const char *);
    ON_TWO("link", AT_FDCWD, a, AT_FDCWD, b, real(a, b));
}
int linkat(int d, const char *a, int e, const char *b, int f) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    ON_TWO("link", d, a, e, b, real(d, a, e, b, f));
}
int symlink(const char *a, const char *b) {
    REAL(int, "symlink", const char *, const char *);
    ON_PATH("symlink", AT_FDCWD, b, 0, real(a, b));
}
int symlinkat(const char *a, int d, const char *b) {
    REAL(int, "symlinkat", const char *, int, const char *);
    ON_PATH("symlink", d, b, 0, real(a, d, b));
}

/* ---- the clock on the wall ---- */

int clock_gettime(clockid_t which, struct timespec *out) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int done = real(which, out);
    if (which == CLOCK_REALTIME) out->tv_sec += atomic_load(&clock_seconds);
    return done;
}
time_t time(time_t *out) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (out) *out = at.tv_sec;
    return at.tv_sec;
}
