//! `kiln pack --explain`: reasons why each file is stored as it is.

use super::summary;
use crate::console::report::{Bytes, JsonList, Out};
use crate::console::size::Human;
use crate::exit::Failure;
use kiln_builder::{Decision, Explanation, ExtendedBecause, How, Reasons, Uncompressed, Unpacked};
use serde::Serialize;
use std::fmt;
use std::io::Write;

/// Prints the reasons for people, one file a line.
pub fn tell(reasons: &Reasons<'_>) -> Result<(), Failure> {
    let mut out = Out::new();
    for explanation in reasons.explain() {
        out.name(&explanation.path)?;
        match &explanation.how {
            How::Duplicate { of } => {
                write!(out, ": the same as ")?;
                out.name(of)?;
            }
            how => write!(out, ": {}", InWords(how))?,
        }
        match explanation.compression {
            Some((way, Decision::Hint)) => write!(out, "; by a hint: {}", summary::way(way))?,
            Some((way, Decision::Trial)) => write!(out, "; by trial: {}", summary::way(way))?,
            Some((_, Decision::Default)) | None => {}
        }
        if let Some(unpacked) = explanation.unpacked {
            write!(out, "; not packed: {}", unpacked_because(unpacked))?;
        }
        if !explanation.extended_because.is_empty() {
            let reasons: Vec<_> = explanation.extended_because.iter().copied().map(in_words).collect();
            write!(out, "; extended inode: {}", reasons.join(", "))?;
        }
        writeln!(out)?;
    }
    out.finish()
}

/// Prints the document `rest` for programs, with a list `explained`, one file a line.
pub fn print_json(reasons: &Reasons<'_>, rest: &impl Serialize) -> Result<(), Failure> {
    let mut list = JsonList::start("explained")?;
    for explanation in reasons.explain() {
        list.push(&ExplanationJson::new(&explanation))?;
    }
    list.finish_with(rest)
}

/// Storage of a file that is no duplicate.
struct InWords<'a>(&'a How);

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = |f: &mut fmt::Formatter<'_>, bytes: u64, what| match bytes {
            0 => Ok(()),
            bytes => write!(f, ", {} {what}", Human(bytes)),
        };
        match *self.0 {
            How::Empty => write!(f, "empty"),
            How::Duplicate { .. } => write!(f, "the same as another file"),
            How::Packed { off, referenced } => {
                write!(f, "packed, at byte {off}")?;
                some(f, referenced, "stored elsewhere")
            }
            How::Flat { because, inline } => {
                write!(f, "uncompressed: {}", Because(because))?;
                some(f, inline, "inline")
            }
            How::Chunks { because, chunk_len, holes } => {
                write!(f, "uncompressed: {}, in chunks of {}", Because(because), Human(chunk_len))?;
                some(f, holes, "of holes")
            }
            How::Reused => f.write_str("as the base stores it"),
            How::Placed { chunk_len } => write!(f, "on an extra device, in chunks of {}", Human(chunk_len)),
            How::Compressed { extents, plain, text, stored, referenced, holes, inline, packed } => {
                write!(f, "compressed: {} to {}", Human(text), Human(stored))?;
                if let Some(ratio) = ratio(text, stored) {
                    write!(f, " ({:.1} %)", 100.0 * ratio)?;
                }
                write!(f, " in {extents} extents")?;
                if plain > 0 {
                    write!(f, ", {plain} of them plain")?;
                }
                some(f, referenced, "stored elsewhere")?;
                some(f, holes, "of holes")?;
                some(f, inline, "inline")?;
                some(f, packed, "at its end packed")
            }
        }
    }
}

fn ratio(text: u64, stored: u64) -> Option<f64> {
    (text > 0).then(|| stored as f64 / text as f64)
}

/// Why a file is not compressed, with figures.
struct Because(Uncompressed);

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", uncompressed_because(self.0))?;
        match self.0 {
            Uncompressed::Incompressible { bits_per_byte } => write!(f, " ({bits_per_byte:.2} bits per byte)"),
            _ => Ok(()),
        }
    }
}

fn bits_per_byte(because: Uncompressed) -> Option<f64> {
    match because {
        Uncompressed::Incompressible { bits_per_byte } => Some(bits_per_byte),
        _ => None,
    }
}

fn uncompressed_because(because: Uncompressed) -> &'static str {
    match because {
        Uncompressed::NoCompression => "no file is compressed",
        Uncompressed::Hint => "a hint",
        Uncompressed::Incompressible { .. } => "samples do not compress",
        Uncompressed::MostlyHoles => "nearly all of it is hole",
        Uncompressed::OneBlock => "fits one block",
        Uncompressed::NoGain => "compression gains nothing",
    }
}

fn unpacked_because(unpacked: Unpacked) -> &'static str {
    match unpacked {
        Unpacked::TooLong => "too long",
        Unpacked::Sparse => "may have holes",
        Unpacked::Incompressible => "its first bytes do not compress",
        Unpacked::OtherWay => "compressed otherwise",
    }
}

fn decided_by(decision: Decision) -> &'static str {
    match decision {
        Decision::Default => "default",
        Decision::Hint => "hint",
        Decision::Trial => "trial",
    }
}

fn in_words(because: ExtendedBecause) -> &'static str {
    match because {
        ExtendedBecause::Size => "size",
        ExtendedBecause::Owner => "owner",
        ExtendedBecause::Links => "links",
        ExtendedBecause::Mtime => "mtime",
        ExtendedBecause::Anything => "all are",
    }
}

#[derive(Default, Serialize)]
struct ExplanationJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    bytes: u64,
    stored_as: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_of_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packed_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_byte: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extent_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plain_extent_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referenced_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hole_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pcluster_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dictionary_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unpacked_because: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extended_because: Vec<&'static str>,
}

impl ExplanationJson {
    fn new(explanation: &Explanation) -> Self {
        let Explanation { path, len, how, compression: way, unpacked, extended_because } = explanation;
        let stored = match *how {
            How::Empty => Self { stored_as: "empty", ..Self::default() },
            How::Duplicate { ref of } => Self {
                stored_as: "duplicate",
                duplicate_of: Some(Bytes(of).lossy()),
                duplicate_of_b64: Bytes(of).b64_if_lossy(),
                ..Self::default()
            },
            How::Packed { off, referenced } => Self {
                stored_as: "packed",
                packed_offset: Some(off),
                referenced_bytes: Some(referenced),
                ..Self::default()
            },
            How::Flat { because, inline } => Self {
                stored_as: "flat",
                because: Some(uncompressed_because(because)),
                bits_per_byte: bits_per_byte(because),
                inline_bytes: Some(inline),
                ..Self::default()
            },
            How::Chunks { because, chunk_len, holes } => Self {
                stored_as: "chunks",
                because: Some(uncompressed_because(because)),
                bits_per_byte: bits_per_byte(because),
                chunk_bytes: Some(chunk_len),
                hole_bytes: Some(holes),
                ..Self::default()
            },
            How::Reused => Self { stored_as: "reused", ..Self::default() },
            How::Placed { chunk_len } => Self { stored_as: "placed", chunk_bytes: Some(chunk_len), ..Self::default() },
            How::Compressed { extents, plain, text, stored, referenced, holes, inline, packed } => Self {
                stored_as: "compressed",
                extent_count: Some(extents),
                plain_extent_count: Some(plain),
                text_bytes: Some(text),
                stored_bytes: Some(stored),
                ratio: ratio(text, stored),
                referenced_bytes: Some(referenced),
                hole_bytes: Some(holes),
                inline_bytes: Some(inline),
                packed_bytes: Some(packed),
                ..Self::default()
            },
        };
        let compressed = matches!(how, How::Compressed { .. } | How::Packed { .. });
        let way = way.filter(|_| compressed);
        Self {
            path: Bytes(path).lossy(),
            path_b64: Bytes(path).b64_if_lossy(),
            bytes: *len,
            algorithm: way.map(|(way, _)| way.method.name()),
            level: way.map(|(way, _)| way.level),
            pcluster_bytes: way.map(|(way, _)| way.pcluster_len),
            dictionary_bytes: way.and_then(|(way, _)| way.window_len),
            decided_by: way.map(|(_, decision)| decided_by(decision)),
            unpacked_because: unpacked.map(unpacked_because),
            extended_because: extended_because.iter().copied().map(in_words).collect(),
            ..stored
        }
    }
}
