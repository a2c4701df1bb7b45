//! Archives and images of other formats, read as images.

use kiln_builder::Control;
use kiln_read::ImageSources;
use kiln_source::{ArchivePlaces, Scan, ScanOptions, Source, leave_out_unfit};
use kiln_tree::policy::XattrPolicy;
use kiln_view::{FoundIndex, IndexError, SourceStamp, View, ViewIndex};
use std::path::Path;

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
    Ok(view_of(source.scan(options)?, options)?.into_sources())
}

/// Returns a view of a scanned tree, without attributes that images cannot hold.
fn view_of(mut scan: Scan, options: &ScanOptions<'_>) -> Result<View, Error> {
    leave_out_unfit(&mut scan.tree, &XattrPolicy::default(), scan.left_out_xattrs)?;
    let control = Control { stop: options.stop, progress: &|_| {} };
    Ok(kiln_view::view(scan.tree, options.threads, &control)?)
}

/// Use that was made of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexUse {
    /// It was read, and the archive was not scanned.
    Read,
    /// There was none, and now there is.
    Made,
    /// It was made anew, for this reason.
    Replaced(String),
}

/// Returns an image of an archive as [`open_view`] does. What a scan finds out is kept in the file `index`, and read
/// there the next time: the archive is not scanned then, and a compressed one is decompressed only up to what is read.
/// An index that is damaged, or whose archive has changed, is made anew; any other file is left alone.
///
/// ```
/// use kilnfs::IndexUse;
/// use kilnfs::read::ImageOptions;
/// use kilnfs::source::{self, ScanOptions, SourceOptions};
/// use std::sync::atomic::AtomicBool;
///
/// # let tmp = tempfile::tempdir().unwrap();
/// # let (dir, path, index) = (tmp.path().join("src"), tmp.path().join("archive.tar.zst"), tmp.path().join("index"));
/// # std::fs::create_dir(&dir).unwrap();
/// # std::fs::write(dir.join("hello"), "world").unwrap();
/// # let made = tmp.path().join("made.erofs");
/// # kilnfs::pack(&dir, &made, kilnfs::Preset::Balanced)?;
/// # kilnfs::export(&made, &path)?;
/// let stop = AtomicBool::new(false);
/// for expected in [IndexUse::Made, IndexUse::Read] {
///     let archive = source::open(&path, &SourceOptions::default())?;
///     let (sources, used) = kilnfs::open_view_indexed(&*archive, &index, &ScanOptions::new(&stop))?;
///     assert_eq!(used, expected);
///     assert_eq!(std::io::read_to_string(sources.open(&ImageOptions::default())?.open_file("hello")?)?, "world");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of [`open_view`]; a source that has no index; a file that is no index, or cannot be written.
pub fn open_view_indexed(
    source: &dyn Source,
    index: &Path,
    options: &ScanOptions<'_>,
) -> Result<(ImageSources, IndexUse), Error> {
    let path = source.path();
    let unreadable = |source| IndexError::Unreadable { path: path.to_owned(), source };
    let stamp = SourceStamp::of(path).map_err(unreadable)?;
    let used = match ViewIndex::read(index, &stamp)? {
        FoundIndex::Absent => IndexUse::Made,
        FoundIndex::Unusable(reason) => IndexUse::Replaced(reason),
        FoundIndex::Usable(found) => match places_of(&found) {
            Ok(places) => return Ok((found.into_sources(source.contents_at(places)?), IndexUse::Read)),
            Err(reason) => IndexUse::Replaced(reason),
        },
    };
    let (scan, places) = source.scan_places(options)?;
    let places = places.ok_or_else(|| IndexError::NoPlaces { path: path.to_owned() })?;
    let view = view_of(scan, options)?;
    ViewIndex::write(index, &view, &stamp, &places.to_bytes())?;
    Ok((view.into_sources(), used))
}

/// Returns the places that an index has, or the reason why it must be made anew.
fn places_of(index: &ViewIndex) -> Result<ArchivePlaces, String> {
    let places = ArchivePlaces::from_bytes(index.places()).map_err(|error| error.to_string())?;
    match index.last_content() {
        Some(last) if last.0 as usize >= places.count() => {
            Err(format!("content id = {}: it has {} places", last.0, places.count()))
        }
        _ => Ok(places),
    }
}
