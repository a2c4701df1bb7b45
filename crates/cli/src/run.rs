//! `kiln run`
//!
//! Three processes: this one waits and forwards signals, the *keeper* mounts the image and serves it, and the program
//! runs beside it. The keeper is the init process of a PID namespace, so the kernel kills all that the program has
//! started when the keeper ends; and it ends when this process does, however that happens. The mounts belong to a mount
//! namespace, and end with its last process.

mod changes;
mod keeper;
pub mod namespaces;
mod program;
mod view;
mod waiting;

use crate::console::size;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::mount::owner::OwnerArgs;
use crate::mount::{self, Via};
use crate::process::threads::ThreadsArgs;
use keeper::Keeper;
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use view::{Bind, View};

/// Run a command that sees a mounted image
///
/// The image is mounted for this command alone: other programs do not see it, and it is gone when the command ends,
/// with all processes that the command has left. That needs no privilege, but user namespaces and /dev/fuse. Users
/// other than root own all files of the image that they see. Without a command, your shell runs. The exit code is that
/// of the command, or 128 and the number of the signal that has killed it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln run env.erofs -- /mnt/bin/python3 train.py
  kiln run --at /opt/env env.erofs -- /opt/env/bin/python3 train.py
  kiln run --chroot --overlay tmpfs --bind /home rootfs.erofs -- /bin/sh
  kiln run --overlay changes/ rootfs.erofs -- rm -r /mnt/usr/share/doc")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Command to run, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// Existing directory to mount on
    #[arg(long, value_name = "DIR", default_value = "/mnt")]
    at: PathBuf,

    /// Make the image writable: changes are kept in DIR, or in memory
    #[arg(long, value_name = "DIR|tmpfs")]
    overlay: Option<Overlay>,

    /// Make the image the command's root, with /dev, /proc, /sys and an empty /tmp
    #[arg(long)]
    chroot: bool,

    /// Show SRC at DST of the image, writable unless :ro follows; repeatable
    #[arg(long, value_name = "SRC[:DST][:ro]")]
    bind: Vec<Bind>,

    /// Run the command in this directory; with --chroot, one of the image
    #[arg(long, value_name = "DIR")]
    chdir: Option<PathBuf>,

    /// Let the command see all processes; what it leaves goes on
    #[arg(long)]
    share_pids: bool,

    /// Mount by this driver; default: the kernel's, if it may be used
    #[arg(long, value_enum)]
    via: Option<Via>,

    /// Memory for decoded data; default: a sixteenth of all memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    cache: Option<u64>,

    #[command(flatten)]
    threads: ThreadsArgs,
}

/// Place of the changes to an image.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Overlay {
    /// A tmpfs, which ends with the command.
    Memory,
    /// A directory, which keeps them.
    Directory(PathBuf),
}

impl FromStr for Overlay {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == "tmpfs" { Self::Memory } else { Self::Directory(text.into()) })
    }
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.image.refuse_unfinished()?;
    args.image.require_devices()?;
    let view = View::new(args)?;
    if let Some(Overlay::Directory(dir)) = &args.overlay {
        changes::claim(dir, &args.image)?;
    }
    let program = program::Program::new(args, &view);
    let is_user = namespaces::enter(args.share_pids)?;
    let mount = mount::Args {
        image: args.image.clone(),
        dir: view.dir().to_path_buf(),
        via: via(args, is_user)?,
        cache: args.cache,
        threads: args.threads,
        owner: if is_user { OwnerArgs::me() } else { OwnerArgs::default() },
        quiet: true,
        over: true,
        ..mount::Args::default()
    };
    Keeper { mount, view, program, is_user, has_own_pids: !args.share_pids }.start()
}

/// Returns the driver to mount by: users other than root have FUSE only.
fn via(args: &Args, is_user: bool) -> Result<Option<Via>, Failure> {
    match (args.via, is_user) {
        (Some(Via::Kernel), true) => {
            Err(Failure::Usage("--via kernel: its driver mounts images for root only; FUSE does for all users".into()))
        }
        (_, true) => Ok(Some(Via::Fuse)),
        (via, false) => Ok(via),
    }
}
