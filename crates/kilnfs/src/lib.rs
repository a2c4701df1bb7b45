//! EROFS images: pack a directory into a compressed file that Linux mounts; read it, extract it, mount it.
//!
//! ```
//! # let tmp = tempfile::tempdir().unwrap();
//! # std::fs::create_dir(tmp.path().join("src")).unwrap();
//! # std::fs::write(tmp.path().join("src/hello"), "world").unwrap();
//! # let old = std::env::current_dir().unwrap();
//! # std::env::set_current_dir(&tmp).unwrap();
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! kilnfs::pack("src", "out.erofs", kilnfs::Preset::Balanced)?;
//! let image = kilnfs::open("out.erofs")?;            // clones are cheap and share one cache
//! std::io::copy(&mut image.open_file("hello")?, &mut std::io::stdout())?;
//! kilnfs::extract("out.erofs", "dir")?;
//! # assert_eq!(std::fs::read("dir/hello")?, b"world");
//!
//! let report = kilnfs::export("out.erofs", "out.tar.zst")?;
//! assert_eq!((report.files, report.is_incomplete()), (1, false));
//! # assert!(std::fs::read("out.tar.zst")?.starts_with(b"\x28\xb5\x2f\xfd"));
//! # assert!(matches!(kilnfs::export("out.erofs", "out.tar.zst"), Err(kilnfs::Error::Output(_))), "it is there already");
//! # assert!(matches!(kilnfs::export("out.erofs", "out.rar"), Err(kilnfs::Error::ArchiveName { .. })));
//! # Ok(())
//! # }
//! # example().unwrap();
//! # std::env::set_current_dir(old).unwrap();
//! ```
//!
//! The kernel's own driver mounts images if it lets this process; else FUSE does, which needs no privilege:
//!
//! ```no_run
//! let mount = kilnfs::mount("out.erofs", "mnt")?;
//! println!("{} is there, by {:?}", mount.dir().display(), mount.via());
//! mount.unmount()?; // so does dropping it
//! # Ok::<(), kilnfs::Error>(())
//! ```
//!
//! [`Packer`] has more choices than a preset, and its steps one by one. The crates that do the work are modules here:
//! [`read`] for images, [`builder`] for building them, [`source`] for their sources, [`oci`] for images of containers,
//! [`sink`] for extracting and exporting, [`diff`](mod@diff) for comparing trees, [`revise`] for images that reuse data
//! of older ones, [`delta`] for patches between images, [`composefs`] for images of composefs, [`verity`] for hash
//! trees, [`signature`] for signatures of root hashes, [`digest`] for digests, [`mount`](mod@mount), [`codec`] and
//! [`format`](mod@format).
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

pub mod composefs;
mod error;
mod label;
mod mounted;
pub mod oci;
mod open;
mod packer;
mod sources;
mod steps;
mod views;

pub use error::Error;
pub use kiln_builder as builder;
pub use kiln_builder::{Preset, Summary};
pub use kiln_codec as codec;
pub use kiln_delta as delta;
pub use kiln_diff as diff;
pub use kiln_digest as digest;
pub use kiln_format as format;
pub use kiln_mount as mount;
pub use kiln_output as output;
pub use kiln_output::Existing;
pub use kiln_parallel::Threads;
pub use kiln_read as read;
pub use kiln_read::Image;
pub use kiln_revise as revise;
pub use kiln_signature as signature;
pub use kiln_sink as sink;
pub use kiln_sink::archive::ExportReport;
pub use kiln_sink::dir::ExtractReport;
pub use kiln_source as source;
pub use kiln_tree as tree;
pub use kiln_verity as verity;
pub use kiln_view as view;
pub use label::{ImageLabel, LabelError};
pub use mounted::{MountVia, MountedImage, mount, mount_with};
pub use open::{OpenOptions, open_with};
pub use packer::Packer;
pub use sources::{SourceAt, open_sources};
pub use steps::{Built, Estimated, Packed, Scanned, Unmatched, Updated};
pub use views::{IndexUse, open_view, open_view_indexed};

use kiln_diff::{Change, DiffOptions};
use kiln_output::AtomicFile;
use kiln_sink::Selection;
use kiln_sink::archive::{ExportOptions, Format};
use kiln_sink::dir::Control;
use kiln_sink::dir::ExtractOptions;
use kiln_source::{ScanOptions, SourceOptions};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Packs the directory, archive or image `source` into the new file `image`, which appears when it is complete, or not
/// at all. The same input gives the same bytes, whatever the machine and the number of threads.
///
/// # Errors
/// A source that cannot be read, a file that exists, an output that cannot be written.
pub fn pack(source: impl AsRef<Path>, image: impl AsRef<Path>, preset: Preset) -> Result<Packed, Error> {
    Packer::new().preset(preset).pack(source, image)
}

/// Opens an image in a file or a block device. [`open_with`] has choices: extra devices, and a root hash by which all
/// is verified that is read.
///
/// # Errors
/// A file that cannot be read, or is no EROFS image.
pub fn open(image: impl AsRef<Path>) -> Result<Image, Error> {
    open_with(image, &OpenOptions::default())
}

/// Extracts all of an image to the directory `dir`, which is created if it does not exist.
///
/// # Errors
/// An image that cannot be read, a directory that is not empty, an entry that cannot be made.
pub fn extract(image: impl AsRef<Path>, dir: impl AsRef<Path>) -> Result<ExtractReport, Error> {
    let (image, stop) = (open(image)?, AtomicBool::new(false));
    let (everything, options) = (Selection::everything(), ExtractOptions::default());
    Ok(kiln_sink::dir::extract(
        &image,
        dir.as_ref(),
        &everything,
        &options,
        &Control { stop: &stop, progress: &|_| {} },
    )?)
}

/// Exports all of an image to the new file `archive`, which appears when it is complete, or not at all. The end of its
/// name is the format: `.tar`, `.cpio`, `.mtree` and `.pseudo`, each with `.gz`, `.zst`, `.xz`, `.bz2` or `.lz4` behind
/// it, `.tgz` and its kin, and `.zip`. The report counts metadata that the format cannot hold. For choices, and for
/// streams, see [`kiln_sink::archive::export`].
///
/// # Errors
/// An image that cannot be read, a name that ends in no format, a file that exists, an output that cannot be written.
pub fn export(image: impl AsRef<Path>, archive: impl AsRef<Path>) -> Result<ExportReport, Error> {
    let archive = archive.as_ref();
    let named = Format::of_name(archive.as_os_str().as_bytes());
    let (format, compression) = named.ok_or_else(|| Error::ArchiveName { path: archive.to_owned() })?;
    let (image, file) = (open(image)?, AtomicFile::create(archive, Existing::Keep)?);
    let options = ExportOptions { compression, ..ExportOptions::new(format) };
    let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
    let report = kiln_sink::archive::export(&image, &Selection::everything(), &options, &control, &mut file.file())?;
    file.commit()?;
    Ok(report)
}

/// Compares two directories, archives or images, and returns the differences in the order of a walk. Contents are
/// compared byte by byte where sizes are equal. For choices, see [`kiln_diff::diff`](diff::diff()).
///
/// ```
/// use kilnfs::diff::ChangeKind;
///
/// # let tmp = tempfile::tempdir().unwrap();
/// # let [a, b] = ["a", "b"].map(|name| tmp.path().join(name));
/// # for dir in [&a, &b] { std::fs::create_dir(dir).unwrap(); std::fs::write(dir.join("file"), "text").unwrap(); }
/// std::fs::write(b.join("new"), "more")?;
/// let changes = kilnfs::diff(&a, &b)?;
/// let new = changes.iter().find(|change| change.path == b"new").unwrap();
/// assert!(matches!(new.kind, ChangeKind::Added(_)));
/// assert!(kilnfs::diff(&a, &a)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A source that cannot be read. Contents that cannot be read are differences.
pub fn diff(a: impl AsRef<Path>, b: impl AsRef<Path>) -> Result<Vec<Change>, Error> {
    let stop = AtomicBool::new(false);
    let scan = |path: &Path| -> Result<_, Error> {
        Ok(kiln_source::open(path, &SourceOptions::default())?.scan(&ScanOptions::new(&stop))?.tree)
    };
    let options = DiffOptions {
        path: b"",
        ignore: &[],
        latest_mtime: None,
        is_same: None,
        brief: false,
        threads: Threads::default(),
        stop: &stop,
        progress: None,
    };
    let mut changes = Vec::new();
    kiln_diff::diff(&scan(a.as_ref())?, &scan(b.as_ref())?, &options, &mut |change| {
        changes.push(change);
        ControlFlow::Continue(())
    })?;
    Ok(changes)
}
