//! An image as a dump of composefs: names and metadata, small files, and digests of all others.

use super::{Args, Target, Writer};
use crate::composefs::image::{Conversion, failed};
use crate::console::report::{note, print_document};
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::pack::output::Destination;
use crate::pack::tell_notes;
use crate::process::signals::Signals;
use kiln_source::image::erofs::ImageSource;
use kiln_source::{ScanOptions, Source};
use kilnfs::composefs::from_tree::TreeOptions;
use kilnfs::composefs::{CfsTree, dump, read_image};
use kilnfs::digest::Algorithm;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Bytes that are written at once.
const BUFFER_LEN: usize = 256 << 10;

#[derive(Serialize)]
struct DumpedJson {
    /// Names, the root included.
    entries: usize,
}

pub fn run(args: &Args, out: &Path) -> Result<Exit, Failure> {
    if !args.select_and_out.is_empty() {
        return Err(Failure::Usage("composefs-dump: a dump is of the whole image, so name no parts of it".into()));
    }
    if args.level.is_some() {
        return Err(Failure::Usage("--level: nothing is compressed here: use tar.zst and the like".into()));
    }
    if args.keep_going {
        return Err(Failure::Usage("--keep-going: the digest of what cannot be read is not known".into()));
    }
    args.work.apply_nice()?;
    let signals = Signals::catch()?;
    let destination = Destination::find(out)?;
    if args.work.json {
        destination.refuse_json("dump")?;
    }
    let (name, quiet) = (destination.name(out), args.quiet.quiet || destination.is_stderr());
    let tree = tree(args, &signals)?;
    let target = Target::create(destination, args.replace.existing())?;
    write(&tree, target.writer()).map_err(|source| Failure::File { path: name, action: "write", source })?;
    target.commit()?;
    let entries = tree.len();
    if args.work.json {
        print_document(&DumpedJson { entries })?;
    } else if !quiet {
        note(format_args!("{entries} entries"));
    }
    Ok(Exit::Done)
}

fn write(tree: &CfsTree, out: Writer<'_>) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_LEN, out);
    dump::write(tree, &mut out)?;
    out.flush()
}

/// Returns the tree of the image. Of one that composefs has made, contents are not needed.
fn tree(args: &Args, signals: &Signals) -> Result<CfsTree, Failure> {
    let path = &args.image.image;
    let image = args.image.open_without_objects()?;
    if image.is_composefs() {
        return read_image(&image).map_err(failed(path));
    }
    let threads = args.work.threads();
    let source = ImageSource::new(image, path);
    let scan = source.scan(&ScanOptions { threads, ..ScanOptions::new(signals.stop()) });
    let scan = scan.map_err(|error| Failure::of_source(error, signals.caught(), DEVICE_OPTION))?;
    tell_notes(&scan);
    let (options, algorithm) = (TreeOptions::default(), Algorithm::default());
    let conversion = Conversion { options, algorithm, store: None, threads, stop: signals.stop() };
    conversion.convert(&scan.tree, path).map_err(|failure| match signals.caught() {
        Some(number) => Failure::Signal(number),
        None => failure,
    })
}
