//! `kiln verity show`

use super::{erofs, failure, open};
use crate::console::report::{Out, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use kiln_verity::{FoundTree, Location, Shape, find_tree, is_tree, read_superblock};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

/// Show the parameters of a hash tree
///
/// They are read from its superblock, and nothing is verified. Offset and block size are what `veritysetup` asks for.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln verity show image.erofs
  kiln verity show --json image.verity")]
pub struct Args {
    /// Image with a tree behind or beside it, or the file of a tree
    file: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct TreeJson {
    tree: String,
    hash_offset: u64,
    tree_bytes: u64,
    uuid: String,
    algorithm: &'static str,
    data_block_size: u32,
    hash_block_size: u32,
    data_blocks: u64,
    data_bytes: u64,
    levels: usize,
    salt: String,
    /// Root hash that a file beside the image names.
    root_hash: Option<String>,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let source = open(&args.file)?;
    let fail = |error| failure(&args.file, error);
    let found = if is_tree(&source).map_err(fail)? {
        Some(FoundTree { path: args.file.clone(), location: Location::Beside { hash_off: 0 }, sidecar: None })
    } else {
        find_tree(&args.file, &source, erofs(&args.file).map(|erofs| erofs.end)).map_err(fail)?
    };
    let Some(found) = found else { return Err(Failure::NoTree { image: args.file.clone() }) };
    let superblock = read_superblock(&open(&found.path)?, found.location.hash_off()).map_err(fail)?;
    let parameters = &superblock.parameters;
    let shape = Shape::new(parameters).map_err(|error| fail(error.into()))?;
    let mut salt = String::new();
    for byte in &parameters.salt {
        let _ = write!(salt, "{byte:02x}"); // a string takes everything
    }
    let tree = TreeJson {
        tree: found.path.display().to_string(),
        hash_offset: found.location.hash_off(),
        tree_bytes: shape.tree_len(),
        uuid: superblock.uuid.to_string(),
        algorithm: parameters.algorithm.name(),
        data_block_size: parameters.data_block_size,
        hash_block_size: parameters.hash_block_size,
        data_blocks: parameters.data_blocks,
        data_bytes: parameters.data_len(),
        levels: shape.levels(),
        salt,
        root_hash: found.sidecar.map(|sidecar| sidecar.root_hash.to_string()),
    };
    if args.json {
        print_document(&tree)?;
        return Ok(Exit::Done);
    }
    let mut out = Out::new();
    writeln!(out, "tree:            {}", tree.tree)?;
    writeln!(out, "hash offset:     {}", tree.hash_offset)?;
    writeln!(out, "UUID:            {}", tree.uuid)?;
    writeln!(out, "algorithm:       {}", tree.algorithm)?;
    writeln!(
        out,
        "data blocks:     {} of {} bytes ({})",
        tree.data_blocks,
        tree.data_block_size,
        Human(tree.data_bytes)
    )?;
    let blocks = format_args!("{} in blocks of {} bytes", Human(tree.tree_bytes), tree.hash_block_size);
    writeln!(out, "hash blocks:     {blocks}, {} levels", tree.levels)?;
    writeln!(out, "salt:            {}", if tree.salt.is_empty() { "none" } else { &tree.salt })?;
    if let Some(root_hash) = &tree.root_hash {
        writeln!(out, "root hash:       {root_hash} (from the file beside the image)")?;
    }
    out.finish()?;
    Ok(Exit::Done)
}
