//! `erofsfuse`: `kiln mount --via fuse` in other words.

use super::getopt::{self, Item, Misuse, Opt, Takes, both, long, number, short};
use super::log::Log;
use super::source::numeric;
use super::{Stop, log};
use crate::mount;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

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

/// The most threads that `kiln mount` takes.
const THREADS_MAX: u64 = 1024;

/// The arguments of `kiln mount` that mean the same.
#[derive(Default)]
struct Order {
    options: Vec<OsString>,
    operands: Vec<OsString>,
    /// `-s`, which counts more than `max_threads`.
    single: bool,
    threads: Option<u64>,
    /// `-o default_permissions`.
    enforces_modes: bool,
}

pub fn run(args: Vec<OsString>) -> Result<(), Stop> {
    let mut order = Order::default();
    for item in getopt::parse(&OPTIONS, args)? {
        match item {
            Item::Operand(operand) => order.operands.push(operand),
            Item::Option("help", _) => return Err(Stop::Help),
            Item::Option("version", _) => return Err(Stop::Version("")),
            Item::Option(name, value) => order.option(name, value.unwrap_or_default())?,
        }
    }
    let line = order.into_line()?;
    match mount::parse(line) {
        Ok(args) => Ok(mount::run(&args).map(drop)?),
        // What could be wrong with it has been checked.
        Err(_) => {
            log::error(format_args!("internal error: an order that `kiln mount` does not take; please report it"));
            Err(Stop::Told)
        }
    }
}

impl Order {
    fn option(&mut self, name: &str, value: OsString) -> Result<(), Misuse> {
        match name {
            "s" => self.single = true,
            "d" | "f" => self.foreground(),
            "o" => value.as_bytes().split(|&b| b == b',').try_for_each(|option| self.mount_option(option))?,
            "dbglevel" => drop(Log::parse(&value)?),
            "offset" => self.push(format!("--offset={}", numeric(&value, "invalid disk offset")?)),
            _ => self.push_with("--device=", value),
        }
        Ok(())
    }

    /// One of the comma list behind `-o`.
    fn mount_option(&mut self, option: &[u8]) -> Result<(), Misuse> {
        let unknown = || Misuse::Option(format!("unknown option(s): `-o {}'", option.escape_ascii()));
        let (name, value) = match option.iter().position(|&b| b == b'=') {
            Some(at) => (&option[..at], Some(OsString::from_vec(option[at + 1..].to_vec()))),
            None => (option, None),
        };
        match (name, value) {
            // A list may begin or end with a comma.
            (b"", None) => {}
            (b"ro" | b"clone_fd", None) => {}
            (b"default_permissions", None) => self.enforces_modes = true,
            (b"suid" | b"nosuid" | b"dev" | b"nodev" | b"exec" | b"noexec", None) => {
                // The last one counts, so all stay.
                self.push_with("--options=", OsString::from_vec(name.to_vec()));
            }
            (b"debug", None) => self.foreground(),
            (b"allow_other", None) => self.push("--allow-other"),
            (b"fsname", Some(value)) if value.to_str().is_some() => self.push_with("--fsname=", value),
            (b"subtype", Some(_)) => {}
            // -1 stands for the default.
            (b"max_idle_threads", Some(value)) if value == "-1" || number(&value).is_some() => {}
            (b"max_threads", Some(value)) => {
                self.threads = Some(number(&value).filter(|&count| count > 0).ok_or_else(unknown)?);
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn foreground(&mut self) {
        if !self.options.iter().any(|option| option == "--foreground") {
            self.push("--foreground");
        }
    }

    fn push(&mut self, option: impl Into<OsString>) {
        let option = option.into();
        // Flags may be given twice here, but not there.
        if !self.options.contains(&option) {
            self.options.push(option);
        }
    }

    fn push_with(&mut self, option: &str, value: OsString) {
        let mut option = OsString::from(option);
        option.push(value);
        self.options.push(option);
    }

    fn into_line(mut self) -> Result<Vec<OsString>, Misuse> {
        match self.operands.len() {
            0 => return Err(Misuse::other("missing argument: IMAGE")),
            1 => return Err(Misuse::other("missing argument: MOUNTPOINT")),
            2 => {}
            _ => return Err(Misuse::Other(format!("unexpected argument: {}", self.operands[2].display()))),
        }
        if self.single {
            self.threads = Some(1);
        }
        if let Some(threads) = self.threads {
            self.push(format!("--threads={}", threads.min(THREADS_MAX)));
        }
        // As the original: modes are shown, and what lies below the mount is the caller's business.
        let modes = if self.enforces_modes { "--modes=enforce" } else { "--modes=show" };
        let line = ["kiln", "mount", "--via=fuse", "--quiet", "--over", modes];
        let mut line: Vec<OsString> = line.map(Into::into).to_vec();
        line.append(&mut self.options);
        line.push("--".into());
        line.append(&mut self.operands);
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(args: &[&str]) -> Result<String, Misuse> {
        let mut order = Order::default();
        for item in getopt::parse(&OPTIONS, args.iter().map(OsString::from).collect())? {
            match item {
                Item::Operand(operand) => order.operands.push(operand),
                Item::Option(name, value) => order.option(name, value.unwrap_or_default())?,
            }
        }
        let line = order.into_line()?;
        assert!(mount::parse(line.clone()).is_ok(), "{line:?}");
        Ok(line.join(" ".as_ref()).into_string().unwrap())
    }

    #[test]
    fn options_become_those_of_mount() {
        let quiet = "kiln mount --via=fuse --quiet --over --modes=show";
        for (args, expected) in [
            (&["a", "b"][..], " -- a b"),
            (&["-f", "-d", "-odebug", "a", "b"], " --foreground -- a b"),
            (
                &["--offset=0x400", "--device", "x", "--device=y", "a", "b"],
                " --offset=1024 --device=x --device=y -- a b",
            ),
            (&["a", "b", "-o", "ro,allow_other,fsname=x=y,subtype=z,"], " --allow-other --fsname=x=y -- a b"),
            (&["-omax_threads=10,max_idle_threads=-1,clone_fd", "a", "b"], " --threads=10 -- a b"),
            (&["-s", "-omax_threads=10", "a", "b"], " --threads=1 -- a b"),
            (&["-omax_threads=99999", "a", "b"], " --threads=1024 -- a b"),
            (&["-oallow_other,allow_other", "a", "b"], " --allow-other -- a b"),
            (&["-onosuid,suid,noexec", "a", "b"], " --options=nosuid --options=suid --options=noexec -- a b"),
            (&["--", "-a", "-b"], " -- -a -b"),
        ] {
            assert_eq!(line(args), Ok(format!("{quiet}{expected}")), "{args:?}");
        }
        let enforced = line(&["-o", "default_permissions", "a", "b"]);
        assert_eq!(enforced, Ok("kiln mount --via=fuse --quiet --over --modes=enforce -- a b".into()));
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
            assert!(line(args).is_err(), "{args:?}");
        }
    }
}
