//! Fuzz targets: functions that take any bytes and must return.
//!
//! The programs in `fuzz/` are wrappers of these, one for each of [`TARGETS`]; `tests/it/corpus.rs`
//! runs the same functions on the inputs that fuzzing has collected.

mod codec;
mod composefs;
mod crafted;
mod generations;
mod image;
mod input;
mod lists;
mod map;
mod partitions;
mod patch;
mod records;
mod sources;
mod verity;
mod xattr;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora.
pub const TARGETS: [(&str, Target); 35] = [
    ("superblock", records::superblock),
    ("compr-cfg", records::compr_cfg),
    ("inode", records::inode),
    ("dirent", records::dirent),
    ("tables", records::tables),
    ("zmap", records::zmap),
    ("xattr", xattr::xattr),
    ("map", map::map),
    ("lz4", codec::lz4),
    ("lzma", codec::lzma),
    ("deflate", codec::deflate),
    ("zstd", codec::zstd),
    ("image", image::image),
    ("patched-image", image::patched_image),
    ("tar", sources::tar),
    ("cpio", sources::cpio),
    ("zip", sources::zip),
    ("squashfs", sources::squashfs),
    ("ext4", sources::ext4),
    ("cramfs", sources::cramfs),
    ("oci", sources::oci),
    ("mtree", sources::mtree),
    ("pseudo", sources::pseudo),
    ("device-table", sources::device_table),
    ("fs-config", sources::fs_config),
    ("compressed", sources::compressed),
    ("partitions", partitions::partitions),
    ("patch", patch::patch),
    ("generation", generations::generation),
    ("updated-image", generations::updated_image),
    ("hot-list", lists::hot_list),
    ("stamps", lists::stamps),
    ("composefs-dump", composefs::dump),
    ("verity", verity::superblock),
    ("signature", verity::signature),
];

/// Runs the target with this name.
///
/// # Panics
/// If there is none, or if the target finds a bug.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(target, _)| *target == name).unwrap_or_else(|| panic!("no target {name}"));
    (target.1)(data);
}
