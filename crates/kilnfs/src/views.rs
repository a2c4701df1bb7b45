//! Archives and images of other formats, read as images.

use kiln_builder::Control;
use kiln_read::ImageSources;
use kiln_source::{ScanOptions, Source, leave_out_unfit};
use kiln_tree::policy::XattrPolicy;

use crate::error::Error;

/// Returns an image of a source whose contents stay where they are: names and metadata are read at once, contents when
/// they are asked for. Attributes that images cannot hold are left out.
///
/// ```
/// use kilnfs::read::ImageOptions;
/// use kilnfs::source::{self, ScanOptions, SourceOptions};
/// use std::sync::atomic::AtomicBool;
///
/// # let tmp = tempfile::tempdir().unwrap();
/// # let (dir, path) = (tmp.path().join("src"), tmp.path().join("archive.tar"));
/// # std::fs::create_dir(&dir).unwrap();
/// # std::fs::write(dir.join("hello"), "world").unwrap();
/// # let made = tmp.path().join("made.erofs");
/// # kilnfs::pack(&dir, &made, kilnfs::Preset::Balanced)?;
/// # kilnfs::export(&made, &path)?;
/// let stop = AtomicBool::new(false);
/// let archive = source::open(&path, &SourceOptions::default())?;
/// let image = kilnfs::open_view(&*archive, &ScanOptions::new(&stop))?.open(&ImageOptions::default())?;
/// assert_eq!(std::io::read_to_string(image.open_file("hello")?)?, "world");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A source that cannot be read, or that no image can hold.
pub fn open_view(source: &dyn Source, options: &ScanOptions<'_>) -> Result<ImageSources, Error> {
    let mut scan = source.scan(options)?;
    leave_out_unfit(&mut scan.tree, &XattrPolicy::default(), scan.left_out_xattrs)?;
    let control = Control { stop: options.stop, progress: &|_| {} };
    Ok(kiln_view::view(scan.tree, options.threads, &control)?)
}
