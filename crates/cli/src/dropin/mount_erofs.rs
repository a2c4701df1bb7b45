//! `mount.erofs`: the helper of erofs-utils, which mount(8) calls for the type `erofs`.

use super::Stop;
use super::getopt::{self, Item, Misuse, Opt, Takes, both, long, short};
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

/// Options beside those of `mount.kiln`.
const MORE: [Opt; 3] =
    [both('V', "version", Takes::Nothing), short("u", Takes::Nothing), long("reattach", Takes::Nothing)];

/// Runs `mount.erofs`.
pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let items = getopt::parse(&[&mount_kiln::OPTIONS[..], &MORE].concat(), args)?;
    let has = |name| items.iter().any(|item| matches!(item, Item::Option(found, _) if *found == name));
    if has("version") {
        return Err(Stop::Version(""));
    }
    if has("reattach") {
        return Err(Misuse::other("--reattach: there are no NBD devices; mount the image again").into());
    }
    if !has("u") {
        return mount_kiln::mount(mount_kiln::order(items, "erofs", geteuid().is_root())?);
    }
    match &items[..] {
        [Item::Option(..), Item::Operand(dir)] | [Item::Operand(dir), Item::Option(..)] => {
            Ok(kiln_mount::unmount(Path::new(dir)).map_err(Failure::Mount)?)
        }
        _ => Err(Misuse::other("-u: name one mount point, and nothing else").into()),
    }
}
