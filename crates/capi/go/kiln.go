// Package kiln reads EROFS images through libkiln, as an io/fs.FS. It is an example: copy it into your program.
package kiln

/*
#cgo pkg-config: kiln
#include <stdlib.h>
#include <kiln.h>

extern int kilnEntry(void *user, char *name, uint64_t nid);

static int list(const kiln_image *image, uint64_t nid, uintptr_t user, kiln_error **error)
{
	return kiln_list(image, nid, (kiln_entry_fn)kilnEntry, (void *)user, error);
}
*/
import "C"

import (
	"io"
	"io/fs"
	"path"
	"runtime/cgo"
	"sort"
	"syscall"
	"time"
	"unsafe"
)

// FS is an open image.
type FS struct{ image *C.kiln_image }

// Open opens an image in a file or a block device. Close it after use.
func Open(name string) (*FS, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var failed *C.kiln_error
	image := C.kiln_open(text, &failed)
	if image == nil {
		return nil, take("open", name, failed)
	}
	return &FS{image}, nil
}

// Close closes the image. Nothing may be read of it afterwards.
func (f *FS) Close() error {
	C.kiln_close(f.image)
	f.image = nil
	return nil
}

// Open opens a file or a directory; symbolic links are followed within the image.
func (f *FS) Open(name string) (fs.File, error) {
	info, err := f.stat("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &dir{fs: f, info: info, name: name}, nil
	}
	return &file{fs: f, info: info}, nil
}

// Stat returns the metadata of a file.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.stat("stat", name) }

func (f *FS) stat(op, name string) (*info, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	text := C.CString("/" + name)
	defer C.free(unsafe.Pointer(text))
	var failed *C.kiln_error
	found := &info{name: path.Base(name)}
	if C.kiln_lookup(f.image, text, true, &found.stat, &failed) != 0 {
		return nil, take(op, name, failed)
	}
	return found, nil
}

type info struct {
	name string
	stat C.kiln_stat
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return int64(i.stat.size) }
func (i *info) ModTime() time.Time { return time.Unix(int64(i.stat.mtime), int64(i.stat.mtime_nsec)) }
func (i *info) IsDir() bool        { return i.Mode().IsDir() }
func (i *info) Sys() any           { return nil }

func (i *info) Mode() fs.FileMode {
	mode := fs.FileMode(i.stat.mode & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{
		syscall.S_ISUID: fs.ModeSetuid, syscall.S_ISGID: fs.ModeSetgid, syscall.S_ISVTX: fs.ModeSticky,
	} {
		if uint32(i.stat.mode)&bit != 0 {
			mode |= flag
		}
	}
	switch uint32(i.stat.mode) & syscall.S_IFMT {
	case syscall.S_IFDIR:
		mode |= fs.ModeDir
	case syscall.S_IFLNK:
		mode |= fs.ModeSymlink
	case syscall.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case syscall.S_IFBLK:
		mode |= fs.ModeDevice
	case syscall.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case syscall.S_IFSOCK:
		mode |= fs.ModeSocket
	}
	return mode
}

type file struct {
	fs   *FS
	info *info
	off  int64
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

func (f *file) Read(buf []byte) (int, error) {
	count, err := f.ReadAt(buf, f.off)
	f.off += int64(count)
	if count > 0 && err == io.EOF {
		err = nil
	}
	return count, err
}

// ReadAt reads from an offset on, as io.ReaderAt says.
func (f *file) ReadAt(buf []byte, off int64) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	var failed *C.kiln_error
	count := C.kiln_read(f.fs.image, f.info.stat.nid, (*C.uint8_t)(&buf[0]), C.size_t(len(buf)), C.uint64_t(off), &failed)
	if count < 0 {
		return 0, take("read", f.info.name, failed)
	}
	if int(count) < len(buf) {
		return int(count), io.EOF
	}
	return int(count), nil
}

type dir struct {
	fs      *FS
	info    *info
	name    string
	entries []fs.DirEntry
	isRead  bool
}

func (d *dir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *dir) Close() error               { return nil }

func (d *dir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: syscall.EISDIR}
}

// ReadDir returns entries in the order of their names.
func (d *dir) ReadDir(count int) ([]fs.DirEntry, error) {
	if !d.isRead {
		if err := d.list(); err != nil {
			return nil, err
		}
	}
	if count <= 0 {
		all := d.entries
		d.entries = nil
		return all, nil
	}
	if len(d.entries) == 0 {
		return nil, io.EOF
	}
	if count > len(d.entries) {
		count = len(d.entries)
	}
	part := d.entries[:count]
	d.entries = d.entries[count:]
	return part, nil
}

type entry struct {
	name string
	nid  C.uint64_t
}

func (d *dir) list() error {
	var found []entry
	handle := cgo.NewHandle(&found)
	defer handle.Delete()
	var failed *C.kiln_error
	if C.list(d.fs.image, d.info.stat.nid, C.uintptr_t(handle), &failed) != 0 {
		return take("readdir", d.name, failed)
	}
	for _, one := range found {
		about := &info{name: one.name}
		if C.kiln_stat_of(d.fs.image, one.nid, &about.stat, &failed) != 0 {
			return take("stat", path.Join(d.name, one.name), failed)
		}
		d.entries = append(d.entries, fs.FileInfoToDirEntry(about))
	}
	sort.Slice(d.entries, func(a, b int) bool { return d.entries[a].Name() < d.entries[b].Name() })
	d.isRead = true
	return nil
}

//export kilnEntry
func kilnEntry(user unsafe.Pointer, name *C.char, nid C.uint64_t) C.int {
	found := cgo.Handle(uintptr(user)).Value().(*[]entry)
	*found = append(*found, entry{C.GoString(name), nid})
	return 0
}

// take turns an error of the library into one of Go, and frees it.
func take(op, name string, failed *C.kiln_error) error {
	defer C.kiln_error_free(failed)
	number := syscall.Errno(C.kiln_error_errno(failed))
	if number == syscall.ENOENT {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return &fs.PathError{Op: op, Path: C.GoString(C.kiln_error_message(failed)), Err: number}
}
