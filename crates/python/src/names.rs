//! Metadata as Python has it: `os.stat_result`, directory entries, counters.

use kiln_read::{DirEntries, DirEntry, FileType, Image, Inode, Nid, ReadError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// All types, to find the one that a directory entry has the number of.
const TYPES: [FileType; 7] = [
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::CharDevice,
    FileType::BlockDevice,
    FileType::Fifo,
    FileType::Socket,
];

/// Names of a directory, "." and ".." left out, with the numbers of their inodes and the type bits of their modes.
pub(crate) fn list(image: &Image, dir: &Inode) -> Result<Vec<(Vec<u8>, u64, u16)>, ReadError> {
    let entry = |entry: Result<DirEntry, ReadError>| {
        let entry = entry?;
        let file_type = match TYPES.into_iter().find(|file_type| file_type.dirent_number() == entry.file_type) {
            Some(file_type) => file_type,
            // The entry's type is a hint that this image does not give.
            None => image.inode(entry.nid)?.file_type(),
        };
        Ok((entry.name, entry.nid.0, file_type.mode_bits()))
    };
    DirEntries::new(image, dir).map(entry).collect()
}

/// The arguments of `os.stat_result`.
pub(crate) fn stat<'py>(
    py: Python<'py>,
    image: &Image,
    inode: &Inode,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyDict>)> {
    let (ino, size, secs) = (image.st_ino(inode.nid), inode.size(), inode.mtime());
    let base = (inode.mode(), ino, 0, inode.nlink(), inode.uid(), inode.gid(), size, secs, secs, secs);
    let more = PyDict::new(py);
    let nanoseconds = i128::from(secs) * 1_000_000_000 + i128::from(inode.mtime_nsec());
    let seconds = secs as f64 + f64::from(inode.mtime_nsec()) / 1e9;
    for time in ["st_atime", "st_mtime", "st_ctime"] {
        more.set_item(time, seconds)?;
        more.set_item(format!("{time}_ns"), nanoseconds)?;
    }
    let rdev = inode.rdev();
    more.set_item("st_rdev", rustix::fs::makedev(rdev.major, rdev.minor))?;
    more.set_item("st_blksize", image.superblock().block_bits.len())?;
    more.set_item("st_blocks", size.div_ceil(512))?;
    Ok((base.into_pyobject(py)?.into_any(), more))
}

/// What the superblock says.
pub(crate) fn superblock<'py>(py: Python<'py>, image: &Image) -> PyResult<Bound<'py, PyDict>> {
    let sb = image.superblock();
    let facts = PyDict::new(py);
    facts.set_item("block_size", sb.block_bits.len())?;
    facts.set_item("inodes", sb.inos)?;
    facts.set_item("blocks", sb.blocks)?;
    facts.set_item("build_time", sb.epoch)?;
    facts.set_item("root_nid", sb.root_nid.0)?;
    facts.set_item("packed_nid", sb.packed_nid.map(|Nid(nid)| nid))?;
    let label = sb.volume_name.split(|&byte| byte == 0).next().unwrap_or_default();
    facts.set_item("label", String::from_utf8_lossy(label))?;
    facts.set_item("devices", image.device_slots().len())?;
    facts.set_item("compat", sb.compat.bits())?;
    facts.set_item("incompat", sb.incompat.bits())?;
    let cfgs = image.compr_cfgs();
    let algorithms = kiln_read::Algorithm::ALL.into_iter().filter(|algorithm| cfgs.has(*algorithm));
    let names: Vec<_> = algorithms.map(|algorithm| algorithm.name()).collect();
    facts.set_item("algorithms", PyTuple::new(py, names)?)?;
    Ok(facts)
}

/// What reading has cost.
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
