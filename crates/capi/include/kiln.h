/* libkiln: reading and packing of EROFS images. Made by cbindgen of crates/capi/src; see docs/c.md. */

#ifndef KILN_H
#define KILN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 An error. `kiln_error_free` frees it.
 */
typedef struct kiln_error kiln_error;

/*
 An open image.
 */
typedef struct kiln_image kiln_image;

/*
 Metadata of a file.
 */
typedef struct {
  /*
   Number by which functions name the file.
   */
  uint64_t nid;
  /*
   Length in bytes.
   */
  uint64_t size;
  /*
   Modification time in seconds since 1970.
   */
  int64_t mtime;
  /*
   Nanoseconds of the modification time.
   */
  uint32_t mtime_nsec;
  /*
   Type and permissions, as `st_mode` has them.
   */
  uint32_t mode;
  /*
   Owner.
   */
  uint32_t uid;
  /*
   Group.
   */
  uint32_t gid;
  /*
   Number of names.
   */
  uint32_t nlink;
  /*
   Numbers of a device.
   */
  uint32_t rdev_major;
  /*
   As `rdev_major`.
   */
  uint32_t rdev_minor;
} kiln_stat;

/*
 A read of a batch.
 */
typedef struct {
  /*
   The file.
   */
  uint64_t nid;
  /*
   First byte of the file.
   */
  uint64_t off;
  /*
   Buffer of `len` bytes.
   */
  uint8_t *buf;
  /*
   Length of the buffer.
   */
  size_t len;
  /*
   Result: bytes that were read, up to the end of the file; -1 after an error.
   */
  int64_t read;
  /*
   Result: the error, to be freed, or null.
   */
  kiln_error *error;
} kiln_read_request;

/*
 Function that gets an entry of a directory: its name, which ends with a zero byte, and its nid. Any other result
 than 0 ends the listing.
 */
typedef int (*kiln_entry_fn)(void *user, const char *name, uint64_t nid);

/*
 Function that gets a file of a tree: its path and its metadata. Any other result than 0 ends the walk.
 */
typedef int (*kiln_walk_fn)(void *user, const char *path, const kiln_stat *stat);

/*
 Choices of packing. Zeros and nulls are the defaults.
 */
typedef struct {
  /*
   Name of a preset: "balanced", "plain", "fast", "archive", "dataset" or "backup".
   */
  const char *preset;
  /*
   Oldest kernel that must be able to mount the image, such as "5.15".
   */
  const char *kernel;
  /*
   Number of threads; 0: one for each processor.
   */
  uint32_t threads;
  /*
   True to replace an image that exists.
   */
  bool replace;
} kiln_pack_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the version of the library, such as "0.2.0".
 */
const char *kiln_version(void);

/*
 Returns the message of an error. It lives as long as the error.

 # Safety
 `error` comes from this library, and is not freed.
 */
const char *kiln_error_message(const kiln_error *error);

/*
 Returns the number of an error, as in errno.h: EUCLEAN for damage of an image, ENOENT for a missing file.

 # Safety
 `error` comes from this library, and is not freed.
 */
int kiln_error_errno(const kiln_error *error);

/*
 Frees an error. Null is allowed.

 # Safety
 `error` comes from this library, and is not used again.
 */
void kiln_error_free(kiln_error *error);

/*
 Opens an image in a file or a block device. Returns null after an error.

 # Safety
 `path` ends with a zero byte; `error` is null or may be written to.
 */
kiln_image *kiln_open(const char *path, kiln_error **error);

/*
 Closes an image. Null is allowed.

 # Safety
 `image` comes from `kiln_open`, and is not used again.
 */
void kiln_close(kiln_image *image);

/*
 Returns the nid of the root directory.

 # Safety
 `image` is an open image.
 */
uint64_t kiln_root(const kiln_image *image);

/*
 Finds the file at a path, and writes its metadata to `stat`. Symbolic links on the way are followed within the
 image; one at the end only if `follow` is true. Returns 0, or -1 after an error.

 # Safety
 `image` is open; `path` ends with a zero byte; `stat` may be written to; `error` is null or may be written to.
 */
int kiln_lookup(const kiln_image *image,
                const char *path,
                bool follow,
                kiln_stat *stat,
                kiln_error **error);

/*
 Writes the metadata of the file `nid` to `stat`. Returns 0, or -1 after an error.

 # Safety
 As `kiln_lookup`.
 */
int kiln_stat_of(const kiln_image *image, uint64_t nid, kiln_stat *stat, kiln_error **error);

/*
 Reads up to `len` bytes of the file `nid` from byte `off` on. Returns their number, which is less only at the end of
 the file, or -1 after an error.

 # Safety
 `image` is open; `buf` has room for `len` bytes; `error` is null or may be written to.
 */
int64_t kiln_read(const kiln_image *image,
                  uint64_t nid,
                  uint8_t *buf,
                  size_t len,
                  uint64_t off,
                  kiln_error **error);

/*
 Reads many ranges at once, on `threads` threads (0: one for each processor), in the order in which they are stored.
 Each request gets its result. Returns the number of requests that failed.

 # Safety
 `image` is open; `requests` has `count` requests, whose buffers have room and do not overlap.
 */
size_t kiln_read_batch(const kiln_image *image,
                       kiln_read_request *requests,
                       size_t count,
                       uint32_t threads);

/*
 Writes the target of the symbolic link `nid` to `buf`, without a zero byte. Returns its length, which may be more
 than `len`: then `buf` has the first bytes. Returns -1 after an error.

 # Safety
 As `kiln_read`.
 */
int64_t kiln_read_link(const kiln_image *image,
                       uint64_t nid,
                       uint8_t *buf,
                       size_t len,
                       kiln_error **error);

/*
 Calls `each` for the entries of the directory `nid`, without "." and "..". Returns 0, the result of `each` that
 ended the listing, or -1 after an error.

 # Safety
 `image` is open; `each` may be called with `user`; `error` is null or may be written to.
 */
int kiln_list(const kiln_image *image,
              uint64_t nid,
              kiln_entry_fn each,
              void *user,
              kiln_error **error);

/*
 Calls `each` for the file at `path` and, if it is a directory, for all that is below it: directories before their
 entries. Returns 0, the result of `each` that ended the walk, or -1 after an error.

 # Safety
 As `kiln_list`; `path` ends with a zero byte.
 */
int kiln_walk(const kiln_image *image,
              const char *path,
              kiln_walk_fn each,
              void *user,
              kiln_error **error);

/*
 Packs a directory, an archive or an image into the image `image`, which appears when it is complete. `options` may
 be null. Returns 0, or -1 after an error.

 # Safety
 Strings end with a zero byte; `options` is null or points to options; `error` is null or may be written to.
 */
int kiln_pack(const char *source,
              const char *image,
              const kiln_pack_options *options,
              kiln_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KILN_H */
