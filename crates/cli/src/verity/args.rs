//! Options of commands that write an image, about its hash tree.

use super::salt::{self, Salt};
use crate::exit::Failure;
use kiln_verity::beside;
use kiln_verity::sidecar::Sidecar;
use std::path::{Path, PathBuf};

/// Options about the hash tree of an image that is written.
#[derive(clap::Args)]
pub struct VerityArgs {
    /// Append a hash tree of dm-verity, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    verity: Option<Option<PathBuf>>,

    #[command(flatten)]
    salt: SaltArg,

    /// Write the root hash to FILE
    #[arg(long, value_name = "FILE", requires = "verity")]
    root_hash_file: Option<PathBuf>,

    /// Write root hash and offset to IMAGE.dmverity, for containerd
    #[arg(long, requires = "verity")]
    sidecar: bool,
}

/// The option `--verity-salt`.
#[derive(clap::Args)]
pub struct SaltArg {
    /// Salt of the tree: zero, content, none or HEX; default: zero
    #[arg(long, value_name = "SALT", requires = "verity", value_parser = salt::parse)]
    pub verity_salt: Option<Salt>,
}

/// Place of a hash tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreePlace<'a> {
    /// Behind the image.
    Behind,
    /// In a file of its own.
    File(&'a Path),
}

/// A hash tree that an image is to get.
#[derive(Clone, Copy)]
pub struct TreeWanted<'a> {
    pub place: TreePlace<'a>,
    /// Salt, if it is not the usual one.
    pub salt: Option<&'a Salt>,
    /// File for the root hash, if it is not the usual one.
    pub root_hash_file: Option<&'a Path>,
    /// The file of containerd is wanted.
    pub sidecar: bool,
}

/// Kind of a file that belongs to the hash tree of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BesideKind {
    /// The tree itself.
    Tree,
    /// The root hash.
    RootHash,
    /// The file of containerd.
    Sidecar,
}

impl BesideKind {
    /// Words for a path that another output has.
    pub fn of_its_own(self) -> &'static str {
        match self {
            Self::Tree => "the hash tree needs a file of its own",
            Self::RootHash => "the root hash needs a file of its own",
            Self::Sidecar => "the file for containerd needs to be one of its own",
        }
    }
}

impl<'a> TreeWanted<'a> {
    /// Returns the files to write for the tree of `image`, if that is a file and nothing else is in it. What tells
    /// that there is a tree comes last.
    ///
    /// # Errors
    /// A file for containerd that it could not use.
    pub fn files(&self, image: Option<&Path>) -> Result<Vec<(BesideKind, PathBuf)>, Failure> {
        let mut files = Vec::new();
        if let TreePlace::File(path) = self.place {
            files.push((BesideKind::Tree, path.to_owned()));
        }
        let root_hash = self.root_hash_file.map(Path::to_owned);
        let root_hash = root_hash.or_else(|| image.map(beside::root_hash_path));
        files.extend(root_hash.map(|path| (BesideKind::RootHash, path)));
        if self.sidecar {
            let image = image.filter(|_| self.place == TreePlace::Behind);
            let refuse =
                || Failure::Usage("--sidecar: for an image that is a file, with its tree behind it".to_owned());
            files.push((BesideKind::Sidecar, Sidecar::path_of(image.ok_or_else(refuse)?)));
        }
        Ok(files)
    }
}

/// The option `--require-verity` of commands that write a new image of an old one.
#[derive(Clone, Copy, clap::Args)]
pub struct RequireVerityArg {
    /// Fail if IMAGE has a hash tree, and what is written gets none
    #[arg(long, conflicts_with = "verity")]
    require_verity: bool,
}

impl RequireVerityArg {
    /// Refuses an image that has a tree, which what is written will not have, if that was asked for.
    pub fn refuse(self, image: &Path) -> Result<(), Failure> {
        if self.require_verity { Err(Failure::NotCarried { image: image.to_owned() }) } else { Ok(()) }
    }
}

/// Options of commands that change an image in place, about its hash tree.
#[derive(clap::Args)]
pub struct ChangedVerityArgs {
    #[command(flatten)]
    pub new: VerityArgs,

    /// Drop the hash tree of IMAGE, which no longer fits
    #[arg(long, conflicts_with = "verity")]
    pub drop_verity: bool,
}

impl VerityArgs {
    /// Returns the tree that was asked for.
    pub fn wanted(&self) -> Option<TreeWanted<'_>> {
        let place = self.verity.as_ref()?.as_deref().map_or(TreePlace::Behind, TreePlace::File);
        let (root_hash_file, sidecar) = (self.root_hash_file.as_deref(), self.sidecar);
        Some(TreeWanted { place, salt: self.salt.verity_salt.as_ref(), root_hash_file, sidecar })
    }
}
