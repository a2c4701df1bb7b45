//! `kiln cat`

use crate::console::report::note;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use kiln_format::Escaped;
use kiln_read::{FollowLast, Image, ReadError};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// Print files of an image
///
/// Contents are compared with their digest, if the image has one; the exit code tells a mismatch after the bytes
/// have been printed. Files of composefs images whose contents lie outside the image are skipped, with exit code 3,
/// unless --objects leads to them.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  kiln cat image.erofs etc/passwd etc/group")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Files to print, from the root of the image; symbolic links are followed within it
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let image = args.image.open()?;
    // Each write is large: a buffer would gain nothing.
    let mut out = io::stdout().lock();
    let mut exit = Exit::Done;
    for path in &args.paths {
        if copy(args, &image, path.as_bytes(), &mut out)? == Exit::Skipped {
            exit = Exit::Skipped;
        }
    }
    out.flush()?;
    Ok(exit)
}

fn copy(args: &Args, image: &Image, path: &[u8], out: &mut impl Write) -> Result<Exit, Failure> {
    let failure = |error: ReadError| args.image.failure(error.at_path(path));
    let inode = image.resolve(path, FollowLast::Follow).map_err(failure)?;
    if inode.is_dir() {
        return Err(failure(ReadError::IsADirectory { path: path.to_vec() }));
    }
    if let Some(object) = image.composefs_object(&inode).map_err(failure)? {
        note(format_args!("skipped: {}: its contents are {object}, which is not in the image", Escaped(path)));
        return Ok(Exit::Skipped);
    }
    let mut digest = image.digest_verifier(&inode).map_err(failure)?;
    let mut buffer = vec![0; 1 << 20];
    let mut off = 0;
    loop {
        let len = image.read_at(&inode, &mut buffer, off).map_err(failure)?;
        if len == 0 {
            return digest.map_or(Ok(()), |digest| digest.finish().map_err(failure)).map(|()| Exit::Done);
        }
        if let Some(digest) = &mut digest {
            digest.update(&buffer[..len]);
        }
        out.write_all(&buffer[..len])?;
        off += len as u64;
    }
}
