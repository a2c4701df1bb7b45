//! `kiln mount`

mod background;
pub mod hotlist;
mod lists;
mod log;
pub mod options;
mod owner;
pub mod preload;
pub mod record;
pub mod stats;
pub mod umount;

use crate::console::report::note;
use crate::console::size::{self, Human};
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::process::signals::Signals;
use crate::process::threads::ThreadsArgs;
use background::Ready;
use kiln_mount::fuse::{self, FuseOptions, Hot, ImageSources, Modes, Prefetch};
use kiln_mount::kernel::{self, KernelVia};
use kiln_mount::{Attributes, MountError, Preload, check_free, default_preload};
use kiln_read::hotlist::HotList;
use log::{Notes, Target};
use options::{MountOption, MountOptions};
use owner::OwnerArgs;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// FUSE threads on small machines: some wait for the disk while others decode.
const FUSE_THREADS_MIN: usize = 4;

/// Mount an image
///
/// By the kernel's own driver where it lets us, else by FUSE, which needs no privilege; standard error tells which. A
/// FUSE server in the foreground is ended by unmounting or by a signal, and exits with 0 then. Every mount is read-only,
/// and without -o suid,dev set-user-id bits and device files mean nothing in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[command(after_help = "\
Examples:
  kiln mount image.erofs /mnt
  kiln mount -o suid,dev rootfs.erofs /mnt
  kiln mount --owner me backup.erofs ~/mnt
  kiln mount --via fuse --foreground image.erofs ~/mnt
  kiln mount --preload boot.list --pin 64M image.erofs /mnt
  kiln mount --via fuse --metrics /var/lib/node_exporter/kiln.prom image.erofs /mnt")]
pub struct Args {
    #[command(flatten)]
    pub image: ImageArgs,

    /// Where to mount it: an existing directory
    #[serde(with = "crate::process::request::absolute_paths")]
    pub dir: PathBuf,

    /// Who serves it; the default is the kernel, or FUSE where the kernel refuses
    #[arg(long, value_enum)]
    pub via: Option<Via>,

    /// Mount options, as mount(8) has them: ro, [no]suid, [no]dev (default: nosuid,nodev; others need root), [no]exec,
    /// [no]symfollow, noatime; for FUSE: allow_other, default_permissions, fsname=NAME, pin=SIZE
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    #[serde(with = "crate::process::request::texts")]
    pub options: Vec<MountOption>,

    /// Mount over a directory that is not empty, or where an image is mounted already
    #[arg(long)]
    pub over: bool,

    /// FUSE: stay in the foreground until unmounted or interrupted
    #[arg(long)]
    pub foreground: bool,

    /// FUSE: data to keep in memory; the default is a sixteenth of the memory, 64M to 1G. At most half as much again, 12M in any
    /// case, is taken while data is decoded
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache: Option<u64>,

    /// FUSE: how far the kernel reads ahead of sequential readers; needs root [default: 1M with root, else the kernel's, 128K]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub read_ahead: Option<u64>,

    /// FUSE: what the kernel gets before it asks: file contents and names (`all`), contents only (`data`), or nothing (`off`)
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub prefetch: PrefetchArg,

    /// Read these files into the system's cache once mounted: a hot list, whose ranges come in its order, or paths in the image,
    /// one a line. Half of the memory at most
    #[arg(long, value_name = "LIST")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub preload: Option<PathBuf>,

    /// FUSE: decode what --preload names once mounted, in its order, and keep so much of it in memory beside --cache, whatever else is
    /// read
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "preload")]
    pub pin: Option<u64>,

    /// FUSE: keep counters in this file, for Prometheus; `kiln stats` shows them, too
    #[arg(long, value_name = "FILE")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub metrics: Option<PathBuf>,

    /// FUSE: log errors of reads to the end of this file, at most ten a minute; the default is the system's log
    /// (syslog), with --foreground standard error
    #[arg(long, value_name = "FILE")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub log: Option<PathBuf>,

    #[command(flatten)]
    pub threads: ThreadsArgs,

    #[command(flatten)]
    pub owner: OwnerArgs,

    /// FUSE: what modes and ACLs in the image mean; the default is `enforce` with root or --allow-other, and `show` for
    /// a user alone, who reads everything in the image then
    #[arg(long, value_enum)]
    pub modes: Option<ModesArg>,

    /// FUSE: let other users in
    #[arg(long)]
    pub allow_other: bool,

    /// FUSE: what the mount table shows as the source; the default is the image
    #[arg(long, value_name = "NAME")]
    pub fsname: Option<String>,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

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
pub const SERVE: &str = "serve-mount";

/// Runs the background process: serves the mount that standard input asks for, a value that [`run`] has sent.
pub fn run_in_background() -> Result<Exit, Failure> {
    let args: Args = serde_json::from_reader(io::stdin().lock())
        .map_err(|error| Failure::Usage(format!("{SERVE} is for kiln mount alone: {error}")))?;
    run(&args)
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let preload = args.preload.as_deref().map(lists::hot_or_plain_file).transpose()?;
    let options = MountOptions::of(&args.options);
    let via = via(args, &options)?;
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
    if via != Some(Via::Fuse) {
        let ImageArgs { image, device, offset, .. } = &args.image;
        match kernel::mount_with(image, device, *offset, &args.dir, options.attributes) {
            Ok(via) => {
                let how = match via {
                    KernelVia::File => "the kernel".into(),
                    KernelVia::Loop(device) => format!("the kernel, through {}", device.display()),
                };
                if let Some(list) = &preload {
                    warm_up(args, list);
                }
                return Ok(tell(args, &how, options.attributes));
            }
            Err(error) if via.is_none() && error.falls_back_to_fuse() => {
                say(args, format_args!("{error}; trying FUSE"));
            }
            Err(error) => return Err(Failure::Mount(error)),
        }
    }
    if args.foreground {
        return serve(args, options, preload);
    }
    background::start(&[SERVE], &request(args)?)?;
    Ok(tell(args, "FUSE", options.attributes))
}

/// The way that was asked for: by name, or by what only one has.
fn via(args: &Args, options: &MountOptions) -> Result<Option<Via>, Failure> {
    if options.pin.is_some() && args.preload.is_none() {
        return Err(Failure::Usage("-o pin: --preload names the list of what is pinned".into()));
    }
    if args.image.generation.is_some() {
        return match args.via {
            Some(Via::Kernel) => Err(Failure::Usage(
                "--generation: the kernel's driver shows the last generation only; FUSE shows any of them".into(),
            )),
            _ => Ok(Some(Via::Fuse)),
        };
    }
    let is_pinned = args.pin.or(options.pin).is_some();
    match (args.via, args.owner.given()) {
        (Some(Via::Kernel), Some(option)) => Err(Failure::Usage(format!(
            "{option}: the kernel's driver shows owners as the image has them; FUSE need not"
        ))),
        (Some(Via::Kernel), None) if is_pinned => {
            Err(Failure::Usage("--pin: the kernel's driver keeps no decoded data but its page cache; FUSE does".into()))
        }
        (None, Some(_)) => Ok(Some(Via::Fuse)),
        (None, None) if is_pinned => Ok(Some(Via::Fuse)),
        (via, _) => Ok(via),
    }
}

/// Say something that is no error.
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

/// Serve by FUSE until the end. A signal is how this ends in an orderly way, so it is no failure.
fn serve(args: &Args, list: MountOptions, preload: Option<HotList>) -> Result<Exit, Failure> {
    kiln_mount::return_freed_memory();
    kiln_mount::load_program();
    let mut ready = if args.in_background { Some(Ready::detach()?) } else { None };
    let notes = if args.quiet { Notes::LeftOut } else { Notes::Logged };
    log::start(log_target(args)?, notes, &args.image.image);
    let signals = Signals::catch()?;
    let ImageArgs { image, device, offset, generation, .. } = &args.image;
    let sources = ImageSources::from_paths(image, device).with_offset(*offset).with_generation(*generation);
    let pin = list.pin;
    let options = FuseOptions {
        threads: args.threads.given().map_or(args.threads.count().max(FUSE_THREADS_MIN), usize::from),
        cache_bytes: args.cache.unwrap_or_else(fuse::default_cache),
        allow_other: args.allow_other || list.allow_other,
        modes: match args.modes {
            Some(ModesArg::Enforce) => Modes::Enforced,
            None if list.default_permissions => Modes::Enforced,
            Some(ModesArg::Show) => Modes::Shown,
            None => Modes::AmongUsers,
        },
        owners: args.owner.owners()?,
        attributes: list.attributes,
        fsname: args.fsname.clone().or(list.fsname).unwrap_or_else(|| args.image.image.display().to_string()),
        read_ahead: args.read_ahead,
        prefetch: match args.prefetch {
            PrefetchArg::Off => Prefetch::Off,
            PrefetchArg::Data => Prefetch::Data,
            PrefetchArg::All => Prefetch::DataAndNames,
        },
        hot: preload.map(|list| Hot {
            list,
            preload_bytes: default_preload(),
            pin_bytes: args.pin.or(pin).unwrap_or_default(),
        }),
        metrics: args.metrics.clone(),
    };
    let stop = signals.pipe()?;
    let mut on_ready = || match ready.take() {
        Some(ready) => ready.report(),
        None => drop(tell(args, "FUSE", list.attributes)),
    };
    let served = fuse::serve(sources, &args.dir, &options, stop.as_fd(), &mut on_ready);
    log::end();
    served.map_err(|error| match error {
        MountError::Image { source, .. } => args.image.failure(*source),
        error => Failure::Mount(error),
    })?;
    Ok(Exit::Done)
}

/// In the background, standard error is gone once the mount answers.
fn log_target(args: &Args) -> Result<Target, Failure> {
    match &args.log {
        Some(path) => Target::file(path),
        None if args.in_background => Ok(Target::Syslog),
        None => Ok(Target::Stderr),
    }
}

/// Preload a mount by the kernel's driver, and say what could not be. FUSE servers do that themselves.
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
        let name = |bytes: &'static [u8]| std::ffi::OsStr::from_bytes(bytes);
        let given = "kiln --device /x --offset 4096 --generation 3 -o suid,pin=3 --over --cache 1M --read-ahead 2M \
                     --prefetch data --preload /list --pin 5M --metrics /m --log /l --threads 3 --uid-map 0:1:2 \
                     --gid-map 3:4:5 --modes show --allow-other --fsname name --quiet";
        let given = given.split_whitespace().map(name_of).chain([name(b"/image\xff"), name(b"/dir")]);
        let args = Cli::try_parse_from(given).unwrap_or_else(|error| panic!("{error}")).args;
        let found: Args = serde_json::from_slice(&request(&args).unwrap()).unwrap();
        let expected = Args { via: Some(Via::Fuse), foreground: true, in_background: true, ..args };
        assert_eq!(found, expected);
        let relative = Args { dir: "dir".into(), ..expected };
        let found: Args = serde_json::from_slice(&request(&relative).unwrap()).unwrap();
        assert_eq!(found.dir, std::env::current_dir().unwrap().join("dir"));
    }

    fn name_of(text: &'static str) -> &'static std::ffi::OsStr {
        text.as_ref()
    }
}
