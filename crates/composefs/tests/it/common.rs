//! Dumps, trees and images of tests, and `mkcomposefs`.

use kiln_composefs::image::{self, ImageOptions, Version};
use kiln_composefs::{CfsTree, dump};
use kiln_tests::temp::TempDir;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const VERSIONS: [Version; 2] = [Version::V0, Version::V1];

/// Line of a root directory.
pub const ROOT: &str = "/ 0 40755 2 0 0 0 0.0 - - -\n";

/// Reads a dump without looking at warnings.
pub fn read(text: &[u8]) -> CfsTree {
    dump::read(text, &mut |_| {}).unwrap_or_else(|error| panic!("{error}\n{}", text.escape_ascii()))
}

/// Returns the error of a dump that is refused.
pub fn refusal(text: &[u8]) -> String {
    match dump::read(text, &mut |_| {}) {
        Ok(_) => panic!("taken: {}", text[..text.len().min(300)].escape_ascii()),
        Err(error) => error.to_string(),
    }
}

/// Returns a tree's dump.
pub fn write(tree: &CfsTree) -> Vec<u8> {
    let mut text = Vec::new();
    dump::write(tree, &mut text).unwrap();
    text
}

/// Returns a tree's image, whose digest and length are checked.
pub fn image(tree: &CfsTree, version: Version) -> Vec<u8> {
    let options = ImageOptions { min_version: version, ..ImageOptions::default() };
    let mut bytes = Vec::new();
    let summary = image::write(tree, &options, &mut bytes).unwrap();
    assert_eq!(summary.len, bytes.len() as u64);
    let digest = kiln_digest::fsverity::digest(options.algorithm.unwrap(), &bytes);
    assert_eq!(summary.digest, Some(digest));
    bytes
}

/// Returns a tree's image of the lowest version, or the highest one with whiteouts.
pub fn image_between(tree: &CfsTree, (min, max): (u32, u32)) -> Vec<u8> {
    let version = |number| VERSIONS[number as usize];
    let options = ImageOptions { min_version: version(min), max_version: version(max), algorithm: None };
    let mut bytes = Vec::new();
    image::write(tree, &options, &mut bytes).unwrap();
    bytes
}

/// `mkcomposefs` and `composefs-info` of another project.
pub struct Peer {
    temp: TempDir,
    mkcomposefs: OsString,
    info: OsString,
}

/// Dump of a whiteout, of which the programs make different images of version 0.
const WHITEOUT: &str = "/ 0 40755 2 0 0 0 0.0 - - -\n/w 0 20644 1 0 0 0 0.0 - - -\n";

impl Peer {
    /// Looks for composefs 1.0.8: `KILN_MKCOMPOSEFS` in the environment, or else `mkcomposefs` in
    /// PATH, with `composefs-info` beside it.
    pub fn find() -> Option<Self> {
        let mkcomposefs = std::env::var_os("KILN_MKCOMPOSEFS").unwrap_or_else(|| "mkcomposefs".into());
        let info = Path::new(&mkcomposefs).with_file_name("composefs-info").into();
        Self { temp: TempDir::new("composefs").unwrap(), mkcomposefs, info }
            .if_it_makes("24ba4ca8a5b48485654f7ff2", "mkcomposefs 1.0.8")
    }

    /// Looks for composefs-rs 0.9.4: `KILN_CFSCTL` in the environment, or else `cfsctl` in PATH. The
    /// program is all others of composefs, too, if it is called by their names.
    pub fn find_rs() -> Option<Self> {
        let given = std::env::var_os("KILN_CFSCTL").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found =
            given.or_else(|| std::env::split_paths(&path).map(|dir| dir.join("cfsctl")).find(|one| one.exists()));
        let temp = TempDir::new("composefs-rs").unwrap();
        let name = |name: &str| -> OsString {
            let link = temp.join(name);
            std::os::unix::fs::symlink(found.as_deref().unwrap_or(Path::new("cfsctl")), &link).unwrap();
            link.into()
        };
        let (mkcomposefs, info) = (name("mkcomposefs"), name("composefs-info"));
        Self { temp, mkcomposefs, info }.if_it_makes("b830b59bf7ff844b61074110", "cfsctl of composefs-rs 0.9.4")
    }

    /// Returns the program if it makes the image of version 0 with this digest of a whiteout.
    fn if_it_makes(self, digits: &str, name: &str) -> Option<Self> {
        let image = self.image_of_dump(WHITEOUT.as_bytes(), Version::V0);
        let is_it = image.is_ok_and(|image| super::golden::id(&image).starts_with(digits));
        if !is_it {
            kiln_tests::without(name);
        }
        is_it.then_some(self)
    }

    /// Returns the image of a dump, or the message of the refusal.
    pub fn image_of_dump(&self, text: &[u8], version: Version) -> Result<Vec<u8>, String> {
        self.image_of_dump_between(text, (version as u32, 1))
    }

    /// As [`Peer::image_of_dump`], of the lowest version, or the highest one with whiteouts.
    pub fn image_of_dump_between(&self, text: &[u8], (min, max): (u32, u32)) -> Result<Vec<u8>, String> {
        let dump = self.temp.join("dump");
        std::fs::write(&dump, text).unwrap();
        let [min, max] = [format!("--min-version={min}"), format!("--max-version={max}")];
        self.image(&["--from-file".as_ref(), min.as_ref(), max.as_ref(), dump.as_os_str()])
    }

    /// Returns the image of a directory.
    pub fn image_of_dir(&self, dir: &Path, options: &[&str]) -> Result<Vec<u8>, String> {
        let args: Vec<&OsStr> = options.iter().map(OsStr::new).chain([dir.as_os_str()]).collect();
        self.image(&args)
    }

    /// Returns the dump that `composefs-info` makes of an image.
    pub fn dump_of_image(&self, image: &[u8]) -> Result<Vec<u8>, String> {
        let file = self.temp.join("image-to-dump");
        std::fs::write(&file, image).unwrap();
        run(Command::new(&self.info).arg("dump").arg(file))
    }

    fn image(&self, args: &[&OsStr]) -> Result<Vec<u8>, String> {
        let image = self.temp.join("image");
        run(Command::new(&self.mkcomposefs).args(args).arg(&image)).map(|_| std::fs::read(&image).unwrap())
    }
}

/// Returns what a program prints, or the error that it prints.
fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
