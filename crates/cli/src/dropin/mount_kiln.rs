//! `mount.kiln` and `mount.fuse.kiln`: the programs that mount(8) calls for the types `kiln` and `fuse.kiln`, as in
//! fstab(5). A translation of their arguments to those of `kiln mount`.

use super::Stop;
use super::getopt::{self, Item, Misuse, Opt, Takes, both, short};
use crate::cli::{self, Command};
use crate::exit::Failure;
use crate::mount::{self, options::MountOptions};
use rustix::process::geteuid;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub const USAGE: &str = "\
[-fnsv] [-t type] [-o opt[,opts..]] IMAGE MOUNTPOINT

Options:
  -h, --help             Print help
  -f                     Check the options, and mount nothing
  -v                     Tell how the image is mounted
  -t TYPE                Accepted for mount(8): kiln, or fuse.kiln for FUSE
  -n, -s, -N NAMESPACE   Accepted for mount(8)
  -o via=kernel|fuse     Mount by this driver; default: the kernel's, if it may be used
  -o offset=SIZE         Byte of the file or device at which the image begins
  -o device=FILE         Extra device of the image; repeat for each, in order
  -o root-hash=HEX|FILE, hash-tree=FILE, objects=DIR, generation=N, subdir=PATH, index=FILE,
     preload=LIST, pin=SIZE, cache=SIZE, threads=N, idle=N, read-ahead=SIZE, prefetch=WHAT,
     modes=WHAT, owner=UID:GID, uid-map=MAP, gid-map=MAP, log=FILE, metrics=FILE
                         As the options of kiln mount with these names
  -o remount             Change suid, dev, exec and symfollow of what is mounted there
  -o suid, dev, exec, allow_other, default_permissions, fsname=NAME, and their opposites
                         As kiln mount -o; root's mounts have suid, dev and allow_other by
                         default, as in mount(8)
  -o x-*, nofail, _netdev and others of fstab(5)
                         Accepted: mount(8) and systemd read them
";

/// Options of the helpers.
pub const OPTIONS: [Opt; 8] = [
    both('h', "help", Takes::Nothing),
    short("f", Takes::Nothing),
    short("n", Takes::Nothing),
    short("s", Takes::Nothing),
    short("v", Takes::Nothing),
    short("N", Takes::Value),
    short("t", Takes::Value),
    short("o", Takes::Value),
];

/// Options of `kiln mount` that have the same name and value behind `-o`.
const SAME: [&str; 22] = [
    "via",
    "offset",
    "device",
    "root-hash",
    "hash-tree",
    "objects",
    "generation",
    "subdir",
    "index",
    "preload",
    "pin",
    "cache",
    "threads",
    "idle",
    "read-ahead",
    "prefetch",
    "modes",
    "owner",
    "uid-map",
    "gid-map",
    "log",
    "metrics",
];

/// Options for mount(8), systemd and generic tools, or without effect on images.
const IGNORED: [&str; 35] = [
    "",
    "acl", // of the kernel's driver, which has it anyway, and the next
    "user_xattr",
    "defaults",
    "ro",
    "rw", // mount(8) passes it unless told otherwise
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "nofail",
    "_netdev",
    "loop",
    "sync",
    "async",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "iversion",
    "noiversion",
];

/// The same, with values: the name of a program that mounts for users, and a hint for the kernel's driver.
const IGNORED_WITH_VALUE: [&str; 2] = ["uhelper", "cache_strategy"];

/// A translated command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Order {
    /// Arguments of `kiln mount`.
    words: Vec<OsString>,
    /// Nothing is to be mounted.
    is_fake: bool,
    /// A mount that is there gets other attributes.
    is_remount: bool,
}

/// Runs `mount.kiln`.
pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    mount(parse(args, "kiln", geteuid().is_root())?)
}

/// Runs `mount.fuse.kiln`.
pub fn run_fuse(args: Vec<OsString>) -> Result<(), Stop> {
    mount(parse(args, "fuse.kiln", geteuid().is_root())?)
}

/// Mounts what an order says.
pub fn mount(order: Order) -> Result<(), Stop> {
    let program = [OsString::from("kiln"), "mount".into()];
    let words: Vec<OsString> = program.into_iter().chain(order.words).collect();
    let parsed = cli::parse(&words).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Misuse::Other(line.to_owned())
    })?;
    match parsed.command {
        Command::Mount(_) if order.is_fake => Ok(()),
        Command::Mount(args) if order.is_remount => {
            let attributes = MountOptions::of(&args.options).attributes;
            Ok(kiln_mount::remount(&args.dir, attributes).map_err(Failure::Mount)?)
        }
        Command::Mount(args) => Ok(mount::run(&args).map(drop)?),
        _ => Ok(()),
    }
}

fn parse(args: Vec<OsString>, kind: &str, is_root: bool) -> Result<Order, Stop> {
    order(getopt::parse(&OPTIONS, args)?, kind, is_root)
}

/// Translates the arguments of a helper for the type `kind`.
pub fn order(items: Vec<Item>, kind: &str, is_root: bool) -> Result<Order, Stop> {
    let (mut operands, mut lists, mut kind) = (Vec::new(), Vec::new(), OsString::from(kind));
    let (mut is_fake, mut is_verbose) = (false, false);
    for item in items {
        match item {
            Item::Operand(operand) => operands.push(operand),
            Item::Option("help", _) => return Err(Stop::Help),
            Item::Option("f", _) => is_fake = true,
            Item::Option("v", _) => is_verbose = true,
            Item::Option("t", value) => kind = value.unwrap_or_default(),
            Item::Option("o", value) => lists.push(value.unwrap_or_default()),
            Item::Option(..) => {}
        }
    }
    if operands.len() != 2 {
        return Err(Misuse::other("name an image and a mount point").into());
    }
    // mount(8) mounts over directories with files.
    let mut words = vec![OsString::from("--over")];
    words.extend((!is_verbose).then(|| "--quiet".into()));
    match kind.as_bytes() {
        b"kiln" | b"erofs" => {}
        b"fuse.kiln" | b"erofs.fuse" => words.push("--via=fuse".into()),
        b"erofs.local" => words.push("--via=kernel".into()),
        _ => return Err(Misuse::Other(format!("unsupported type '{}'", kind.display())).into()),
    }
    if is_root {
        words.push("--options=suid,dev,allow_other".into());
    }
    let mut is_remount = false;
    for option in lists.iter().flat_map(|list| list.as_bytes().split(|&byte| byte == b',')) {
        match option {
            b"remount" => is_remount = true,
            _ => words.extend(translated(option)),
        }
    }
    words.push("--".into());
    words.extend(operands);
    Ok(Order { words, is_fake, is_remount })
}

/// Returns an item of the list behind `-o` as an option of `kiln mount`; `None` if it is for others.
fn translated(option: &[u8]) -> Option<OsString> {
    let name = option.split(|&byte| byte == b'=').next().unwrap_or_default();
    let has_value = name.len() < option.len();
    let is_named = |known: &&str| known.as_bytes() == name;
    let with = |front: &str| OsString::from_vec([front.as_bytes(), option].concat());
    if has_value && SAME.iter().any(is_named) {
        return Some(with("--"));
    }
    let is_for_others = name.starts_with(b"x-") || name.starts_with(b"X-") || name == b"comment";
    let ignored = if has_value { &IGNORED_WITH_VALUE[..] } else { &IGNORED };
    if is_for_others || ignored.iter().any(is_named) {
        return None;
    }
    // The list of kiln mount, which says what is wrong with it.
    Some(with("--options="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(args: &[&str], is_root: bool) -> Vec<String> {
        let Ok(order) = parse(args.iter().map(OsString::from).collect(), "kiln", is_root) else { panic!("{args:?}") };
        order.words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn options_of_mount_become_those_of_kiln() {
        let found = words(&["a.erofs", "/mnt", "-o", "rw,nofail,x-systemd.automount,cache=64M,nosuid"], false);
        assert_eq!(found, ["--over", "--quiet", "--cache=64M", "--options=nosuid", "--", "a.erofs", "/mnt"]);
        let found =
            words(&["a", "b", "-o", "uhelper=udisks2,acl,cache_strategy=readaround", "-t", "erofs.local"], false);
        assert_eq!(found, ["--over", "--quiet", "--via=kernel", "--", "a", "b"]);
        let found = words(&["-v", "-t", "fuse.kiln", "-n", "a", "b"], true);
        assert_eq!(found, ["--over", "--via=fuse", "--options=suid,dev,allow_other", "--", "a", "b"]);
    }

    #[test]
    fn options_have_names_that_kiln_mount_knows() {
        let values = [("via", "fuse"), ("prefetch", "off"), ("modes", "show"), ("root-hash", &*"5a".repeat(32))];
        let values = values.into_iter().chain([("owner", "1:2"), ("uid-map", "0:1:2"), ("gid-map", "0:1:2")]);
        let values: Vec<(&str, &str)> = values.collect();
        for name in SAME {
            let value = values.iter().find(|(known, _)| *known == name).map_or("1", |(_, value)| value);
            let more = match name {
                "pin" => ",preload=x",
                "hash-tree" => ",root-hash=5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
                _ => "",
            };
            let found = words(&["a", "b", "-o", &format!("{name}={value}{more}")], false);
            let line = [&["kiln".to_owned(), "mount".to_owned()], &found[..]].concat();
            let line: Vec<OsString> = line.into_iter().map(OsString::from).collect();
            let parsed = cli::parse(&line);
            assert!(parsed.is_ok(), "{name}: {}", parsed.err().map(|error| error.to_string()).unwrap_or_default());
        }
    }

    #[test]
    fn misuse_is_told() {
        for args in [&["a"][..], &["a", "b", "c"], &["-t", "ext4", "a", "b"], &["-t", "erofs.nbd", "a", "b"]] {
            assert!(parse(args.iter().map(OsString::from).collect(), "kiln", false).is_err(), "{args:?}");
        }
    }
}
