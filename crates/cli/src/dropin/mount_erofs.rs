//! `mount.erofs`: the helper of erofs-utils, which mount(8) calls for the type `erofs`.

use super::Stop;
use super::getopt::Misuse;
use super::mount_kiln;
use crate::exit::Failure;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::path::Path;

pub const USAGE: &str = "\
[-fnsv] [-t type] [-o opt[,opts..]] IMAGE MOUNTPOINT
       mount.erofs -u MOUNTPOINT

Options:
  -h, --help             Print help
  -V, --version          Print version
  -u                     Unmount the image
  -t TYPE                erofs: by the kernel's driver, if it may be used, else by FUSE;
                         erofs.fuse, erofs.local: by one of them
  -o OPTIONS             Those of mount.kiln; uhelper=, cache_strategy=, acl and user_xattr change
                         nothing
  -f, -n, -s, -v, -N     As mount.kiln
  --reattach, -t erofs.nbd
                         Not supported
";

/// Runs `mount.erofs`.
pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let has = |names: &[&str]| args.iter().any(|arg| names.iter().any(|name| arg == name));
    if has(&["-V", "--version"]) {
        return Err(Stop::Version(""));
    }
    if has(&["--reattach"]) {
        return Err(Misuse::other("--reattach: there are no NBD devices; mount the image again").into());
    }
    if has(&["-u"]) {
        let others: Vec<_> = args.iter().filter(|arg| *arg != "-u").collect();
        let [dir] = others[..] else {
            return Err(Misuse::other("-u: name one mount point, and nothing else").into());
        };
        return Ok(kiln_mount::unmount(Path::new(dir)).map_err(Failure::Mount)?);
    }
    mount_kiln::mount(mount_kiln::parse(args, "erofs", geteuid().is_root())?)
}
