//! `kiln composefs mount`

use crate::console::report::note;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::mount::options::{MountOption, MountOptions};
use crate::mount::{self, Via};
use crate::objects::ObjectsArgs;
use kiln_mount::kernel::KernelVia;
use kiln_mount::kernel::composefs::{ComposefsMount, KernelVerity};
use kiln_mount::{MountError, check_free};
use kiln_read::{Image, ImageOptions};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf, absolute};

/// Objects of an image that are looked at to find out if the kernel verifies them.
const LOOKED_AT: usize = 16;

/// Mount a composefs image with its objects
///
/// The kernel mounts it if you may use that: EROFS has names and metadata, and overlayfs takes contents from the
/// objects, without comparing them unless --verity is given. Otherwise FUSE does, which compares each object with its
/// digest before it is read. kiln umount and umount(8) end either.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln composefs mount --objects objects/ rootfs.cfs /mnt
  kiln composefs mount --via fuse --objects objects/ rootfs.cfs ~/mnt")]
pub struct Args {
    /// composefs image
    image: PathBuf,

    /// Existing directory to mount on
    dir: PathBuf,

    #[command(flatten)]
    objects: ObjectsArgs,

    /// Read only objects whose digests are verified: by the kernel they need fs-verity
    #[arg(long)]
    verity: bool,

    /// Mount by this driver; default: the kernel's, if it may be used
    #[arg(long, value_enum)]
    via: Option<Via>,

    /// Mount options, as in mount(8) (see `kiln help mounting`)
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    options: Vec<MountOption>,

    /// Mount over a directory with files, or over another mount
    #[arg(long)]
    over: bool,

    /// Print nothing but errors and skipped inputs
    #[arg(short, long)]
    quiet: bool,

    /// Stay in the foreground until unmounted or interrupted
    #[arg(long, help_heading = crate::headings::FUSE)]
    foreground: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.objects.dirs.is_empty() {
        return Err(Failure::Usage("--objects: name the directory with the objects of the image".into()));
    }
    if args.verity && args.objects.trust_objects {
        return Err(Failure::Usage("--verity: --trust-objects is the opposite".into()));
    }
    if !args.over {
        check_free(&args.dir).map_err(Failure::Mount)?;
    }
    match args.via {
        Some(Via::Fuse) => by_fuse(args),
        via => match by_kernel(args) {
            Err(Failure::Mount(error)) if via.is_none() && error.falls_back_to_fuse() => {
                if !args.quiet {
                    note(format_args!("{error}; trying FUSE"));
                }
                by_fuse(args)
            }
            done => done,
        },
    }
}

fn by_fuse(args: &Args) -> Result<Exit, Failure> {
    let image = ImageArgs { image: args.image.clone(), objects: args.objects.clone(), ..ImageArgs::default() };
    mount::run(&mount::Args {
        image,
        dir: args.dir.clone(),
        via: Some(Via::Fuse),
        options: args.options.clone(),
        over: true,
        quiet: args.quiet,
        foreground: args.foreground,
        ..mount::Args::default()
    })
}

fn by_kernel(args: &Args) -> Result<Exit, Failure> {
    let attributes = MountOptions::of(&args.options).attributes;
    let mount = ComposefsMount {
        image: args.image.clone(),
        // The table of mounts tells everybody.
        objects: args.objects.dirs.objects.iter().map(|dir| absolute(dir).unwrap_or_else(|_| dir.clone())).collect(),
        verity: if args.verity { KernelVerity::Required } else { KernelVerity::Off },
        attributes,
        ..ComposefsMount::default()
    };
    if args.verity && !is_enforced(&mount)? {
        return Err(Failure::Mount(MountError::Unavailable {
            path: args.image.clone(),
            reason: "--verity: its objects have no fs-verity, so reading them would fail; FUSE (--via fuse) verifies \
                     objects without it"
                .into(),
        }));
    }
    let via = mount.mount(&args.dir).map_err(Failure::Mount)?;
    let looked_at = some_objects(&mount.image)?;
    let is_missing = |path: &&PathBuf| !mount.objects.iter().any(|dir| dir.join(path).exists());
    let missing = looked_at.iter().filter(is_missing).count();
    if missing > 0 {
        let (image, count) = (args.image.display(), looked_at.len());
        note(format_args!(
            "{image}: of {count} objects that were looked at, {missing} are in no directory of --objects: their files \
             cannot be read"
        ));
    }
    if !args.quiet {
        let how = match via {
            KernelVia::File => String::new(),
            KernelVia::Loop(device) => format!(", through {}", device.display()),
        };
        let verified = if args.verity { "verifies" } else { "does not verify" };
        let (image, dir) = (args.image.display(), args.dir.display());
        note(format_args!("{image} mounted on {dir} by the kernel{how}, which {verified} its objects: {attributes}"));
    }
    Ok(Exit::Done)
}

/// Returns true if the kernel enforces the digests of an image's objects, as far as some of them tell. An image without
/// objects needs nothing.
pub fn is_enforced(mount: &ComposefsMount) -> Result<bool, Failure> {
    let objects = some_objects(&mount.image)?;
    Ok(objects.is_empty() || mount.enforced_digest(&objects).map_err(Failure::Mount)?.is_some())
}

/// Returns the paths of some objects of an image.
fn some_objects(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::of_image(path, 0, crate::image::DEVICE_OPTION, error);
    let image = Image::open_path(path, &[], &ImageOptions::default()).map_err(failed)?;
    let root = image.inode(image.root_nid()).map_err(failed)?;
    let mut found = Vec::new();
    for entry in image.walk(&root, b"/") {
        let entry = entry.map_err(failed)?;
        let Some(path) = image.composefs_object(&entry.inode).map_err(failed)?.and_then(|object| object.path) else {
            continue;
        };
        let start = path.iter().take_while(|&&byte| byte == b'/').count();
        found.push(OsStr::from_bytes(&path[start..]).into());
        if found.len() == LOOKED_AT {
            break;
        }
    }
    Ok(found)
}
