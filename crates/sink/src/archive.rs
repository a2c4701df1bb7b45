//! Export of an image as a tar, ZIP or cpio archive, or as an mtree or SquashFS pseudo file
//! description.
//!
//! The same image and selection give the same bytes for any number of threads. Members are sorted
//! by path, owners are numeric, and nothing depends on the machine or the current time. The archive
//! is written front to back, so any stream can receive it.
//!
//! ```
//! use kiln_sink::Selection;
//! use kiln_sink::archive::{Control, ExportOptions, Format, export};
//! use std::sync::atomic::AtomicBool;
//!
//! # let path = "../read/tests/golden/zstd.erofs";
//! let image = kiln_read::Image::open_path(path.as_ref(), &[], &Default::default())?;
//! let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
//! let mut tar = Vec::new();
//! let report = export(&image, &Selection::everything(), &ExportOptions::new(Format::Tar), &control, &mut tar)?;
//! assert!(report.files > 0 && tar.ends_with(&[0; 1024]));
//! # Ok::<(), kiln_sink::SinkError>(())
//! ```
//!
//! # Structure
//!
//! `members` walks the image. `reader` reads ahead in windows of 16 MiB, on several threads. Each
//! format is a `writer` that receives the windows in order; `pieces` compresses its output, also on
//! several threads. What a format cannot represent is counted in the [`ExportReport`], never
//! dropped silently.

mod cpio;
mod damage;
mod digest;
mod format;
mod member;
mod members;
mod mtree;
mod options;
mod output;
mod pieces;
mod pseudo;
mod reader;
mod report;
mod stream_compression;
mod tar;
mod time;
mod window;
mod writer;
mod zip;

pub use crate::control::Control;
pub use format::Format;
pub use options::ExportOptions;
pub use report::{ExportReport, Loss, LossCount};
pub use stream_compression::StreamCompression;

use crate::{Selection, SinkError};
use kiln_parallel::channel;
use kiln_read::Image;
use member::{Body, Links, Rules};
use members::Members;
use output::Output;
use pieces::Compressor;
use reader::Reader;
use std::io::{BufWriter, Write};
use std::panic::resume_unwind;
use std::thread;
use window::Window;
use writer::{ArchiveWriter, OneByOne};

/// Size in bytes of the buffer that collects headers and small files before a write.
const BUFFER_LEN: usize = 256 << 10;

/// Writes the part of `image` that `selection` names to `out` as an archive. The archive holds the
/// selected sub-trees and the directories above them; the root directory itself is a member only if
/// everything is selected.
///
/// Memory is bounded for any image: three windows of 16 MiB, the pieces being compressed, and what
/// the format must remember (paths of files with several names; for ZIP, the central directory).
///
/// # Errors
/// The first part of the image that cannot be read, unless `options` say to keep going; an error of
/// `out`; a pattern that matches nothing; or [`SinkError::Stopped`]. After an error, `out` holds an
/// incomplete archive.
pub fn export(
    image: &Image,
    selection: &Selection,
    options: &ExportOptions,
    control: &Control<'_>,
    out: &mut dyn Write,
) -> Result<ExportReport, SinkError> {
    let export = Export { image, selection, options, control };
    match options.compression.filter(|_| options.format.can_be_compressed()) {
        None => export.run(&mut BufWriter::with_capacity(BUFFER_LEN, out)),
        Some(compression) => {
            let (least, most) = compression.levels().into_inner();
            let level = options.level.unwrap_or(compression.default_level()).clamp(least, most);
            Compressor { compression, level, threads: options.threads }.run(out, |out| export.run(out))
        }
    }
}

/// One export.
struct Export<'a> {
    image: &'a Image,
    selection: &'a Selection,
    options: &'a ExportOptions,
    control: &'a Control<'a>,
}

impl Export<'_> {
    fn run(&self, out: &mut dyn Write) -> Result<ExportReport, SinkError> {
        let mut out = Output::new(out);
        match self.options.format {
            Format::Tar => self.pass(&tar::RULES, &mut OneByOne(tar::TarWriter), &mut out)?,
            Format::Zip => {
                let level = self.options.level.unwrap_or(zip::DEFAULT_LEVEL);
                self.pass(&zip::RULES, &mut zip::ZipWriter::new(level, self.options.threads), &mut out)?;
            }
            Format::Cpio => self.pass(&cpio::RULES, &mut OneByOne(cpio::CpioWriter::default()), &mut out)?,
            Format::Mtree => self.pass(&mtree::RULES, &mut OneByOne(mtree::MtreeWriter::default()), &mut out)?,
            Format::SquashfsPseudo => {
                let mut definitions = OneByOne(pseudo::DefinitionWriter::default());
                self.pass(&pseudo::DEFINITION_RULES, &mut definitions, &mut out)?;
                // The second walk meets the same files.
                let report = std::mem::take(&mut out.report);
                self.pass(&pseudo::CONTENT_RULES, &mut OneByOne(pseudo::ContentWriter), &mut out)?;
                let ExportReport { damaged, rotten, digested_bytes, .. } = std::mem::take(&mut out.report);
                out.report = ExportReport { damaged, rotten, digested_bytes, ..report };
            }
        }
        out.finish()
    }

    /// Walks the image once. The next window is read while one is written.
    fn pass(&self, rules: &Rules, writer: &mut dyn ArchiveWriter, out: &mut Output<'_>) -> Result<(), SinkError> {
        let members = || Members::new(self.image, self.selection);
        let mut reader = Reader::new(self.image, members()?, rules, self.options, *self.control);
        if rules.links == Links::DataWithLast {
            reader.count_names(members()?)?;
        }
        thread::scope(|scope| {
            let (send_window, mut windows) = channel::bounded(1);
            // Buffers of written windows are used again.
            let (send_memory, memory) = channel::unbounded();
            let read = move || -> Result<(), SinkError> {
                while let Some(window) = reader.next(memory.try_recv().unwrap_or_default())? {
                    // Only fails after the writer has failed, and the writer reports why.
                    if send_window.send(window).is_err() {
                        break;
                    }
                }
                Ok(())
            };
            let reading = thread::Builder::new().spawn_scoped(scope, read);
            let reading = reading.map_err(|error| SinkError::Start("a thread", error))?;
            let written = windows.try_for_each(|mut window: Window| {
                note(&mut window, out);
                writer.window(&window, out)?;
                // Only fails once the reader has ended.
                let _ = send_memory.send(window.contents);
                Ok(())
            });
            // After an error nobody takes the reader's windows any more: it must not wait for room.
            drop(windows);
            let read = reading.join().unwrap_or_else(|panic| resume_unwind(panic));
            written.and(read)?;
            writer.finish(out)
        })
    }
}

/// Counts the members of a window, and removes those that the format does not receive.
fn note(window: &mut Window, out: &mut Output<'_>) {
    out.report.add_damage(&mut window.damage);
    out.report.digested_bytes = out.report.digested_bytes.saturating_add(window.digested_bytes);
    window.parts.retain(|part| {
        let (member, report) = (&part.member, &mut out.report);
        match &member.body {
            Body::LeftOut(loss) => report.lose(*loss, &member.path),
            Body::Skipped(object) => {
                let error = SinkError::NeedsObject { path: member.path.clone(), object: object.clone() };
                report.skipped.push((member.path.clone(), error));
            }
            _ if !part.is_first => return true,
            Body::LinkTo(_) => {
                report.hard_links += 1;
                return true;
            }
            _ => {
                report.add(member.file_type(), member.inode.size());
                if member.is_copy {
                    report.lose(Loss::HardLinks, &member.path);
                }
                return true;
            }
        }
        false
    });
}
