//! The kernel's driver, tried with an image of each algorithm.

use super::Finding;
use super::system::has_filesystem;
use kiln_mount::MountError;
use kiln_mount::kernel::{KernelVia, mount_detached};
use kilnfs::Packer;
use kilnfs::builder::{Choices, Compression};
use kilnfs::codec::Method;
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

/// Methods and the first kernel that has each.
const METHODS: [(Method, &str, &str); 4] = [
    (Method::Lz4, "LZ4", "Linux 5.4 with CONFIG_EROFS_FS_ZIP"),
    (Method::Lzma, "LZMA", "Linux 5.16 with CONFIG_EROFS_FS_ZIP_LZMA"),
    (Method::Deflate, "DEFLATE", "Linux 6.6 with CONFIG_EROFS_FS_ZIP_DEFLATE"),
    (Method::Zstd, "Zstandard", "Linux 6.10 with CONFIG_EROFS_FS_ZIP_ZSTD"),
];

const NAME: &str = "EROFS by the kernel";

/// Returns what the kernel's driver can do.
pub fn findings() -> Vec<Finding> {
    if !has_filesystem("erofs") {
        return vec![Finding::no(
            NAME,
            "",
            "modprobe erofs; a kernel with CONFIG_EROFS_FS (Linux 5.4); kiln mount uses FUSE without",
        )];
    }
    if !geteuid().is_root() {
        return vec![Finding::unknown(NAME, "only root may mount: FUSE does it for you", "")];
    }
    let trial = match Trial::new() {
        Ok(trial) => trial,
        Err(error) => return vec![Finding::unknown(NAME, format!("no image to try: {error}"), "")],
    };
    let mut found = Vec::new();
    let mut via = None;
    for (method, name, needs) in METHODS {
        found.push(match trial.mount(method) {
            Ok(by) => {
                via = via.or(Some(by));
                Finding::yes(format!("EROFS with {name}"), "mounted and read")
            }
            Err(Trouble::Mount(error @ MountError::NotPermitted { .. })) => {
                return vec![Finding::no(NAME, error.to_string(), "a container must permit mounts; FUSE may do")];
            }
            Err(trouble) => Finding::no(format!("EROFS with {name}"), trouble.to_string(), needs),
        });
    }
    found.extend(via.map(|via| match via {
        KernelVia::File => Finding::yes("EROFS without loop devices", "files as they are (Linux 6.12)"),
        KernelVia::Loop(_) => Finding::no(
            "EROFS without loop devices",
            "loop devices are used",
            "Linux 6.12 with CONFIG_EROFS_FS_BACKED_BY_FILE, and an image that is not on overlayfs or tmpfs",
        ),
    }));
    found
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Mount(MountError),
    #[error("no image: {0}")]
    Pack(kilnfs::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the kernel reads other bytes")]
    Different,
}

/// A directory of one file, to make images of. It goes with this value.
struct Trial {
    place: PathBuf,
    text: Vec<u8>,
}

impl Trial {
    fn new() -> io::Result<Self> {
        let place = std::env::temp_dir().join(format!("kiln-doctor-{}", std::process::id()));
        fs::create_dir(&place)?;
        let text = (0..20_000_u32).flat_map(|number| format!("{number} ").into_bytes()).collect();
        let trial = Self { place, text };
        fs::create_dir(trial.source())?;
        fs::write(trial.source().join("text"), &trial.text)?;
        Ok(trial)
    }

    fn source(&self) -> PathBuf {
        self.place.join("source")
    }

    /// Mounts an image of the directory, and compares the file.
    fn mount(&self, method: Method) -> Result<KernelVia, Trouble> {
        let image = self.place.join(format!("{method:?}.erofs"));
        let choices = Choices { compression: Some(Compression::By(method.into())), ..Choices::default() };
        Packer::new().choices(choices).pack(self.source(), &image).map_err(Trouble::Pack)?;
        let (mount, via) = mount_detached(&image).map_err(Trouble::Mount)?;
        let mut read = Vec::new();
        let file = openat(&mount, "text", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from)?;
        File::from(file).read_to_end(&mut read)?;
        if read == self.text { Ok(via) } else { Err(Trouble::Different) }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.place);
    }
}
