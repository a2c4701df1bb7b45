//! EROFS images: pack a directory into a compressed file that Linux mounts; read it, extract it, mount it.
//!
//! ```
//! # let tmp = tempfile::tempdir().unwrap();
//! # std::fs::create_dir(tmp.path().join("src")).unwrap();
//! # std::fs::write(tmp.path().join("src/hello"), "world").unwrap();
//! # let old = std::env::current_dir().unwrap();
//! # std::env::set_current_dir(&tmp).unwrap();
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! kiln::pack("src", "out.erofs", kiln::Preset::Balanced)?;
//! let image = kiln::open("out.erofs")?;            // clones are cheap and share one cache
//! std::io::copy(&mut image.open_file("hello")?, &mut std::io::stdout())?;
//! kiln::extract("out.erofs", "dir")?;
//! # assert_eq!(std::fs::read("dir/hello")?, b"world");
//!
//! let report = kiln::export("out.erofs", "out.tar.zst")?;
//! assert_eq!((report.files, report.is_incomplete()), (1, false));
//! # assert!(std::fs::read("out.tar.zst")?.starts_with(b"\x28\xb5\x2f\xfd"));
//! # assert!(matches!(kiln::export("out.erofs", "out.tar.zst"), Err(kiln::Error::Output(_))), "it is there already");
//! # assert!(matches!(kiln::export("out.erofs", "out.rar"), Err(kiln::Error::ArchiveName { .. })));
//! # Ok(())
//! # }
//! # example().unwrap();
//! # std::env::set_current_dir(old).unwrap();
//! ```
//!
//! Mounting is done by the kernel's own driver where it lets this process, and else by FUSE, which needs no privilege:
//!
//! ```no_run
//! let mount = kiln::mount("out.erofs", "mnt")?;
//! println!("{} is there, by {:?}", mount.dir().display(), mount.via());
//! mount.unmount()?; // so does dropping it
//! # Ok::<(), kiln::Error>(())
//! ```
//!
//! [`Packer`] has more choices than a preset. The crates that do the work are modules here: [`read`] for images, [`builder`] for
//! making them, [`source`] for what they are made of, [`oci`] for images of containers, [`sink`] for extracting and exporting,
//! [`delta`] for patches between images, [`mount`](mod@mount), [`codec`] and [`format`](mod@format).
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod error;
mod hot_as;
mod mounted;
pub mod oci;
mod packer;
mod relayout;
mod request;
mod sources;
pub mod update;
mod way;

pub use error::Error;
pub use hot_as::{HotAs, HotFiles, store_hot};
pub use kiln_builder as builder;
pub use kiln_builder::{Preset, Summary};
pub use kiln_codec as codec;
pub use kiln_delta as delta;
pub use kiln_format as format;
pub use kiln_mount as mount;
pub use kiln_output as output;
pub use kiln_output::Existing;
pub use kiln_parallel::Threads;
pub use kiln_read as read;
pub use kiln_read::Image;
pub use kiln_sink as sink;
pub use kiln_sink::archive::ExportReport;
pub use kiln_sink::dir::ExtractReport;
pub use kiln_source as source;
pub use kiln_tree as tree;
pub use mounted::{MountVia, MountedImage, mount};
pub use packer::{Estimated, Packed, Packer};
pub use relayout::{Relaid, RelayoutRequest, relayout};
pub use request::{ByPath, PackRequest, Unmatched};
pub use sources::{SourceAt, open_sources};
pub use way::{WayError, hint_way};

use kiln_output::AtomicFile;
use kiln_read::ImageOptions;
use kiln_sink::Selection;
use kiln_sink::archive::{ExportOptions, Format};
use kiln_sink::dir::Control;
use kiln_sink::dir::ExtractOptions;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Pack the directory or image `source` into the new file `image`, which appears when it is complete, or not at all. The same
/// input gives the same bytes, whatever the machine and the number of threads.
///
/// # Errors
/// A source that cannot be read, a file that exists, an output that cannot be written.
pub fn pack(source: impl AsRef<Path>, image: impl AsRef<Path>, preset: Preset) -> Result<Packed, Error> {
    Packer::new().preset(preset).pack(source, image)
}

/// Open an image in a file or a block device.
///
/// # Errors
/// A file that cannot be read, or is no EROFS image.
pub fn open(image: impl AsRef<Path>) -> Result<Image, Error> {
    let (image, options) = (image.as_ref(), ImageOptions::default());
    Image::open_path(image, &[], &options).map_err(|source| Error::Read { image: image.to_owned(), source })
}

/// Extract all of an image to the directory `dir`, which is made if it does not exist.
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

/// Write all of an image to the new file `archive`, which appears when it is complete, or not at all. The end of its name is the format:
/// `.tar`, `.cpio`, `.mtree` and `.pseudo`, each with `.gz`, `.zst`, `.xz`, `.bz2` or `.lz4` behind it, `.tgz` and its kin, and `.zip`. What the
/// format cannot say is counted in the report. For choices, and for streams, see [`kiln_sink::archive::export`].
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
