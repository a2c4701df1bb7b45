//! `kiln mount`

mod background;
mod memory;

use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::report::note;
use crate::signals::Signals;
use crate::size;
use crate::threads::ThreadsArgs;
use background::Ready;
use kiln_mount::fuse::{self, FuseOptions};
use kiln_mount::kernel::{self, KernelVia};
use kiln_read::{OpenOptions, Reader};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

/// FUSE threads on small machines: some wait for the disk while others decode.
const FUSE_THREADS_MIN: usize = 4;

/// Mount an image
///
/// By the kernel's own driver where it lets us, else by FUSE, which needs no privilege; standard error tells which. A
/// FUSE server in the foreground is ended by unmounting or by a signal, and exits with 0 then.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln mount image.erofs /mnt
  kiln mount --via fuse --foreground image.erofs ~/mnt
  kiln mount --via fuse --metrics /var/lib/node_exporter/kiln.prom image.erofs /mnt")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Where to mount it: an existing directory
    dir: PathBuf,

    /// Who serves it; the default is the kernel, or FUSE where the kernel refuses
    #[arg(long, value_enum)]
    via: Option<Via>,

    /// FUSE: stay in the foreground until unmounted or interrupted
    #[arg(long)]
    foreground: bool,

    /// FUSE: decoded data to keep in memory; the default is a sixteenth of the memory, 64M to 1G
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    cache: Option<u64>,

    /// FUSE: how far the kernel reads ahead of sequential readers; needs root [default: 1M with root, else the kernel's, 128K]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    read_ahead: Option<u64>,

    /// Read these files into the system's cache once mounted: their paths in the image, one a line
    #[arg(long, value_name = "LIST")]
    preload: Option<PathBuf>,

    /// FUSE: keep counters in this file, for Prometheus; `kiln stats` shows them, too
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,

    #[command(flatten)]
    threads: ThreadsArgs,

    /// FUSE: let other users in
    #[arg(long)]
    allow_other: bool,

    /// FUSE: what the mount table shows as the source; the default is the image
    #[arg(long, value_name = "NAME")]
    fsname: Option<String>,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// This is the background process that the foreground one has started
    #[arg(long, hide = true, requires = "foreground")]
    in_background: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Via {
    Kernel,
    Fuse,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let preload = read_list(args)?;
    if args.via != Some(Via::Fuse) {
        match kernel::mount(&args.image.image, &args.image.device, args.image.offset, &args.dir) {
            Ok(via) => {
                let how = match via {
                    KernelVia::File => "the kernel".into(),
                    KernelVia::Loop(device) => format!("the kernel, through {}", device.display()),
                };
                if !preload.is_empty() {
                    warm_up(&args.dir, &preload, &AtomicBool::new(false));
                }
                return Ok(tell(args, &how));
            }
            Err(error) if args.via.is_none() && error.falls_back_to_fuse() => {
                note(format_args!("{error}; trying FUSE"));
            }
            Err(error) => return Err(Failure::Mount(error)),
        }
    }
    if args.foreground {
        return serve(args, preload);
    }
    background::start(&arguments(args)?)?;
    Ok(tell(args, "FUSE"))
}

fn tell(args: &Args, how: &str) -> Exit {
    if !args.quiet {
        note(format_args!("{} mounted on {} by {how}", args.image.image.display(), args.dir.display()));
    }
    Exit::Done
}

/// Serve by FUSE until the end. A signal is how this ends in an orderly way, so it is no failure.
fn serve(args: &Args, preload: Vec<PathBuf>) -> Result<Exit, Failure> {
    let mut ready = if args.in_background { Some(Ready::detach()?) } else { None };
    let signals = Signals::catch()?;
    let image = args.image.open_with(&OpenOptions {
        cache_bytes: args.cache.unwrap_or_else(memory::default_cache),
        reader: Reader::Kernel,
        ..OpenOptions::default()
    })?;
    let options = FuseOptions {
        threads: args.threads.given().map_or(args.threads.count().max(FUSE_THREADS_MIN), usize::from),
        allow_other: args.allow_other,
        fsname: args.fsname.clone().unwrap_or_else(|| args.image.image.display().to_string()),
        read_ahead: args.read_ahead,
        metrics: args.metrics.clone(),
    };
    let stop = signals.pipe()?;
    let mut preload = Some(preload);
    let mut on_ready = || {
        match ready.take() {
            Some(ready) => ready.report(),
            None => drop(tell(args, "FUSE")),
        }
        // Through the mount, as everybody reads: it cannot be done before, and must not keep the server from ending.
        if let Some(preload) = preload.take().filter(|list| !list.is_empty()) {
            let (dir, stop) = (args.dir.clone(), Arc::clone(signals.stop()));
            thread::spawn(move || warm_up(&dir, &preload, &stop));
        }
    };
    fuse::serve(image, &args.dir, &options, stop.as_fd(), &mut on_ready).map_err(Failure::Mount)?;
    Ok(Exit::Done)
}

/// The paths in the file of `--preload`.
fn read_list(args: &Args) -> Result<Vec<PathBuf>, Failure> {
    let Some(path) = &args.preload else { return Ok(Vec::new()) };
    let text = fs::read(path).map_err(|source| Failure::File { path: path.clone(), action: "read", source })?;
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(|line| PathBuf::from(OsStr::from_bytes(line))).collect())
}

/// Preload, and say what could not be.
fn warm_up(dir: &Path, list: &[PathBuf], stop: &AtomicBool) {
    for (path, error) in kiln_mount::preload(dir, list, stop) {
        note(format_args!("{}: not preloaded: {error}", path.display()));
    }
}

/// The same order for the background process, which works elsewhere: paths are absolute.
fn arguments(args: &Args) -> Result<Vec<OsString>, Failure> {
    let absolute = |path: &Path| {
        let fail = |source| Failure::File { path: path.to_owned(), action: "make the path absolute", source };
        std::path::absolute(path).map_err(fail)
    };
    let mut list: Vec<OsString> = ["mount", "--via=fuse", "--foreground", "--in-background"].map(Into::into).to_vec();
    list.extend(args.cache.map(|bytes| format!("--cache={bytes}").into()));
    list.extend(args.read_ahead.map(|bytes| format!("--read-ahead={bytes}").into()));
    list.push(format!("--offset={}", args.image.offset).into());
    list.extend(args.threads.given().map(|count| format!("--threads={count}").into()));
    list.extend(args.allow_other.then(|| "--allow-other".into()));
    list.extend(args.fsname.as_ref().map(|name| format!("--fsname={name}").into()));
    let files = args.image.device.iter().map(|path| ("--device", path));
    let files = files.chain(args.preload.iter().map(|path| ("--preload", path)));
    for (option, path) in files.chain(args.metrics.iter().map(|path| ("--metrics", path))) {
        list.extend([option.into(), absolute(path)?.into()]);
    }
    list.extend(["--".into(), absolute(&args.image.image)?.into(), absolute(&args.dir)?.into()]);
    Ok(list)
}
