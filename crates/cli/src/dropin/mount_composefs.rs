//! `mount.composefs`: the kernel's EROFS below overlayfs, as the original mounts an image.

use super::getopt::{self, Item, Misuse, Opt, Takes, both, short};
use super::{Stop, log};
use crate::composefs::mount::is_enforced;
use crate::exit::Failure;
use kiln_mount::Attributes;
use kiln_mount::kernel::composefs::{ComposefsMount, KernelVerity, Upper};
use kilnfs::digest::Digest;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

pub const USAGE: &str = "\
[-t type] [-o opt[,opts..]] IMAGE MOUNTPOINT

Options:
  -h, --help             Print help
  -t TYPE                Accepted for mount(8): composefs is the only type
  -o basedir=DIR[:DIR]   Directories with the objects
  -o digest=DIGEST       fs-verity digest that the image must have
  -o verity              Require fs-verity of all objects
  -o tryverity           The same, if the kernel's overlayfs knows it
  -o idmap=FILE          User namespace with the mapping of owners
  -o ro, rw              Mount read-only, or not
  -o upperdir=DIR        Directory for changes
  -o workdir=DIR         Empty directory on the filesystem of upperdir
  A backslash in front of a comma or a colon makes it part of a value.
";

const OPTIONS: [Opt; 3] = [both('h', "help", Takes::Nothing), short("t", Takes::Value), short("o", Takes::Value)];

#[derive(Default)]
struct Order {
    mount: ComposefsMount,
    operands: Vec<OsString>,
    upper: Option<PathBuf>,
    work: Option<PathBuf>,
}

pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let (mount, dir) = parse(args)?;
    if mount.verity != KernelVerity::Off && !is_enforced(&mount)? {
        let image = mount.image.display();
        log::line(format_args!(
            "mount.composefs: {image}: the objects have no fs-verity, so reading them will fail (EIO); \
             kiln composefs mount --via fuse verifies them without it"
        ));
    }
    mount.mount(&dir).map_err(Failure::Mount)?;
    Ok(())
}

/// Returns the mount, and the directory to mount on.
fn parse(args: Vec<OsString>) -> Result<(ComposefsMount, PathBuf), Stop> {
    // Set-user-id bits and devices of a root filesystem work.
    let attributes = Attributes { suid: true, dev: true, ..Attributes::default() };
    let mut order = Order { mount: ComposefsMount { attributes, ..ComposefsMount::default() }, ..Order::default() };
    for item in getopt::parse(&OPTIONS, args)? {
        match item {
            Item::Operand(operand) => order.operands.push(operand),
            Item::Option("help", _) => return Err(Stop::Help),
            Item::Option("t", kind) if kind.as_deref().is_none_or(|kind| kind == "composefs") => {}
            Item::Option("t", kind) => {
                let kind = kind.unwrap_or_default();
                return Err(Misuse::Other(format!("Unsupported fs type '{}'", kind.display())).into());
            }
            Item::Option(_, list) => {
                split(list.unwrap_or_default().as_bytes(), b',').iter().try_for_each(|option| order.option(option))?;
            }
        }
    }
    Ok(order.finish()?)
}

impl Order {
    /// Handles one item of the list behind `-o`.
    fn option(&mut self, option: &[u8]) -> Result<(), Misuse> {
        let (name, value) = match option.iter().position(|&byte| byte == b'=') {
            Some(at) => (&option[..at], Some(&option[at + 1..])),
            None => (option, None),
        };
        let shown = name.escape_ascii().to_string();
        let given = || match value {
            None => Err(Misuse::Other(format!("No value specified for {shown} option"))),
            Some(b"") => Err(Misuse::Other(format!("Value for {shown} option has incorrect format"))),
            Some(value) => Ok(value),
        };
        let path = |value: &[u8]| PathBuf::from(OsString::from_vec(unescape(value)));
        match name {
            b"basedir" => self.mount.objects = split(given()?, b':').into_iter().map(path).collect(),
            b"digest" => {
                let digest = Digest::from_hex(given()?);
                let invalid = || Misuse::other("Value for digest option has incorrect format");
                self.mount.digest = Some(digest.ok_or_else(invalid)?);
            }
            b"idmap" => self.mount.idmap = Some(path(given()?)),
            b"verity" => self.mount.verity = KernelVerity::Required,
            b"tryverity" => self.mount.verity = KernelVerity::IfKnown,
            b"ro" => self.mount.is_read_only = true,
            b"rw" => self.mount.is_read_only = false,
            b"upperdir" => self.upper = Some(path(given()?)),
            b"workdir" => self.work = Some(path(given()?)),
            _ => return Err(Misuse::Other(format!("Unsupported option {shown}"))),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(ComposefsMount, PathBuf), Misuse> {
        let dir = match <[OsString; 2]>::try_from(self.operands) {
            Ok([image, dir]) => {
                self.mount.image = image.into();
                dir.into()
            }
            Err(operands) => {
                return Err(Misuse::other(match operands.len() {
                    0 => "No source path specified",
                    1 => "No mount path specified",
                    _ => "Too many arguments",
                }));
            }
        };
        if self.mount.objects.is_empty() {
            return Err(Misuse::other("No object dirs specified"));
        }
        self.mount.upper = match (self.upper, self.work) {
            (None, None) => None,
            (Some(dir), Some(work)) => Some(Upper { dir, work }),
            _ => return Err(Misuse::other("Both workdir and upperdir must be specified if used")),
        };
        Ok((self.mount, dir))
    }
}

/// Splits a list at the separators that have no backslash in front of them. Backslashes stay.
fn split(list: &[u8], separator: u8) -> Vec<&[u8]> {
    let mut is_escaped = false;
    let is_border = |&byte: &u8| {
        let is_border = byte == separator && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_border
    };
    list.split(is_border).collect()
}

/// Removes one backslash from each escape.
fn unescape(value: &[u8]) -> Vec<u8> {
    let mut is_escaped = false;
    let kept = |byte: &&u8| {
        is_escaped = **byte == b'\\' && !is_escaped;
        !is_escaped
    };
    value.iter().filter(kept).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<ComposefsMount, String> {
        match parse(args.iter().map(OsString::from).collect()) {
            Ok((mount, dir)) => {
                assert_eq!(dir, PathBuf::from("dir"));
                Ok(mount)
            }
            Err(Stop::Misuse(misuse)) => Err(misuse.to_string()),
            Err(_) => Err("not misuse".into()),
        }
    }

    #[test]
    fn options_become_a_mount() {
        let attributes = Attributes { suid: true, dev: true, ..Attributes::default() };
        let plain = ComposefsMount {
            image: "image".into(),
            objects: vec!["a".into()],
            attributes,
            ..ComposefsMount::default()
        };
        let hex = "ab".repeat(32);
        let upper = Upper { dir: "u".into(), work: "w".into() };
        for (list, expected) in [
            ("basedir=a", plain.clone()),
            ("basedir=a:b", ComposefsMount { objects: vec!["a".into(), "b".into()], ..plain.clone() }),
            (r"basedir=a\:b\\:c\,d", ComposefsMount { objects: vec![r"a:b\".into(), "c,d".into()], ..plain.clone() }),
            (
                "basedir=a,verity,ro",
                ComposefsMount { verity: KernelVerity::Required, is_read_only: true, ..plain.clone() },
            ),
            ("tryverity,basedir=a,ro,rw", ComposefsMount { verity: KernelVerity::IfKnown, ..plain.clone() }),
            ("basedir=a,upperdir=u,workdir=w", ComposefsMount { upper: Some(upper), ..plain.clone() }),
            ("basedir=a,idmap=/n", ComposefsMount { idmap: Some("/n".into()), ..plain.clone() }),
            (
                &format!("basedir=a,digest={hex}"),
                ComposefsMount { digest: Digest::from_hex(hex.as_bytes()), ..plain.clone() },
            ),
        ] {
            assert_eq!(parsed(&["-t", "composefs", "image", "dir", "-o", list]), Ok(expected), "{list}");
        }
    }

    #[test]
    fn misuse_is_told_as_by_the_original() {
        for (args, message) in [
            (&[][..], "No source path specified"),
            (&["image"], "No mount path specified"),
            (&["image", "dir", "more"], "Too many arguments"),
            (&["image", "dir"], "No object dirs specified"),
            (&["-o", "nosuid", "image", "dir"], "Unsupported option nosuid"),
            (&["-o", "basedir", "image", "dir"], "No value specified for basedir option"),
            (&["-o", "basedir=", "image", "dir"], "Value for basedir option has incorrect format"),
            (&["-o", "digest=0", "image", "dir"], "Value for digest option has incorrect format"),
            (&["-o", "basedir=a,workdir=w", "image", "dir"], "Both workdir and upperdir must be specified if used"),
            (&["-t", "erofs", "image", "dir"], "Unsupported fs type 'erofs'"),
        ] {
            assert_eq!(parsed(args), Err(message.into()), "{args:?}");
        }
    }
}
