//! `kiln stat`

mod extents;

pub use extents::PlaceJson;

use crate::console::report::{Bytes, EntryJson, Out, Streamed, print_document};
use crate::console::text;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use extents::ExtentJson;
use kiln_format::inode::{FileType, Form};
use kiln_read::{FollowLast, Image, Inode, ReadError, Xattr};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// Show metadata of a file in an image
///
/// Symbolic links on the way are followed within the image, the last one is not.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln stat image.erofs usr/bin/env
  kiln stat --extents image.erofs usr/lib/libc.so.6")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// File to show, from the root of the image
    path: OsString,

    /// Show the place of its contents, extent by extent
    #[arg(short, long)]
    extents: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let image = args.image.open_metadata()?;
    let (inode, path) = args.image.resolve(&image, &args.path, FollowLast::Keep)?;
    let failure = |error: ReadError| args.image.failure(error.at_path(args.path.as_bytes()));
    let xattrs = image.list_xattrs(&inode).map_err(failure)?;
    let file = Stated { image: &image, path: &path, inode: &inode, xattrs: &xattrs };
    match args.json {
        true => print_json(args, &file, failure)?,
        false => print(args, &file, failure)?,
    }
    Ok(Exit::Done)
}

/// A file, and the details to print.
struct Stated<'a> {
    image: &'a Image,
    path: &'a [u8],
    inode: &'a Inode,
    xattrs: &'a [Xattr],
}

fn print_json(args: &Args, file: &Stated<'_>, failure: impl Fn(ReadError) -> Failure) -> Result<(), Failure> {
    let Stated { image, path, inode, xattrs } = *file;
    let stat = StatJson::new(image, path, inode, xattrs).map_err(&failure)?;
    if !args.extents || !inode.has_contents() {
        return print_document(&stat);
    }
    let extents = image.extents(inode).map(|extent| extent.map(|extent| ExtentJson::new(&extent)));
    let extents = Streamed::new(extents, failure);
    let printed = print_document(&WithExtents { stat, extents: &extents });
    extents.end(printed)
}

fn print(args: &Args, file: &Stated<'_>, failure: impl Fn(ReadError) -> Failure) -> Result<(), Failure> {
    let Stated { image, path, inode, xattrs } = *file;
    let meta = &inode.meta;
    let mut out = Out::new();
    write!(out, "  Path: /")?;
    out.name(path)?;
    if meta.file_type == FileType::Symlink {
        write!(out, " -> ")?;
        out.name(&image.read_link(inode).map_err(&failure)?)?;
    }
    writeln!(out, "\n  Type: {}", text::file_type(meta.file_type))?;
    match meta.file_type {
        FileType::CharDevice | FileType::BlockDevice => {
            writeln!(out, "Device: {}:{}", meta.rdev().major, meta.rdev().minor)?;
        }
        _ => writeln!(out, "  Size: {}", meta.size)?,
    }
    writeln!(out, "  Mode: {:04o} ({})", meta.permissions, text::mode(meta.file_type, meta.permissions))?;
    writeln!(out, " Owner: {}:{}", meta.uid, meta.gid)?;
    writeln!(out, " Links: {}", meta.nlink)?;
    writeln!(out, " Mtime: {}", text::time_nsec(meta.mtime, meta.mtime_nsec))?;
    writeln!(out, " Inode: nid {}, number {}, {}", inode.nid, image.st_ino(inode.nid), form(meta.form))?;
    writeln!(out, "Layout: {}", meta.layout().name())?;
    if let Some(digest) = image.content_digest(inode).map_err(&failure)? {
        writeln!(out, "Digest: {}", digest.labelled())?;
    }
    for xattr in xattrs {
        write!(out, " Xattr: ")?;
        out.name(&xattr.name)?;
        writeln!(out, " = \"{}\"", xattr.value.escape_ascii())?;
    }
    if args.extents && inode.has_contents() {
        extents::print(&mut out, image, inode, failure)?;
    }
    out.finish()
}

fn form(form: Form) -> &'static str {
    match form {
        Form::Compact => "compact",
        Form::Extended => "extended",
    }
}

#[derive(Serialize)]
struct StatJson {
    #[serde(flatten)]
    entry: EntryJson,
    form: &'static str,
    layout: &'static str,
    content_digest: Option<String>,
    xattrs: Vec<XattrJson>,
}

#[derive(Serialize)]
struct WithExtents<'a, L: Serialize> {
    #[serde(flatten)]
    stat: StatJson,
    extents: &'a L,
}

#[derive(Serialize)]
struct XattrJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_b64: Option<String>,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_b64: Option<String>,
}

impl StatJson {
    fn new(image: &Image, path: &[u8], inode: &Inode, xattrs: &[Xattr]) -> Result<Self, ReadError> {
        Ok(Self {
            entry: EntryJson::new(image, path, inode)?,
            form: form(inode.meta.form),
            layout: inode.meta.layout().name(),
            content_digest: image.content_digest(inode)?.map(|digest| digest.labelled()),
            xattrs: xattrs.iter().map(XattrJson::new).collect(),
        })
    }
}

impl XattrJson {
    fn new(xattr: &Xattr) -> Self {
        let (name, value) = (Bytes(&xattr.name), Bytes(&xattr.value));
        Self {
            name: name.lossy(),
            name_b64: name.b64_if_lossy(),
            value: value.lossy(),
            value_b64: value.b64_if_lossy(),
        }
    }
}
