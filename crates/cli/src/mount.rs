//! `kiln mount`

mod background;
pub mod hotlist;
mod lists;
mod log;
pub mod options;
pub mod owner;
pub mod preload;
pub mod record;
pub mod stats;
pub mod umount;

use crate::console::progress::Meter;
use crate::console::report::note;
use crate::console::size::{self, Human};
use crate::exit::{Exit, Failure};
use crate::headings::FUSE;
use crate::image::ImageArgs;
use crate::process::signals::Signals;
use crate::process::threads::ThreadsArgs;
use crate::root_hash::{self, verify_all};
use background::Ready;
use kiln_mount::fuse::{self, FuseOptions, Hot, Modes, Prefetch};
use kiln_mount::kernel::{KernelMount, KernelVia};
use kiln_mount::{Attributes, MountError, Preload, check_free, default_preload};
use kiln_read::hotlist::HotList;
use log::{Notes, Target};
use options::{MountOption, MountOptions};
use owner::OwnerArgs;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// FUSE threads on small machines: some wait for the disk while others decode.
const FUSE_THREADS_MIN: usize = 4;

/// Mount an image
///
/// The kernel's driver mounts it if you may use that, otherwise FUSE, which needs no privilege. FUSE also mounts it if
/// an option asks for what it alone has, such as --owner, --idle or --log. Every mount is read-only. Set-user-id bits
/// and devices have no effect without -o suid,dev. With --root-hash FUSE mounts it and verifies each read; with
/// --via kernel, too, all of the image is verified once, before the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[command(after_help = "\
Examples:
  kiln mount image.erofs /mnt
  kiln mount -o suid,dev rootfs.erofs /mnt
  kiln mount --owner me backup.erofs ~/mnt
  kiln mount --via fuse --foreground image.erofs ~/mnt
  kiln mount --preload boot.list --pin 64M image.erofs /mnt")]
pub struct Args {
    #[command(flatten)]
    pub image: ImageArgs,

    /// Existing directory to mount on
    #[serde(with = "crate::process::request::absolute_paths")]
    pub dir: PathBuf,

    /// Mount by this driver; default: the kernel's, if it may be used
    #[arg(long, value_enum)]
    pub via: Option<Via>,

    /// Mount this directory of the image instead of its root
    #[arg(long, value_name = "PATH")]
    pub subdir: Option<PathBuf>,

    /// Mount options, as in mount(8) (see `kiln help mounting`)
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    #[serde(with = "crate::process::request::texts")]
    pub options: Vec<MountOption>,

    /// Mount over a directory with files, or over another mount
    #[arg(long)]
    pub over: bool,

    /// Read listed files into the system's cache once mounted
    #[arg(long, value_name = "LIST")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub preload: Option<PathBuf>,

    /// Print nothing but errors and skipped inputs
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten, next_help_heading = FUSE)]
    pub owner: OwnerArgs,

    /// Enforce modes and ACLs, or only show them
    #[arg(long, value_enum, help_heading = FUSE)]
    pub modes: Option<ModesArg>,

    /// Memory for decoded data; default: a sixteenth of all memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = FUSE)]
    pub cache: Option<u64>,

    /// Keep up to SIZE of --preload decoded, in addition to --cache
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "preload", help_heading = FUSE)]
    pub pin: Option<u64>,

    /// Push contents, or contents and names, before they are requested
    #[arg(long, value_enum, value_name = "WHAT", default_value_t, help_heading = FUSE)]
    pub prefetch: PrefetchArg,

    /// Unmount when nobody has used it for N seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = FUSE)]
    pub idle: Option<u32>,

    /// Kernel's readahead for sequential readers; needs root
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = FUSE)]
    pub read_ahead: Option<u64>,

    /// Stay in the foreground until unmounted or interrupted
    #[arg(long, help_heading = FUSE)]
    pub foreground: bool,

    /// Log read errors to FILE; default: syslog
    #[arg(long, value_name = "FILE", help_heading = FUSE)]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub log: Option<PathBuf>,

    /// Keep counters for Prometheus in FILE
    #[arg(long, value_name = "FILE", help_heading = FUSE)]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub metrics: Option<PathBuf>,

    #[command(flatten, next_help_heading = FUSE)]
    pub threads: ThreadsArgs,

    /// True in the background process that the foreground one has started
    #[arg(skip)]
    pub in_background: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Via {
    Kernel,
    Fuse,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum PrefetchArg {
    Off,
    Data,
    #[default]
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum ModesArg {
    /// They say what may be read, as everywhere
    Enforce,
    /// They are only shown
    Show,
}

/// Subcommand that the background process runs.
pub const SERVE: &str = "fuse-server";

/// Runs the background process: serves the mount that standard input asks for, a value that [`run`] has sent.
pub fn run_in_background() -> Result<Exit, Failure> {
    let args: Args = serde_json::from_reader(io::stdin().lock())
        .map_err(|error| Failure::Usage(format!("{SERVE} is for kiln mount alone: {error}")))?;
    run(&args)
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let preload = args.preload.as_deref().map(lists::hot_or_plain_file).transpose()?;
    let options = MountOptions::of(&args.options);
    let via = via(args)?;
    if !args.in_background {
        args.image.refuse_unfinished()?;
        if !args.quiet {
            args.image.note_left_over();
        }
    }
    if via != Some(Via::Fuse) {
        args.image.require_devices()?;
    }
    if !args.over {
        check_free(&args.dir).map_err(Failure::Mount)?;
    }
    if let Some(via) = by_kernel(args, via, options.attributes)? {
        tell_unused(args);
        let how = match via {
            KernelVia::File => "the kernel".into(),
            KernelVia::Loop(device) => format!("the kernel, through {}", device.display()),
        };
        if let Some(list) = &preload {
            warm_up(args, list);
        }
        return Ok(tell(args, &how, options.attributes));
    }
    if args.foreground {
        return serve(args, options, preload);
    }
    fuse::require_fuse(&args.dir).map_err(Failure::Mount)?;
    // The process says what it serves in the list of processes.
    let shown = [args.image.image.as_os_str(), args.dir.as_os_str()];
    background::start(&[&[OsStr::new(SERVE), OsStr::new("--")], &shown[..]].concat(), &request(args)?)?;
    Ok(tell(args, "FUSE", options.attributes))
}

/// Mounts an image by the kernel's driver. Returns `None` if FUSE is to mount it: because the options ask for it, or
/// because the kernel may not be used.
pub fn by_kernel(args: &Args, via: Option<Via>, attributes: Attributes) -> Result<Option<KernelVia>, Failure> {
    if via == Some(Via::Fuse) {
        return Ok(None);
    }
    verify_before(args)?;
    let ImageArgs { image, device, offset, .. } = &args.image;
    let subdir = args.subdir.as_deref();
    match (KernelMount { image, devices: device, offset: *offset, subdir, attributes }).mount(&args.dir) {
        Ok(via) => Ok(Some(via)),
        // That users may not use the kernel's driver is as they expect: the last line says who has mounted the image.
        Err(MountError::NotPermitted { .. }) if via.is_none() => Ok(None),
        Err(error) if via.is_none() && error.falls_back_to_fuse() => {
            say(args, format_args!("{error}; trying FUSE"));
            Ok(None)
        }
        Err(error) => Err(Failure::Mount(error)),
    }
}

/// Returns the way to mount that the options ask for: by name, or because only one way has them.
pub fn via(args: &Args) -> Result<Option<Via>, Failure> {
    if !args.image.objects.dirs.is_empty() {
        return match args.via {
            Some(Via::Kernel) => Err(Failure::Usage(
                "--objects: the kernel needs overlayfs, too: use kiln composefs mount; FUSE shows them here".into(),
            )),
            _ => Ok(Some(Via::Fuse)),
        };
    }
    if args.image.is_view()? {
        return match args.via {
            Some(Via::Kernel) => Err(Failure::Usage(format!(
                "{}: no EROFS image: the kernel's driver mounts those only; FUSE mounts archives, too",
                args.image.image.display()
            ))),
            _ => Ok(Some(Via::Fuse)),
        };
    }
    if args.image.generation.is_some() {
        return match args.via {
            Some(Via::Kernel) => Err(Failure::Usage(
                "--generation: the kernel's driver shows the last generation only; FUSE shows any of them".into(),
            )),
            _ => Ok(Some(Via::Fuse)),
        };
    }
    if args.via.is_none() && (args.image.verified.is_given() || args.image.is_composefs()) {
        // The kernel's driver alone reads objects of composefs as zeros.
        return Ok(Some(Via::Fuse));
    }
    match (args.via, only_fuse(args)) {
        (Some(Via::Kernel), Some((option, why))) => {
            Err(Failure::Usage(format!("{option}: the kernel's driver {why}; FUSE does")))
        }
        (None, Some(_)) => Ok(Some(Via::Fuse)),
        (via, _) => Ok(via),
    }
}

/// Returns an option that changes what a mount is or does, and that FUSE alone has, with the reason.
fn only_fuse(args: &Args) -> Option<(&'static str, &'static str)> {
    let has_name = args.options.iter().any(MountOption::is_fsname);
    let given = [
        (args.pin.is_some(), "--pin", "keeps no decoded data but its page cache"),
        (args.idle.is_some(), "--idle", "does not end its mount by itself"),
        (args.foreground, "--foreground", "has no process that could stay"),
        (args.log.is_some(), "--log", "writes no log but the kernel's"),
        (args.metrics.is_some(), "--metrics", "keeps no counters"),
        (args.modes == Some(ModesArg::Show), "--modes show", "enforces modes"),
        (has_name, "-o fsname", "takes the name from the image"),
    ];
    let owner = args.owner.given().map(|option| (option, "shows no owners but those of the image"));
    owner.or_else(|| given.into_iter().find_map(|(is_given, option, why)| is_given.then_some((option, why))))
}

/// Notes options that only make FUSE faster or smaller, which the kernel's driver does without.
fn tell_unused(args: &Args) {
    let given = [
        (args.cache.is_some(), "--cache"),
        (args.threads.given().is_some(), "--threads"),
        (args.read_ahead.is_some(), "--read-ahead"),
        (args.prefetch != PrefetchArg::default(), "--prefetch"),
    ];
    let unused: Vec<_> = given.into_iter().filter_map(|(is_given, option)| is_given.then_some(option)).collect();
    if !unused.is_empty() {
        say(args, format_args!("{}: not used: the kernel's driver needs none of it", unused.join(", ")));
    }
}

/// Verifies all of an image before the kernel's driver mounts it, which verifies nothing, if that was asked for.
fn verify_before(args: &Args) -> Result<(), Failure> {
    let trees = args.image.hash_trees()?;
    let reports = verify_all(&trees, args.threads.threads(), &Meter::Nothing)?;
    for ((path, _), report) in trees.iter().zip(&reports) {
        root_hash::tell(path, report, args.quiet);
    }
    let problems: u64 = reports.iter().map(|report| report.finding_count).sum();
    if problems > 0 {
        return Err(Failure::Unverified { image: args.image.image.clone(), problems });
    }
    if !trees.is_empty() {
        say(args, format_args!("later changes of the image are not noticed: only --via fuse verifies each read"));
    }
    Ok(())
}

/// Prints a message that is not an error.
fn say(args: &Args, line: fmt::Arguments<'_>) {
    if !args.quiet {
        note(line);
    }
}

fn tell(args: &Args, how: &str, attributes: Attributes) -> Exit {
    let (image, dir) = (args.image.image.display(), args.dir.display());
    say(args, format_args!("{image} mounted on {dir} by {how}: {attributes}"));
    Exit::Done
}

/// Serves by FUSE until the end. A signal is an orderly way to end, so it is not a failure.
fn serve(args: &Args, list: MountOptions, preload: Option<HotList>) -> Result<Exit, Failure> {
    kiln_mount::return_freed_memory();
    kiln_mount::load_program();
    let mut ready = if args.in_background { Some(Ready::detach()?) } else { None };
    let notes = if args.quiet { Notes::LeftOut } else { Notes::Logged };
    log::start(log_target(args)?, notes, &args.image.image);
    let signals = Signals::catch()?;
    let options = fuse_options(args, &list, preload)?;
    let sources = args.image.sources_with_objects(options.cache_bytes)?;
    let stop = signals.pipe()?;
    let mut on_ready = || match ready.take() {
        Some(ready) => ready.report(),
        None => drop(tell(args, "FUSE", list.attributes)),
    };
    let served = fuse::serve(sources, &args.dir, &options, stop.as_fd(), &mut on_ready);
    log::end();
    served.map_err(|error| failure(&args.image, error))?;
    Ok(Exit::Done)
}

/// Returns an error of a FUSE server.
pub fn failure(image: &ImageArgs, error: MountError) -> Failure {
    match error {
        MountError::Image { source, .. } => image.failure(*source),
        error => Failure::Mount(error),
    }
}

/// Returns the options of a FUSE server.
pub fn fuse_options(args: &Args, list: &MountOptions, preload: Option<HotList>) -> Result<FuseOptions, Failure> {
    Ok(FuseOptions {
        threads: args.threads.given().map_or(args.threads.count().max(FUSE_THREADS_MIN), usize::from),
        cache_bytes: args.cache.unwrap_or_else(fuse::default_cache),
        allow_other: list.allow_other,
        modes: match args.modes {
            Some(ModesArg::Enforce) => Modes::Enforced,
            None if list.default_permissions => Modes::Enforced,
            Some(ModesArg::Show) => Modes::Shown,
            None => Modes::AmongUsers,
        },
        owners: args.owner.owners()?,
        attributes: list.attributes,
        fsname: list.fsname.clone().unwrap_or_else(|| args.image.image.display().to_string()),
        read_ahead: args.read_ahead,
        subdir: args.subdir.clone(),
        idle: args.idle.map(|secs| Duration::from_secs(secs.into())),
        prefetch: match args.prefetch {
            PrefetchArg::Off => Prefetch::Off,
            PrefetchArg::Data => Prefetch::Data,
            PrefetchArg::All => Prefetch::DataAndNames,
        },
        hot: preload.map(|list| Hot {
            list,
            preload_bytes: default_preload(),
            pin_bytes: args.pin.unwrap_or_default(),
        }),
        metrics: args.metrics.clone(),
    })
}

/// Returns the destination of the log. In the background, standard error is gone once the mount answers.
fn log_target(args: &Args) -> Result<Target, Failure> {
    match &args.log {
        Some(path) => Target::file(path),
        None if args.in_background => Ok(Target::Syslog),
        None => Ok(Target::Stderr),
    }
}

/// Preloads a mount by the kernel's driver, and prints the failures. FUSE servers preload by themselves.
fn warm_up(args: &Args, list: &HotList) {
    match kiln_mount::preload(&args.dir, list, Preload::Read, default_preload(), &AtomicBool::new(false)) {
        Ok(done) => {
            for (path, error) in done.failed {
                say(args, format_args!("{}: not preloaded: {error}", path.display()));
            }
            if done.left_out > 0 {
                let left_out = Human(done.left_out);
                say(
                    args,
                    format_args!("{left_out} of the list are not preloaded: they are more than half of the memory"),
                );
            }
        }
        Err(error) => say(args, format_args!("{}: not preloaded: {error}", args.dir.display())),
    }
}

/// Returns the request to the background process: the same arguments, to be served by FUSE.
///
/// # Errors
/// A path that cannot be made absolute.
fn request(args: &Args) -> Result<Vec<u8>, Failure> {
    let served = Args { via: Some(Via::Fuse), foreground: true, in_background: true, ..args.clone() };
    serde_json::to_vec(&served).map_err(|error| {
        let (path, action) = (args.image.image.clone(), "ask the background process to mount it");
        Failure::File { path, action, source: io::Error::other(error) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::os::unix::ffi::OsStrExt;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn requests_have_all_arguments() {
        let name = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
        let digits = "5a".repeat(32);
        let hash = format!("--root-hash={digits},{digits}");
        let given = "kiln --device /x --offset 4096 --generation 3 --hash-tree /tree --objects /a --objects /b \
                     --trust-objects -o suid,allow_other,fsname=name --over --cache 1M --read-ahead 2M --prefetch data --subdir usr --idle 60 --preload /list --pin 5M --metrics /m --log /l --threads 3 --uid-map 0:1:2 \
                     --gid-map 3:4:5 --modes show --quiet";
        let words = given.split_whitespace().map(OsStr::new);
        let given = words.chain([OsStr::new(&hash), name(b"/image\xff"), name(b"/dir")]);
        let args = Cli::try_parse_from(given).unwrap_or_else(|error| panic!("{error}")).args;
        assert_eq!(args.image.verified.root_hash.len(), 2);
        let found: Args = serde_json::from_slice(&request(&args).unwrap()).unwrap();
        let expected = Args { via: Some(Via::Fuse), foreground: true, in_background: true, ..args };
        assert_eq!(found, expected);
        let relative = Args { dir: "dir".into(), ..expected };
        let found: Args = serde_json::from_slice(&request(&relative).unwrap()).unwrap();
        assert_eq!(found.dir, std::env::current_dir().unwrap().join("dir"));
    }
}
