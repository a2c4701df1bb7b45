//! `dump.erofs`

mod inode;
mod options;
mod statistics;
mod superblock;

use super::source::{Named, Opened};
use super::{Stop, getopt, log};
use crate::console::report::Out;
use kiln_format::Escaped;
use kiln_format::inode::FileType;
use kiln_read::{ImageOptions, Inode, ReadError};
use options::Options;
use std::ffi::OsString;
use std::io::Write;

pub const USAGE: &str = "\
[OPTIONS] IMAGE
Dump erofs layout from IMAGE.

General options:
 -V, --version   print the version number and exit
 -h, --help      display this help and exit

 -S              show statistic information of the image
 -e              show extent info (INODE required)
 -s              show information about superblock
 --blkid-udev    print block device attributes for easy import into the udev environment
 --device=X      specify an extra device to be used together
 --ls            show directory contents (INODE required)
 --cat           show file contents (INODE required)
 --nid=#         show the target inode info of nid #
 --offset=#      skip # bytes at the beginning of IMAGE
 --path=X        show the target inode info of path X
";

/// Bytes that are copied at once.
const BUFFER_LEN: usize = 1 << 20;

pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let options = Options::read(getopt::parse(&options::OPTIONS, args)?)?;
    let opened = match options.cat {
        true => options.source.open(&ImageOptions::default())?,
        false => options.source.open_metadata(&ImageOptions::default())?,
    };
    let mut out = Out::new();
    if options.udev {
        superblock::udev(&mut out, opened.image.superblock())?;
        return Ok(out.finish()?);
    }
    let target = opened.target(&options.source)?;
    if options.shows_superblock() {
        superblock::print(&mut out, &opened.image)?;
    }
    if options.statistics {
        statistics::print(&mut out, &opened)?;
    }
    match target {
        Some(target) if options.cat => cat(&mut out, &opened, &target)?,
        Some(Named { name, inode }) => {
            let name = if options.source.is_nid() { path_of(&opened, &inode).unwrap_or(name) } else { name };
            inode::Shown { opened: &opened, name: &name, inode }.print(&mut out, &options)?;
        }
        None => {}
    }
    Ok(out.finish()?)
}

/// Returns the first path of an inode, or `None` if no directory names it.
fn path_of(opened: &Opened, inode: &Inode) -> Option<Vec<u8>> {
    if opened.image.superblock().packed_nid == Some(inode.nid) {
        return Some(b"(packed file)".to_vec());
    }
    let root = opened.image.inode(opened.image.root_nid()).ok()?;
    // Parts that cannot be walked were not asked for.
    let mut entries = opened.image.walk(&root, b"/").filter_map(Result::ok);
    entries.find(|entry| entry.inode.nid == inode.nid).map(|entry| entry.path)
}

/// Prints the contents of a file, or the target of a symbolic link.
fn cat(out: &mut Out, opened: &Opened, target: &Named) -> Result<(), Stop> {
    let failed = |error: ReadError| opened.failure(error.at_path(&target.name));
    let inode = &target.inode;
    match inode.meta.file_type {
        FileType::Directory => return Err(failed(ReadError::IsADirectory { path: Vec::new() }).into()),
        FileType::Symlink => out.write_all(&opened.image.read_link(inode).map_err(failed)?)?,
        _ => {
            if let Some(object) = opened.image.composefs_object(inode).map_err(failed)? {
                log::error(format_args!(
                    "{}: its contents are {object}, which is not in the image",
                    Escaped(&target.name)
                ));
                return Err(Stop::Told);
            }
            let mut buffer = vec![0; BUFFER_LEN];
            let mut off = 0;
            while off < inode.meta.size {
                let have = opened.image.read_at(inode, &mut buffer, off).map_err(failed)?;
                out.write_all(&buffer[..have])?;
                off += have.max(1) as u64;
            }
        }
    }
    Ok(())
}
