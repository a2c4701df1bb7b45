//! The sources of an image: a directory, a tar archive, or other images.

use super::refused::not_yet;
use crate::dropin::Stop;
use crate::dropin::getopt::Misuse;
use crate::exit::Failure;
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use kiln_format::BlockBits;
use kiln_read::ReadAt;
use kiln_source::archive::tar::{DotDot, TarData, TarIndex, TarOptions, TarSource};
use kiln_source::dir::DirSource;
use kiln_source::merge::{MergePart, Merged};
use kiln_source::{
    KINDS, ScanOptions, Scanned, Source, SourceError, SourceKind, SourceOptions, StreamFormat, Unreadable, open_as,
};
use kiln_tree::merge::Whiteouts;
use kiln_tree::{Implied, Metadata};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of an archive that are copied at once.
const PIECE_LEN: usize = 1 << 20;

/// The options for archives and images.
#[derive(Default)]
pub struct InputOptions {
    /// `--tar`: the place of the archive's data.
    tar: Option<TarData>,
    /// The last of `--gzip` and similar options, as written.
    packed: Option<(&'static str, Packed)>,
    /// File for a decompressed copy of the archive.
    kept: Option<PathBuf>,
    /// `--clean`: copies the contents of images instead of referring to them.
    copies_data: bool,
}

/// The compression that an archive must have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packed {
    /// gzip, or none: zlib's functions for files treat both alike.
    Gzip,
    /// xz, .lzma or lzip: liblzma has one decoder for all.
    Lzma,
}

impl Packed {
    fn accepts(self, found: Option<StreamFormat>) -> bool {
        match self {
            Packed::Gzip => matches!(found, None | Some(StreamFormat::Gzip)),
            Packed::Lzma => matches!(found, Some(StreamFormat::Xz | StreamFormat::Lzma | StreamFormat::Lzip)),
        }
    }
}

impl InputOptions {
    /// Handles one of the options `--tar`, `--clean`, `--gzip`, `--ungzip`, `--unlzma`, `--unxz`.
    pub fn option(&mut self, name: &str, value: Option<OsString>) -> Result<(), Stop> {
        let text = value.as_ref().map(|value| value.to_string_lossy());
        match (name, text.as_deref()) {
            ("tar", None | Some("f")) => self.tar = Some(TarData::Stored),
            ("tar", Some("i" | "0")) => self.tar = Some(TarData::Placed),
            ("tar", Some("headerball")) => self.tar = Some(TarData::Omitted),
            ("tar", Some(mode)) => return Err(tar_mode(mode)),
            ("clean", None | Some("" | "data")) => self.copies_data = true,
            ("clean", Some(_)) => return Err(not_yet("--clean", "all data is written")),
            ("gzip", _) => self.packed = Some(("--gzip", Packed::Gzip)),
            ("ungzip", _) => self.packed = Some(("--ungzip", Packed::Gzip)),
            ("unlzma", _) => self.packed = Some(("--unlzma", Packed::Lzma)),
            _ => self.packed = Some(("--unxz", Packed::Lzma)),
        }
        if matches!(name, "ungzip" | "unlzma" | "unxz") {
            self.kept = value.map(PathBuf::from);
        }
        Ok(())
    }

    /// Classifies the operands behind FILE. `built` is the time of directories that an archive only implies, in
    /// seconds since 1970.
    pub fn input(self, operands: &[PathBuf], built: i64) -> Result<Input, Stop> {
        let unexpected =
            |operand: &Path| Err(Misuse::Other(format!("unexpected argument: {}", operand.display())).into());
        match (operands, self.tar, self.packed) {
            ([_, other, ..], Some(_), _) => unexpected(other),
            (_, Some(data), packed) => {
                let path = operands.first().map_or("-".into(), PathBuf::clone);
                Ok(Input::Tar(Tar { path, data, packed, kept: self.kept, built }))
            }
            (_, None, Some((option, _))) => {
                Err(Misuse::Other(format!("{option} must be used together with --tar")).into())
            }
            ([], ..) => Err(Misuse::other("missing argument: SOURCE").into()),
            ([first, ..], ..) if first.exists() && !first.is_dir() => {
                Ok(Input::Images { paths: operands.to_vec(), reference: !self.copies_data })
            }
            ([source], ..) => Ok(Input::Directory(source.clone())),
            ([_, other, ..], ..) => unexpected(other),
        }
    }
}

/// Returns the error of a mode of `--tar` that is not supported.
fn tar_mode(mode: &str) -> Stop {
    match mode.split_once(',') {
        Some(("0" | "f" | "i" | "headerball", _)) => {
            not_yet(&format!("--tar={mode}"), "no map of the archive is written")
        }
        _ => Misuse::Other(format!("invalid --tar={mode}")).into(),
    }
}

/// The source of an image.
pub enum Input {
    Directory(PathBuf),
    Tar(Tar),
    /// Images, the lowest first.
    Images {
        paths: Vec<PathBuf>,
        /// The images become devices of the new one, which refers to their data.
        reference: bool,
    },
}

/// An archive.
pub struct Tar {
    path: PathBuf,
    data: TarData,
    packed: Option<(&'static str, Packed)>,
    kept: Option<PathBuf>,
    built: i64,
}

impl Input {
    /// Returns whether the source is a tar archive.
    pub fn is_tar(&self) -> bool {
        matches!(self, Input::Tar(_))
    }

    /// Returns the file for a decompressed copy of the archive, if there is to be one.
    pub fn kept(&self) -> Option<&Path> {
        match self {
            Input::Tar(tar) => tar.kept.as_deref(),
            Input::Directory(_) | Input::Images { .. } => None,
        }
    }

    /// Returns the block size that an image needs to refer to data elsewhere: records of an archive, blocks of the
    /// topmost image.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub fn block_bits(&self) -> Result<Option<BlockBits>, Failure> {
        match self {
            Input::Tar(Tar { data: TarData::Placed, .. }) => Ok(Some(BlockBits::SECTOR)),
            Input::Images { paths, reference: true } => {
                let topmost = paths.last().map_or(&[][..], std::slice::from_ref);
                Ok(open_images(topmost, true).map_err(failure)?.block_bits())
            }
            _ => Ok(None),
        }
    }

    /// Opens the source. Scanning it writes a decompressed copy of an archive to `kept`.
    ///
    /// # Errors
    /// A source that cannot be read, or that is not compressed as the options say.
    pub fn open<'a>(&self, kept: Option<&'a File>, signals: &Signals) -> Result<Box<dyn Source + 'a>, Failure> {
        let source = match self {
            Input::Directory(path) => return Ok(Box::new(DirSource::new(path))),
            Input::Tar(tar) => return tar.open(kept, signals),
            Input::Images { paths, reference } => open_images(paths, *reference),
        };
        source.map_err(failure)
    }
}

fn failure(error: SourceError) -> Failure {
    Failure::of_source(error, None, DEVICE_OPTION)
}

/// Opens images that are stacked. Whiteouts stay, for layers that will lie below: `--ovlfs-strip` removes them.
fn open_images(paths: &[PathBuf], reference: bool) -> Result<Box<dyn Source>, SourceError> {
    let images: Vec<SourceKind> = KINDS.iter().filter(|kind| kind.name == "erofs").copied().collect();
    let options = SourceOptions { reference, ..SourceOptions::default() };
    let open = |path: &PathBuf| open_as(&images, path, &options);
    match paths {
        [only] => open(only),
        paths => {
            let parts: Result<Vec<_>, SourceError> =
                paths.iter().map(|path| Ok(MergePart::new(open(path)?, b""))).collect();
            Ok(Box::new(Merged::new(parts?, Whiteouts::Keep)))
        }
    }
}

impl Tar {
    fn open<'a>(&self, kept: Option<&'a File>, signals: &Signals) -> Result<Box<dyn Source + 'a>, Failure> {
        let root = Metadata { permissions: 0o755, mtime: self.built, ..Metadata::default() };
        let implied = Implied::Inherited(root);
        let options = TarOptions { implied, data: self.data, dot_dot: DotDot::Up, ..TarOptions::default() };
        let place = SourceOptions { stop: Some(signals.stop().clone()), ..SourceOptions::default() };
        let tar = TarSource::open(&self.path, &place, options)
            .map_err(|error| Failure::of_source(error, signals.caught(), DEVICE_OPTION))?;
        if let Some((option, packed)) = self.packed
            && !packed.accepts(tar.compression())
        {
            let found = tar.compression().map_or("not at all", StreamFormat::name);
            return Err(Failure::Usage(format!("{}: {option}: compressed otherwise: {found}", self.path.display())));
        }
        Ok(match (&self.kept, kept) {
            (Some(path), Some(file)) => Box::new(KeptTar { tar, path: path.clone(), file }),
            _ => Box::new(tar),
        })
    }
}

/// An archive with a decompressed copy.
struct KeptTar<'a> {
    tar: TarSource,
    path: PathBuf,
    file: &'a File,
}

impl Source for KeptTar<'_> {
    fn path(&self) -> &Path {
        self.tar.path()
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        let TarIndex { scan, archive, .. } = self.tar.index(options)?;
        self.keep(&*archive, options)?;
        Ok(Scanned::Selected(scan))
    }
}

impl KeptTar<'_> {
    fn keep(&self, archive: &dyn ReadAt, options: &ScanOptions<'_>) -> Result<(), SourceError> {
        let lost = |source: io::Error| SourceError::from(Unreadable { path: self.path.clone(), source });
        let (mut offset, len) = (0, archive.len().map_err(lost)?);
        let mut piece = Vec::new();
        while offset < len {
            options.check_stop()?;
            piece.resize((len - offset).min(PIECE_LEN as u64) as usize, 0);
            let copied =
                archive.read_exact_at(&mut piece, offset).and_then(|()| self.file.write_all_at(&piece, offset));
            copied.map_err(lost)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }
}
