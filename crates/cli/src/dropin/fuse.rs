//! `erofsfuse`: a translation of its arguments to those of `kiln mount --via fuse`.

use super::Stop;
use super::getopt::{self, Item, Misuse, Opt, Takes, both, long, number, short};
use super::log::Log;
use super::source::numeric;
use crate::mount::{self, ModesArg, Via};
use crate::process::threads::ThreadsArgs;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

pub const USAGE: &str = "\
[options] IMAGE MOUNTPOINT

Options:
    --offset=#             skip # bytes at the beginning of IMAGE
    --dbglevel=#           set output message level to # (maximum 9)
    --device=#             specify an extra device to be used together
    -h   --help            print help
    -V   --version         print version
    -d   -o debug          enable debug output (implies -f)
    -f                     foreground operation
    -s                     disable multi-threaded operation
    -o max_threads=#       the maximum number of worker threads
    -o fsname=X            the source that the mount table shows
    -o allow_other         let other users in
    -o default_permissions let modes and ACLs in the image say what may be read
    -o noexec, suid, dev   as mount(8) has them; the default is exec,nosuid,nodev
    -o ro, clone_fd, max_idle_threads=#, subtype=X
                           accepted: so it is always, or nothing depends on it
";

const OPTIONS: [Opt; 9] = [
    both('h', "help", Takes::Nothing),
    both('V', "version", Takes::Nothing),
    short("d", Takes::Nothing),
    short("f", Takes::Nothing),
    short("s", Takes::Nothing),
    short("o", Takes::Value),
    long("offset", Takes::Value),
    long("dbglevel", Takes::Value),
    long("device", Takes::Value),
];

/// The request, as arguments of `kiln mount`.
struct Order {
    args: mount::Args,
    operands: Vec<OsString>,
    /// `-s`, which takes precedence over `max_threads`.
    single: bool,
}

pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    Ok(mount::run(&parse(args)?).map(drop)?)
}

fn parse(args: Vec<OsString>) -> Result<mount::Args, Stop> {
    let mut order = Order::new();
    for item in getopt::parse(&OPTIONS, args)? {
        match item {
            Item::Operand(operand) => order.operands.push(operand),
            Item::Option("help", _) => return Err(Stop::Help),
            Item::Option("version", _) => return Err(Stop::Version("")),
            Item::Option(name, value) => order.option(name, value.unwrap_or_default())?,
        }
    }
    Ok(order.into_args()?)
}

impl Order {
    /// Starts with the defaults of the original: modes are shown, and the directory below the mount is the caller's
    /// business.
    fn new() -> Self {
        let (via, modes) = (Some(Via::Fuse), Some(ModesArg::Show));
        let args = mount::Args { via, modes, over: true, quiet: true, ..mount::Args::default() };
        Self { args, operands: Vec::new(), single: false }
    }

    fn option(&mut self, name: &str, value: OsString) -> Result<(), Misuse> {
        match name {
            "s" => self.single = true,
            "d" | "f" => self.args.foreground = true,
            "o" => value.as_bytes().split(|&b| b == b',').try_for_each(|option| self.mount_option(option))?,
            "dbglevel" => drop(Log::parse(&value)?),
            "offset" => self.args.image.offset = numeric(&value, "invalid disk offset")?,
            _ => self.args.image.device.push(value.into()),
        }
        Ok(())
    }

    /// Handles one item of the comma-separated list behind `-o`.
    fn mount_option(&mut self, option: &[u8]) -> Result<(), Misuse> {
        let unknown = || Misuse::Option(format!("unknown option(s): `-o {}'", option.escape_ascii()));
        let text = str::from_utf8(option).map_err(|_| unknown())?;
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            // A list may begin or end with a comma.
            ("" | "ro" | "clone_fd", None) | ("subtype", Some(_)) => {}
            ("default_permissions", None) => self.args.modes = Some(ModesArg::Enforce),
            // The usual source is the image.
            ("fsname", Some("")) => {}
            ("suid" | "nosuid" | "dev" | "nodev" | "exec" | "noexec" | "allow_other", None) | ("fsname", Some(_)) => {
                // The last one counts, so all stay.
                self.args.options.push(text.parse().map_err(|_| unknown())?);
            }
            ("debug", None) => self.args.foreground = true,
            // -1 stands for the default.
            ("max_idle_threads", Some(value)) if value == "-1" || number(&value.into()).is_some() => {}
            ("max_threads", Some(value)) => {
                let count = number(&value.into()).filter(|&count| count > 0).ok_or_else(unknown)?;
                self.args.threads = ThreadsArgs::about(count);
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn into_args(mut self) -> Result<mount::Args, Misuse> {
        let [image, dir] = match <[OsString; 2]>::try_from(self.operands) {
            Ok(operands) => operands,
            Err(operands) => {
                return Err(match operands.len() {
                    0 => Misuse::other("missing argument: IMAGE"),
                    1 => Misuse::other("missing argument: MOUNTPOINT"),
                    _ => Misuse::Other(format!("unexpected argument: {}", operands[2].display())),
                });
            }
        };
        (self.args.image.image, self.args.dir) = (image.into(), dir.into());
        if self.single {
            self.args.threads = ThreadsArgs::about(1);
        }
        Ok(self.args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageArgs;
    use crate::mount::Args;

    fn parsed(args: &[&str]) -> Option<Args> {
        parse(args.iter().map(OsString::from).collect()).ok()
    }

    /// Returns the arguments for two operands alone.
    fn plain(image: &str, dir: &str) -> Args {
        let image = ImageArgs { image: image.into(), ..ImageArgs::default() };
        let (via, modes) = (Some(Via::Fuse), Some(ModesArg::Show));
        Args { image, dir: dir.into(), via, modes, over: true, quiet: true, ..Args::default() }
    }

    #[test]
    fn options_become_those_of_mount() {
        let plain_ab = || plain("a", "b");
        let threads = |count| Args { threads: ThreadsArgs::about(count), ..plain_ab() };
        let offset_and_devices = ImageArgs { offset: 1024, device: vec!["x".into(), "y".into()], ..plain_ab().image };
        let options =
            |list: &[&str]| Args { options: list.iter().map(|option| option.parse().unwrap()).collect(), ..plain_ab() };
        for (args, expected) in [
            (&["a", "b"][..], plain_ab()),
            (&["-f", "-d", "-odebug", "a", "b"], Args { foreground: true, ..plain_ab() }),
            (
                &["--offset=0x400", "--device", "x", "--device=y", "a", "b"],
                Args { image: offset_and_devices, ..plain_ab() },
            ),
            (&["a", "b", "-o", "ro,allow_other,fsname=x=y,subtype=z,"], options(&["allow_other", "fsname=x=y"])),
            (&["-omax_threads=10,max_idle_threads=-1,clone_fd", "a", "b"], threads(10)),
            (&["-s", "-omax_threads=10", "a", "b"], threads(1)),
            (&["-omax_threads=99999", "a", "b"], threads(1024)),
            (&["-oallow_other,allow_other", "a", "b"], options(&["allow_other", "allow_other"])),
            (&["-ofsname=x,fsname=y", "a", "b"], options(&["fsname=x", "fsname=y"])),
            (&["-ofsname=", "a", "b"], plain_ab()),
            (&["-onosuid,suid,noexec", "a", "b"], options(&["nosuid", "suid", "noexec"])),
            (&["-odefault_permissions", "a", "b"], Args { modes: Some(ModesArg::Enforce), ..plain_ab() }),
            (&["--", "-a", "-b"], plain("-a", "-b")),
        ] {
            assert_eq!(parsed(args), Some(expected), "{args:?}");
        }
        assert_eq!(threads(99999).threads.given(), Some(1024));
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for args in [
            &["a"][..],
            &[],
            &["a", "b", "c"],
            &["-orw", "a", "b"],
            &["-oallow_root", "a", "b"],
            &["-ofsname", "a", "b"],
            &["-omax_threads=0", "a", "b"],
            &["-omax_threads=x", "a", "b"],
            &["--dbglevel=10", "a", "b"],
            &["--offset=4k", "a", "b"],
            &["-x", "a", "b"],
        ] {
            assert!(parsed(args).is_none(), "{args:?}");
        }
    }
}
