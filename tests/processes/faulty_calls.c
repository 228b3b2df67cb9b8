/* Loaded before the C library: the n-th call of a process on files below a directory fails. Compiled by `system_faults.py`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char below[PATH_MAX];
static atomic_long seen;
static long failing = -1;
static int error_number, for_ever;

/* Begin to count; the call `n` (none if negative), and all after it if `ever`, fails with `error`. */
void fault_arm(const char *directory, long n, int error, int ever) {
  snprintf(below, sizeof below, "%s", directory);
  failing = n;
  error_number = error;
  for_ever = ever;
  if (*directory) atomic_store(&seen, 0);
}

long fault_seen(void) { return atomic_load(&seen); }

static int fails(const char *path) {
  size_t length = strlen(below);
  if (!length || !path || strncmp(path, below, length)) return 0;
  long number = atomic_fetch_add(&seen, 1);
  if (failing < 0 || (for_ever ? number < failing : number != failing)) return 0;
  errno = error_number;
  return 1;
}

static int fails_fd(int fd) {
  if (!below[0]) return 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return fails(path);
}

static int fails_at(int directory, const char *path) {
  return path[0] == '/' || directory == AT_FDCWD ? fails(path) : fails_fd(directory);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE(flags) \
  mode_t mode = 0; \
  if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags) return fails(path) ? -1 : REAL(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return fails(path) ? -1 : REAL(open64)(path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return fails_at(at, path) ? -1 : REAL(openat)(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return fails_at(at, path) ? -1 : REAL(openat64)(at, path, flags, mode); }
ssize_t read(int fd, void *to, size_t size) { return fails_fd(fd) ? -1 : REAL(read)(fd, to, size); }
ssize_t write(int fd, const void *from, size_t size) { return fails_fd(fd) ? -1 : REAL(write)(fd, from, size); }
int fsync(int fd) { return fails_fd(fd) ? -1 : REAL(fsync)(fd); }
int link(const char *old, const char *new) { return fails(new) ? -1 : REAL(link)(old, new); }
int rename(const char *old, const char *new) { return fails(new) ? -1 : REAL(rename)(old, new); }
int unlink(const char *path) { return fails(path) ? -1 : REAL(unlink)(path); }
int unlinkat(int at, const char *path, int flags) { return fails_at(at, path) ? -1 : REAL(unlinkat)(at, path, flags); }
int mkdir(const char *path, mode_t mode) { return fails(path) ? -1 : REAL(mkdir)(path, mode); }
int rmdir(const char *path) { return fails(path) ? -1 : REAL(rmdir)(path); }
DIR *opendir(const char *path) { return fails(path) ? NULL : REAL(opendir)(path); }
int stat(const char *path, struct stat *to) { return fails(path) ? -1 : REAL(stat)(path, to); }
int stat64(const char *path, struct stat64 *to) { return fails(path) ? -1 : REAL(stat64)(path, to); }
int fstatat(int at, const char *path, struct stat *to, int flags) { return fails_at(at, path) ? -1 : REAL(fstatat)(at, path, to, flags); }
int fstatat64(int at, const char *path, struct stat64 *to, int flags) { return fails_at(at, path) ? -1 : REAL(fstatat64)(at, path, to, flags); }
