//! Metadata in the forms of Python: `os.stat_result`, directory entries, counters.

use kiln_read::{DirEntries, DirEntry, FileType, Image, Inode, Nid, ReadError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// All file types, to find the type with the number of a directory entry.
const TYPES: [FileType; 7] = [
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::CharDevice,
    FileType::BlockDevice,
    FileType::Fifo,
    FileType::Socket,
];

/// Returns the entries of a directory without "." and "..": name, inode number, and the type bits
/// of the mode.
pub(crate) fn list(image: &Image, dir: &Inode) -> Result<Vec<(Vec<u8>, u64, u16)>, ReadError> {
    let entry = |entry: Result<DirEntry, ReadError>| {
        let entry = entry?;
        let file_type = match TYPES.into_iter().find(|file_type| file_type.dirent_number() == entry.file_type) {
            Some(file_type) => file_type,
            // The type in the entry is only a hint, which this image does not give.
            None => image.inode(entry.nid)?.file_type(),
        };
        Ok((entry.name, entry.nid.0, file_type.mode_bits()))
    };
    DirEntries::new(image, dir).map(entry).collect()
}

/// Returns the arguments of `os.stat_result`.
pub(crate) fn stat<'py>(
    py: Python<'py>,
    image: &Image,
    inode: &Inode,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyDict>)> {
    let (ino, size, secs) = (image.st_ino(inode.nid), inode.size(), inode.mtime());
    let base = (inode.mode(), ino, 0, inode.nlink(), inode.uid(), inode.gid(), size, secs, secs, secs);
    let named = PyDict::new(py);
    let nanoseconds = i128::from(secs) * 1_000_000_000 + i128::from(inode.mtime_nsec());
    let seconds = secs as f64 + f64::from(inode.mtime_nsec()) / 1e9;
    for time in ["st_atime", "st_mtime", "st_ctime"] {
        named.set_item(time, seconds)?;
        named.set_item(format!("{time}_ns"), nanoseconds)?;
    }
    let rdev = inode.rdev();
    named.set_item("st_rdev", rustix::fs::makedev(rdev.major, rdev.minor))?;
    named.set_item("st_blksize", image.superblock().block_bits.len())?;
    named.set_item("st_blocks", size.div_ceil(512))?;
    Ok((base.into_pyobject(py)?.into_any(), named))
}

/// Returns the fields of the superblock as a dictionary.
pub(crate) fn superblock<'py>(py: Python<'py>, image: &Image) -> PyResult<Bound<'py, PyDict>> {
    let sb = image.superblock();
    let fields = PyDict::new(py);
    fields.set_item("block_size", sb.block_bits.len())?;
    fields.set_item("inodes", sb.inos)?;
    fields.set_item("blocks", sb.blocks)?;
    fields.set_item("build_time", sb.epoch)?;
    fields.set_item("root_nid", sb.root_nid.0)?;
    fields.set_item("packed_nid", sb.packed_nid.map(|Nid(nid)| nid))?;
    let label = sb.volume_name.split(|&byte| byte == 0).next().unwrap_or_default();
    fields.set_item("label", String::from_utf8_lossy(label))?;
    fields.set_item("devices", image.device_slots().len())?;
    fields.set_item("compat", sb.compat.bits())?;
    fields.set_item("incompat", sb.incompat.bits())?;
    let cfgs = image.compr_cfgs();
    let algorithms = kiln_read::Algorithm::ALL.into_iter().filter(|algorithm| cfgs.has(*algorithm));
    let names: Vec<_> = algorithms.map(|algorithm| algorithm.name()).collect();
    fields.set_item("algorithms", PyTuple::new(py, names)?)?;
    Ok(fields)
}

/// Returns the counters of reads as a dictionary.
pub(crate) fn stats<'py>(py: Python<'py>, image: &Image) -> PyResult<Bound<'py, PyDict>> {
    let stats = image.stats();
    let counts = PyDict::new(py);
    counts.set_item("reads", stats.reads)?;
    counts.set_item("served_bytes", stats.served_bytes)?;
    counts.set_item("fetches", stats.fetches)?;
    counts.set_item("fetched_bytes", stats.fetched_bytes)?;
    counts.set_item("decodes", stats.decodes())?;
    counts.set_item("decoded_bytes", stats.decoded_bytes)?;
    counts.set_item("cache_hits", stats.hits)?;
    Ok(counts)
}
