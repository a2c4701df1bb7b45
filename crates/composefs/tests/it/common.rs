//! Dumps, trees and images of tests, and `mkcomposefs`.

use kiln_composefs::image::{self, ImageOptions, Version};
use kiln_composefs::{CfsTree, dump};
use kiln_tests::temp::TempDir;
use std::ffi::{OsStr, OsString};
use std::path::Path;
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

/// `mkcomposefs` of composefs 1.0.8, if it is installed.
pub struct Peer {
    temp: TempDir,
}

impl Peer {
    /// Looks for `KILN_MKCOMPOSEFS` in the environment, or else for `mkcomposefs` in PATH. That of
    /// composefs-rs makes other images of whiteouts, and does not count.
    pub fn find() -> Option<Self> {
        let peer = Self { temp: TempDir::new("composefs").unwrap() };
        let whiteout = format!("{ROOT}/w 0 20644 1 0 0 0 0.0 - - -\n");
        let image = peer.image_of_dump(whiteout.as_bytes(), Version::V0);
        let is_it = image.is_ok_and(|image| super::golden::id(&image).starts_with("24ba4ca8a5b48485654f7ff2"));
        if !is_it {
            kiln_tests::without("mkcomposefs 1.0.8");
        }
        is_it.then_some(peer)
    }

    /// Returns the image of a dump, or the message of the refusal.
    pub fn image_of_dump(&self, text: &[u8], version: Version) -> Result<Vec<u8>, String> {
        let dump = self.temp.join("dump");
        std::fs::write(&dump, text).unwrap();
        let min = format!("--min-version={}", version as u32);
        let args = ["--from-file".as_ref(), min.as_ref(), "--max-version=1".as_ref(), dump.as_os_str()];
        self.image(&args)
    }

    /// Returns the image of a directory.
    pub fn image_of_dir(&self, dir: &Path, options: &[&str]) -> Result<Vec<u8>, String> {
        let args: Vec<&OsStr> = options.iter().map(OsStr::new).chain([dir.as_os_str()]).collect();
        self.image(&args)
    }

    /// Returns the dump that `composefs-info` beside `mkcomposefs` makes of an image.
    pub fn dump_of_image(&self, image: &[u8]) -> Result<Vec<u8>, String> {
        let file = self.temp.join("image-to-dump");
        std::fs::write(&file, image).unwrap();
        let program = Path::new(&program()).with_file_name("composefs-info");
        run(Command::new(program).arg("dump").arg(file))
    }

    fn image(&self, args: &[&OsStr]) -> Result<Vec<u8>, String> {
        let image = self.temp.join("image");
        run(Command::new(program()).args(args).arg(&image)).map(|_| std::fs::read(&image).unwrap())
    }
}

fn program() -> OsString {
    std::env::var_os("KILN_MKCOMPOSEFS").unwrap_or_else(|| "mkcomposefs".into())
}

/// Returns what a program prints, or the error that it prints.
fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
