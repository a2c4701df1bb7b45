//! `--base`, and the stamps of files for the next time.

use crate::console::report::note;
use crate::exit::Failure;
use kiln_output::{AtomicFile, Existing};
use kiln_revise::{BaseImage, IncrementBase, Stamps, Trust};
use kiln_source::{FileStamps, Scan, SourceError};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct BaseArgs {
    /// Reuse data of this older image (see `kiln help reuse`)
    #[arg(long, value_name = "OLD", conflicts_with_all = ["layers", "estimate"])]
    base: Option<PathBuf>,

    /// Detect unchanged files by times or content
    #[arg(
        long,
        value_name = "times|content",
        value_enum,
        hide_possible_values = true,
        default_value_t,
        requires = "base"
    )]
    base_trust: TrustArg,

    /// Write IMAGE.stamp, which detects every change next time
    #[arg(long, conflicts_with_all = ["layers", "estimate", "dry_run", "blob_device", "offset"])]
    stamp: bool,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub enum TrustArg {
    /// Size, and time or stamp; what they do not tell is compared
    #[default]
    Times,
    /// All files of equal size are compared
    Content,
}

impl From<TrustArg> for Trust {
    fn from(trust: TrustArg) -> Self {
        match trust {
            TrustArg::Times => Self::Times,
            TrustArg::Content => Self::Contents,
        }
    }
}

impl BaseArgs {
    /// Opens the base, if one is named, with its stamps, if it has some.
    pub fn open(&self) -> Result<Option<IncrementBase>, Failure> {
        let Some(path) = &self.base else { return Ok(None) };
        let trust = self.base_trust.into();
        let base = IncrementBase::open(path, trust).map_err(of_base)?;
        tell_unused_stamps(&base);
        Ok(Some(base))
    }

    /// Returns the stamps to write for an image at this path; none if it goes elsewhere.
    /// `by_default`: those that a source has, though nobody has asked for them.
    pub fn stamps(&self, image: Option<&Path>, by_default: bool) -> Result<StampsWanted, Failure> {
        match (self.stamp, image) {
            (true, Some(image)) => Ok(StampsWanted::Required(Stamps::path(image))),
            (true, None) => Err(Failure::Usage("--stamp: the image needs a name: stamps lie beside it".into())),
            (false, Some(image)) if by_default => Ok(StampsWanted::Possible(Stamps::path(image))),
            (false, _) => Ok(StampsWanted::None),
        }
    }
}

/// Stamps to write, and their place.
pub enum StampsWanted {
    /// None.
    None,
    /// Those that a source has, if it has any. What lies there belongs to an image that is there no more.
    Possible(PathBuf),
    /// Those of a source that must have some.
    Required(PathBuf),
}

impl StampsWanted {
    /// Refuses a source that has none, though it must, and a place where they cannot be written,
    /// before the image is made.
    pub fn check(&self, scan: &Scan, existing: Existing) -> Result<(), Failure> {
        if let Self::Required(path) = self {
            check_stamps(scan)?;
            AtomicFile::create(path, existing)?;
        }
        Ok(())
    }

    /// Writes them for the image, which is complete, and returns their path. `existing` is about
    /// those that were asked for.
    pub fn write(&self, image: &Path, scan: &Scan, existing: Existing) -> Result<Option<&Path>, Failure> {
        let (path, existing) = match self {
            Self::Required(path) => (path, existing),
            Self::Possible(path) if scan.stamps.is_some() => (path, Existing::Replace),
            Self::Possible(_) | Self::None => return Ok(None),
        };
        write_stamps(path, image, scan, existing).map(|()| Some(&**path))
    }
}

/// Notes changes of a directory that this increment and the next one cannot see.
pub fn tell_stamps(base: Option<&IncrementBase>, scan: &Scan, written: Option<&Path>) {
    let is_blind = base.is_some_and(|base| base.trust == Trust::Times && base.stamps.is_none());
    match written {
        _ if scan.stamps.is_none() => {}
        None if is_blind => {
            note(format_args!(
                "no stamps: changes that keep size and time are not seen (--stamp writes some for the next time)"
            ));
        }
        Some(path) if is_blind => {
            note(format_args!(
                "no stamps of the older image: changes that kept size and time were not seen; next time {} tells",
                path.display()
            ));
        }
        Some(path) => note(format_args!("stamps: {}", path.display())),
        None => {}
    }
}

/// Notes stamps that lie beside the base, and are of another image.
pub fn tell_unused_stamps(base: &IncrementBase) {
    let (image, stamps) = (base.image.path(), Stamps::path(base.image.path()));
    if base.trust == Trust::Times && base.stamps.is_none() && stamps.exists() {
        note(format_args!("{}: not of {}: not used", stamps.display(), image.display()));
    }
}

/// Refuses `--stamp` for a source that has no stamps.
pub fn check_stamps(scan: &Scan) -> Result<&FileStamps, Failure> {
    let nothing = || Failure::Usage("--stamp: only the files of one directory have stamps".into());
    scan.stamps.as_ref().ok_or_else(nothing)
}

/// Writes the stamps of all that is in the image, which is complete.
pub fn write_stamps(path: &Path, image: &Path, scan: &Scan, existing: Existing) -> Result<(), Failure> {
    let stamps = check_stamps(scan)?;
    let image = BaseImage::open(image).map_err(of_base)?;
    let file = AtomicFile::create(path, existing)?;
    let mut out = BufWriter::new(file.file());
    let failed = |source| Failure::File { path: path.to_owned(), action: "write", source };
    Stamps::write(&mut out, image.identity(), &scan.tree, stamps).and_then(|()| out.flush()).map_err(failed)?;
    drop(out);
    Ok(file.commit()?)
}

fn of_base(error: SourceError) -> Failure {
    Failure::of_source(error, None, "--base")
}
