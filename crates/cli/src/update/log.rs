//! `kiln log`

use super::lost::damage_of;
use crate::console::report::{Out, note, print_document};
use crate::console::size::Human;
use crate::console::text;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::root_hash::RootHashArgs;
use kiln_read::{Generation, find_generations};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

/// List the generations of an image
///
/// Each update and rollback adds a generation; 0 is the image as it was built. Of a damaged image, the whole
/// generations are listed, and the exit code is 4.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln log backup.erofs
  kiln ls --generation 3 backup.erofs /etc")]
pub struct Args {
    /// Image: a file or a block device
    image: PathBuf,

    #[command(flatten)]
    verified: RootHashArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct GenerationsJson {
    generations: Vec<GenerationJson>,
    /// Why these may not be all.
    damage: Option<String>,
}

#[derive(Serialize)]
struct GenerationJson {
    generation: u32,
    restored: Option<u32>,
    /// Seconds since 1970.
    time: Option<i64>,
    label: String,
    start: u64,
    end: u64,
    added_bytes: u64,
    inodes: u64,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let image = ImageArgs { image: args.image.clone(), verified: args.verified.clone(), ..ImageArgs::default() };
    let found = find_generations(&image.source()?).map_err(|error| image.failure(error))?;
    let damage = found.damage.as_ref().map(ToString::to_string);
    let is_damaged = damage.is_some();
    if args.json {
        let generations = found.whole.iter().map(GenerationJson::new).collect();
        print_document(&GenerationsJson { generations, damage })?;
    } else {
        let mut out = Out::new();
        print(&found.whole, &mut out)?;
        out.finish()?;
    }
    if let Some(damage) = damage_of(&found) {
        note(format_args!("{}: {damage}", args.image.display()));
    }
    Ok(if is_damaged { Exit::ErrorsFound } else { Exit::Done })
}

fn print(list: &[Generation], out: &mut Out) -> io::Result<()> {
    for generation in list {
        let Generation { number, restored, time, label, start, end, .. } = generation;
        let time = time.map_or_else(|| "-".to_owned(), text::time);
        let what = match (number, restored) {
            (0, _) => "as it was built".to_owned(),
            (_, Some(restored)) => format!("the tree of generation {restored} again"),
            _ => text::escape(label.as_bytes()),
        };
        let size = Human(end.saturating_sub(*start)).to_string();
        writeln!(out, "{number:>5}  {time:<20}  {size:>10}  {what}")?;
    }
    Ok(())
}

impl GenerationJson {
    fn new(generation: &Generation) -> Self {
        let Generation { number, restored, time, label, start, end, superblock, .. } = generation;
        Self {
            generation: *number,
            restored: *restored,
            time: *time,
            label: label.clone(),
            start: *start,
            end: *end,
            added_bytes: end.saturating_sub(*start),
            inodes: superblock.inos,
        }
    }
}
