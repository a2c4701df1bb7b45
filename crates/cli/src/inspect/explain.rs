//! `kiln explain`

mod picture;
mod range;

use crate::console::document::Document;
use crate::console::report::{Bytes, Out, Streamed, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::inspect::stat::PlaceJson;
use kiln_read::{Cost, Decoding, Explanation, FollowLast, ReadError, ReadPiece};
use serde::{Serialize, Serializer};
use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Show the cost of reading a file
///
/// Shows blocks fetched and bytes decoded by a cold read, for which no data is in memory. Only metadata is read.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln explain image.erofs usr/bin/env
  kiln explain image.erofs var/db/index 1M-1028k
  kiln explain --picture read.svg image.erofs usr/bin/env
  kiln explain --json image.erofs var/db/index 64k+4096 | jq .fetch_amplification")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// File to explain, from the root of the image
    path: OsString,

    /// Bytes from START to END, without END, or COUNT bytes from START on; default: all
    #[arg(value_name = "START-END | START+COUNT", value_parser = range::parse)]
    range: Option<Range<u64>>,

    /// Draw the read as FILE, an SVG picture
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    picture: Option<PathBuf>,

    /// Replace existing output, or write to a block device
    #[arg(long, requires = "picture")]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let name = args.image.image.display();
    if args.image.is_view()? {
        return Err(Failure::Usage(format!("{name}: no EROFS image: only of those the cost of a read is known")));
    }
    let image = args.image.open_metadata()?;
    let (inode, path) = args.image.resolve(&image, &args.path, FollowLast::Follow)?;
    let size = inode.meta.size;
    if let Some(range) = args.range.as_ref().filter(|range| range.start >= size.max(1)) {
        let path = args.path.display();
        return Err(Failure::Usage(format!("{name}: {path}: it has {size} bytes, and no byte {}", range.start)));
    }
    let failure = |error: ReadError| args.image.failure(error.at_path(args.path.as_bytes()));
    let wanted = args.range.clone().unwrap_or(0..inode.meta.size);
    let explanation = image.explain(&inode, wanted).map_err(failure)?;
    if let Some(picture) = &args.picture {
        return draw(args, picture, &path, explanation, failure);
    }
    match args.json {
        true => print_json(&path, explanation, failure)?,
        false => print(explanation, image.superblock().block_bits.len(), failure)?,
    }
    Ok(Exit::Done)
}

/// Writes a picture of a read.
fn draw(
    args: &Args,
    picture: &Path,
    path: &[u8],
    mut explanation: Explanation<'_>,
    failure: impl Fn(ReadError) -> Failure,
) -> Result<Exit, Failure> {
    // Other programs take a file for what its name says.
    if let Some(other) = picture.extension().filter(|name| !name.eq_ignore_ascii_case("svg")) {
        let (path, other) = (picture.display(), other.display());
        return Err(Failure::Usage(format!("--picture {path}: the picture is SVG, not {other}: name it .svg")));
    }
    let document = Document::create(picture, args.force)?;
    let pieces = explanation.by_ref().collect::<Result<Vec<_>, _>>().map_err(failure)?;
    document.finish(&picture::draw(&Bytes(path).lossy(), &pieces, &explanation.cost()))?;
    Ok(Exit::Done)
}

fn print(
    mut explanation: Explanation<'_>,
    block_len: u64,
    failure: impl Fn(ReadError) -> Failure,
) -> Result<(), Failure> {
    let mut out = Out::new();
    writeln!(out, "{:>14} {:>12}  {}  {:<19} {:>10}", "offset", "bytes", PlaceJson::HEAD, "read by", "fetched")?;
    for piece in explanation.by_ref() {
        let piece = piece.map_err(&failure)?;
        let (len, place) = (piece.wanted.end - piece.wanted.start, PlaceJson::new(&piece.extent).columns());
        let (way, fetched) = (way(&piece), piece.fetched);
        write!(out, "{:>14} {len:>12}  {place}  {way:<19} {fetched:>10}", piece.wanted.start)?;
        match piece.fragment {
            Some(off) => writeln!(out, "  (fragment: byte {off} of the packed inode)")?,
            None => writeln!(out)?,
        }
    }
    print_cost(&mut out, &explanation.cost(), block_len)?;
    out.finish()
}

fn way(piece: &ReadPiece) -> String {
    match piece.decoding {
        Decoding::Zeros => "zeros".into(),
        Decoding::Copy | Decoding::Plain => "copy".into(),
        Decoding::Whole => format!("decode {}", piece.extent.llen),
        Decoding::Prefix { len } => format!("decode first {len}"),
        Decoding::Cached => "decoded above".into(),
    }
}

fn print_cost(out: &mut Out, cost: &Cost, block_len: u64) -> io::Result<()> {
    let times = |amplification: Option<f64>| amplification.map_or(String::new(), |times| format!(", {times:.2} times"));
    let bytes = |bytes: u64| format!("{bytes} bytes ({})", Human(bytes));
    writeln!(out, "\nWanted:   {}", bytes(cost.wanted))?;
    let blocks = cost.fetched.div_ceil(block_len);
    writeln!(out, "Fetched:  {} in {blocks} blocks{}", bytes(cost.fetched), times(cost.fetch_amplification()))?;
    writeln!(out, "Decoded:  {}{}", bytes(cost.decoded), times(cost.decode_amplification()))?;
    writeln!(out, "Wasted:   {} decoded and not wanted", bytes(cost.wasted()))?;
    writeln!(out, "Metadata: {} of inodes and indexes", bytes(cost.metadata))
}

fn print_json(
    path: &[u8],
    explanation: Explanation<'_>,
    failure: impl Fn(ReadError) -> Failure,
) -> Result<(), Failure> {
    let pieces = Streamed::new(Pieces(explanation), failure);
    let document = ExplainJson {
        path: Bytes(path).lossy(),
        path_b64: Bytes(path).b64_if_lossy(),
        pieces: &pieces,
        cost: Total(&pieces),
    };
    let printed = print_document(&document);
    pieces.end(printed)
}

#[derive(Serialize)]
#[serde(bound = "")]
struct ExplainJson<'d, 'i, F: Fn(ReadError) -> Failure> {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    pieces: &'d Streamed<Pieces<'i>, F>,
    /// Comes after the pieces: it is not known before.
    #[serde(flatten)]
    cost: Total<'d, 'i, F>,
}

struct Pieces<'a>(Explanation<'a>);

impl Iterator for Pieces<'_> {
    type Item = Result<PieceJson, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|piece| piece.map(|piece| PieceJson::new(&piece)))
    }
}

#[derive(Serialize)]
struct PieceJson {
    offset: u64,
    bytes: u64,
    #[serde(flatten)]
    place: PlaceJson,
    extent_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fragment_offset: Option<u64>,
    decoding: &'static str,
    fetched: u64,
    decoded: u64,
}

impl PieceJson {
    fn new(piece: &ReadPiece) -> Self {
        Self {
            offset: piece.wanted.start,
            bytes: piece.wanted.end - piece.wanted.start,
            place: PlaceJson::new(&piece.extent),
            extent_bytes: piece.extent.llen,
            fragment_offset: piece.fragment,
            decoding: match piece.decoding {
                Decoding::Zeros => "zeros",
                Decoding::Copy => "copy",
                Decoding::Plain => "plain",
                Decoding::Whole => "whole",
                Decoding::Prefix { .. } => "prefix",
                Decoding::Cached => "cached",
            },
            fetched: piece.fetched,
            decoded: piece.decoded,
        }
    }
}

/// Cost of all pieces that were written.
struct Total<'d, 'i, F>(&'d Streamed<Pieces<'i>, F>);

impl<F> Serialize for Total<'_, '_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cost = self.0.source().0.cost();
        CostJson {
            wanted: cost.wanted,
            fetched: cost.fetched,
            decoded: cost.decoded,
            wasted: cost.wasted(),
            metadata: cost.metadata,
            fetch_amplification: cost.fetch_amplification(),
            decode_amplification: cost.decode_amplification(),
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct CostJson {
    wanted: u64,
    fetched: u64,
    decoded: u64,
    wasted: u64,
    metadata: u64,
    fetch_amplification: Option<f64>,
    decode_amplification: Option<f64>,
}
