/* Reads an image by libkiln, and prints each file: mode, size, path, and the FNV-1a hash of its contents. */
#include "kiln.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const kiln_image *image;

static int fail(kiln_error *error, const char *what)
{
    fprintf(stderr, "%s: %s (%d)\n", what, kiln_error_message(error), kiln_error_errno(error));
    kiln_error_free(error);
    return 1;
}

static uint64_t hash(uint64_t sum, const uint8_t *bytes, int64_t len)
{
    for (int64_t at = 0; at < len; at++)
        sum = (sum ^ bytes[at]) * 0x100000001b3;
    return sum;
}

static int print_file(void *user, const char *path, const kiln_stat *found)
{
    uint8_t buf[50000];
    uint64_t sum = 0xcbf29ce484222325;
    kiln_error *error = NULL;
    kiln_stat again;
    int *count = user;

    if (kiln_stat_of(image, found->nid, &again, &error) != 0 || again.size != found->size)
        return fail(error, path);
    if (S_ISREG(found->mode)) {
        uint64_t off = 0;
        int64_t len;

        while ((len = kiln_read(image, found->nid, buf, sizeof buf, off, &error)) > 0) {
            sum = hash(sum, buf, len);
            off += len;
        }
        if (len < 0 || off != found->size)
            return fail(error, path);
    } else if (S_ISLNK(found->mode)) {
        int64_t len = kiln_read_link(image, found->nid, buf, sizeof buf, &error);

        if (len < 0)
            return fail(error, path);
        sum = hash(sum, buf, len);
    }
    printf("%" PRIo32 " %" PRIu64 " %" PRIx64 " %s\n", found->mode, found->size, sum, path);
    ++*count;
    return 0;
}

static int count_entry(void *user, const char *name, uint64_t nid)
{
    int *count = user;

    if (name[0] == 0 || strchr(name, '/') || nid == 0)
        return 7;
    ++*count;
    return 0;
}

/* Reads the starts of two files, and a file that is not there, at once. */
static int batch(const kiln_stat *file)
{
    uint8_t one[100], two[10];
    kiln_read_request reads[3] = {
        {.nid = file->nid, .buf = one, .len = sizeof one},
        {.nid = UINT64_MAX, .buf = two, .len = sizeof two},
        {.nid = file->nid, .off = 1, .buf = two, .len = sizeof two},
    };
    size_t failed = kiln_read_batch(image, reads, 3, 2);

    if (failed != 1 || reads[1].error == NULL || reads[1].read != -1)
        return fail(NULL, "a file that is not there was read");
    kiln_error_free(reads[1].error);
    if (reads[0].read < 11 || reads[2].read != 10 || memcmp(one + 1, two, 10) != 0)
        return fail(reads[0].error, "a batch");
    return 0;
}

int main(int argc, char **argv)
{
    kiln_error *error = NULL;
    kiln_stat stat;
    int files = 0, entries = 0;

    if (argc == 4 && strcmp(argv[1], "pack") == 0) {
        kiln_pack_options options = {.preset = "fast", .threads = 1};

        if (kiln_pack(argv[2], argv[3], &options, &error) != 0)
            return fail(error, argv[2]);
        /* It exists now. */
        if (kiln_pack(argv[2], argv[3], NULL, &error) == 0 || kiln_error_errno(error) != EEXIST)
            return fail(error, "an image was replaced");
        kiln_error_free(error);
        return 0;
    }
    kiln_image *opened = kiln_open(argv[1], &error);

    if (!opened)
        return fail(error, argv[1]);
    image = opened;
    if (kiln_walk(image, "/", print_file, &files, &error) != 0)
        return fail(error, argv[1]);
    if (kiln_list(image, kiln_root(image), count_entry, &entries, &error) != 0 || entries > files)
        return fail(error, "the root");
    if (kiln_lookup(image, "/no/such/file", true, &stat, &error) != -1 || kiln_error_errno(error) != ENOENT)
        return fail(error, "a file that is not there was found");
    kiln_error_free(error);
    if (argc > 2) {
        if (kiln_lookup(image, argv[2], true, &stat, NULL) != 0 || batch(&stat) != 0)
            return fail(NULL, argv[2]);
    }
    kiln_close(opened);
    return 0;
}
