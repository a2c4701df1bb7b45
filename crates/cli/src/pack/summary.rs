//! Report of `kiln pack`.

use crate::console::report::{Bytes, Contents, PathJson, SkippedJson, note};
use crate::console::size::Human;
use crate::console::text;
use crate::exit::Exit;
use crate::verity::{MadeTree, MadeTreeJson};
use kiln_builder::{CompressionUse, Phase, Spec, Summary};
use kiln_format::Escaped;
use kiln_source::{LeftOutXattr, LeftOutXattrs, Note, Scan, Unreadable};
use kiln_tree::storage::DataOrder;
use kilnfs::Unmatched;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fmt, io};
use uuid::Uuid;

/// Pages of most machines have so many bytes, and none has less.
const PAGE_LEN: u64 = 4096;

/// A build that has come to its end.
pub struct Report<'a> {
    /// The directory that was packed.
    pub src: &'a Path,
    /// Name of the image, for messages.
    pub image: &'a Path,
    /// Result of the scan of `src`; `None`: an image that was laid out anew.
    pub scan: Option<&'a Scan>,
    /// Order of its data.
    pub order: &'a DataOrder,
    /// Contents and sizes of the image.
    pub summary: &'a Summary,
    /// Hash tree of the image.
    pub tree: Option<&'a MadeTree>,
}

/// Something that the scan could not read, by its path in the source: so are those that the builder skips.
pub struct InSource<'a> {
    path: &'a Path,
    source: &'a io::Error,
}

impl<'a> InSource<'a> {
    pub fn new(src: &Path, skipped: &'a Unreadable) -> Self {
        // What is left out may be a part of the source itself.
        let inner = skipped.path.strip_prefix(src).ok().filter(|inner| !inner.as_os_str().is_empty());
        Self { path: inner.unwrap_or(&skipped.path), source: &skipped.source }
    }

    pub fn json(&self) -> SkippedJson {
        SkippedJson::new(self.path.as_os_str().as_bytes(), self)
    }
}

impl fmt::Display for InSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.source)
    }
}

/// Notes what is to be known of the sources of an image, and the attributes that it does not have.
pub fn tell_notes(scan: &Scan) {
    scan.notes.iter().for_each(|one| note(format_args!("note: {one}")));
    if !scan.left_out_xattrs.is_empty() {
        note(format_args!("note: {}", scan.left_out_xattrs));
    }
}

/// Attributes of one name, or entries of ACLs, that are left out, for programs.
#[derive(Serialize)]
pub struct LeftOutXattrJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_b64: Option<String>,
    /// Of an ACL: `user:NAME` or `group:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<String>,
    count: u64,
    reason: &'static str,
    /// One of the files.
    #[serde(flatten)]
    path: PathJson,
}

impl LeftOutXattrJson {
    /// All of them.
    pub fn list(all: &LeftOutXattrs) -> Vec<Self> {
        let json = |LeftOutXattr { name, entry, count, path, reason }: &LeftOutXattr| Self {
            name: Bytes(name).lossy(),
            name_b64: Bytes(name).b64_if_lossy(),
            entry: (!entry.is_empty()).then(|| Bytes(entry).lossy()),
            count: *count,
            reason,
            path: PathJson::new(path),
        };
        all.iter().map(json).collect()
    }
}

/// Something to know of a source, for programs.
#[derive(Serialize)]
pub struct NoteJson {
    #[serde(flatten)]
    path: PathJson,
    note: String,
}

impl NoteJson {
    /// All of them.
    pub fn list(notes: &[Note]) -> Vec<Self> {
        let json =
            |Note { path, text }: &Note| Self { path: PathJson::new(path.as_os_str().as_bytes()), note: text.clone() };
        notes.iter().map(json).collect()
    }
}

impl Report<'_> {
    /// For people, on standard error.
    pub fn tell(&self) {
        tell(self.image, self.summary);
        if let DataOrder::Shuffled { seed } = self.order {
            let inline = match self.summary.inline_files {
                0 => String::new(),
                files => format!(", but for {files} files, or their ends, beside their inodes"),
            };
            note(format_args!("data lies in random order, of seed {seed}{inline}; names are sorted"));
        }
        let outputs = self.scan.iter().flat_map(|scan| &scan.outputs);
        let outputs: Vec<_> = outputs.map(|path| text::escape(path)).collect();
        if !outputs.is_empty() {
            note(format_args!("left out, for it is what is being written: {}", outputs.join(", ")));
        }
        if let Some(tree) = self.tree {
            tree.tell_all(self.image);
        }
    }
}

/// Notes the contents and sizes of an image, for people.
pub fn tell(image: &Path, summary: &Summary) {
    tell_briefly(image, summary);
    let parts = [
        ("data", None, summary.data_bytes),
        ("extra device", None, summary.blob_bytes),
        ("on devices", Some(summary.placed_files), summary.placed_bytes),
        ("metadata", None, summary.metadata_bytes),
        ("packed", Some(summary.packed_files), summary.packed_bytes),
        ("ends packed", Some(summary.end_files), summary.end_bytes),
        ("deduplicated", Some(summary.duplicate_files), summary.duplicate_bytes),
        ("parts stored once", None, summary.shared_bytes),
        ("left uncompressed", Some(summary.plain_files), summary.plain_bytes),
        ("holes", None, summary.hole_bytes),
        ("holes stored as zeros", Some(summary.filled_hole_files), summary.filled_hole_bytes),
    ];
    let parts = parts.into_iter().filter(|(_, _, bytes)| *bytes > 0).map(|(name, files, bytes)| match files {
        Some(files) => format!("{name}: {} in {files} files", Human(bytes)),
        None => format!("{name}: {}", Human(bytes)),
    });
    let digests = (summary.digested_bytes > 0).then(|| verifiable(summary).to_string());
    let ways = summary.compression_uses.iter().filter(|_| summary.compression_uses.len() > 1);
    let ways = ways.map(|used| format!("{}: {} in {} files", way(used.spec), Human(used.bytes), used.files));
    let inline = (summary.inline_files > 0)
        .then(|| format!("beside their inodes: {} files or ends of files", summary.inline_files));
    note(format_args!("{}", parts.chain(ways).chain(inline).chain(digests).collect::<Vec<_>>().join("; ")));
    if summary.dropped_chunks > 0 {
        let chunks = summary.dropped_chunks;
        note(format_args!(
            "{chunks} chunks had no room in the index of parts: a higher --memory may find more of them"
        ));
    }
    if summary.copied_bytes > 0 || summary.reused_files > 0 {
        let Summary { reused_files, reused_bytes, copied_bytes, files, bytes_in, .. } = *summary;
        note(format_args!(
            "reused from the base: {reused_files} files, {} stored as {}; the others: {} files, {}",
            Human(reused_bytes),
            Human(copied_bytes),
            files - reused_files,
            Human(bytes_in - reused_bytes)
        ));
    }
    if summary.read_bytes > 0 {
        let back = Some(summary.read_back_bytes).filter(|bytes| *bytes > 0);
        let back = back.map_or_else(String::new, |bytes| format!("; of the image read back: {}", Human(bytes)));
        note(format_args!("read: {} of contents{back}", Human(summary.read_bytes)));
    }
    note(format_args!("{}", phases(&summary.phases)));
    if let Some(kernel) = summary.oldest_kernel {
        let because = summary.oldest_kernel_because.map(|feature| format!(", because of {}", feature.name()));
        let pages =
            (summary.block_len > PAGE_LEN).then(|| format!(" with pages of {} or more", Human(summary.block_len)));
        let (because, pages) = (because.unwrap_or_default(), pages.unwrap_or_default());
        note(format_args!("mounts on Linux {kernel} and later{pages}{because}"));
    }
}

/// Returns the share of the contents of an image that can be verified later, for people.
pub fn verifiable(summary: &Summary) -> Contents {
    Contents { bytes: summary.bytes_in, digested_bytes: summary.digested_bytes, what: "verifiable" }
}

/// Notes files that a build has left out, or stored otherwise than they were, for people.
pub fn tell_left_out(summary: &Summary) -> Exit {
    let Summary { skipped, changed, damaged, .. } = summary;
    skipped.iter().for_each(|skipped| note(format_args!("skipped: {}", skipped.error)));
    changed.iter().for_each(|one| note(format_args!("stored as it was when it was read: {}", one.error)));
    damaged.iter().for_each(|one| note(format_args!("stored as it was read, with its old digest: {}", one.error)));
    // A file that changed while it was read is stored as it was in one reading.
    let is_complete = skipped.is_empty() && damaged.is_empty() && !changed.iter().any(|one| one.error.is_resize());
    if is_complete { Exit::Done } else { Exit::Skipped }
}

/// Notes the two most important lines of [`tell`].
pub fn tell_briefly(image: &Path, summary: &Summary) {
    let Summary { files, directories, others, hard_links, .. } = summary;
    note(format_args!("{files} files, {directories} directories, {others} others, {hard_links} hard links"));
    let (bytes_in, bytes_out) = (Human(summary.bytes_in), Human(summary.image_bytes));
    note(format_args!("{}: {bytes_in} became {bytes_out} ({})", image.display(), ratio(summary)));
}

fn ratio(summary: &Summary) -> String {
    match summary.bytes_in {
        0 => "nothing to compress".into(),
        bytes_in => format!("{:.1} %", 100.0 * summary.image_bytes as f64 / bytes_in as f64),
    }
}

/// Returns a way of compressing, for people.
pub fn way(way: Spec) -> String {
    let dict = way.window_len.map(|len| format!(",dictsize={len}")).unwrap_or_default();
    format!("{},{}{dict} in {}", way.method.name(), way.level, Human(way.pcluster_len.into()))
}

/// Returns the time that each phase took, for people.
pub fn phases(phases: &[Phase]) -> String {
    phases.iter().map(phase).collect::<Vec<_>>().join("; ")
}

fn phase(phase: &Phase) -> String {
    format!("{} {:.2} s ({:.2} s CPU)", phase.name, phase.wall.as_secs_f64(), phase.cpu.as_secs_f64())
}

/// Notes choices by path that match nothing: most likely they are mistakes.
pub fn tell_unmatched(unmatched: &Unmatched) {
    for (what, list) in
        [("paths of --order are not in the image", &unmatched.paths), ("hints match nothing", &unmatched.hints)]
    {
        if let Some(first) = list.first() {
            let more = if list.len() > 1 { ", ..." } else { "" };
            note(format_args!("{} {what}: {}{more}", list.len(), Escaped(first)));
        }
    }
}

/// Notes entries that are not in the image as they are in the source.
pub fn tell_skipped(report: &Report<'_>) -> Exit {
    report.scan.into_iter().for_each(tell_notes);
    let unreadable = report.scan.map_or(&[][..], |scan| &scan.skipped);
    unreadable.iter().for_each(|skipped| note(format_args!("skipped: {}", InSource::new(report.src, skipped))));
    match (tell_left_out(report.summary), unreadable.is_empty()) {
        (Exit::Done, false) => Exit::Skipped,
        (exit, _) => exit,
    }
}

/// For programs, on standard output.
#[derive(Serialize)]
pub struct PackJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    uuid: String,
    files: u64,
    directories: u64,
    others: u64,
    hard_links: u64,
    bytes_in: u64,
    digested_bytes: u64,
    image_bytes: u64,
    block_size: u64,
    order: String,
    data_bytes: u64,
    blob_bytes: u64,
    placed_files: u64,
    placed_bytes: u64,
    reused_files: u64,
    reused_bytes: u64,
    copied_bytes: u64,
    read_bytes: u64,
    read_back_bytes: u64,
    hot_start: u64,
    hot_bytes: u64,
    metadata_bytes: u64,
    duplicate_files: u64,
    duplicate_bytes: u64,
    packed_files: u64,
    packed_bytes: u64,
    end_files: u64,
    end_bytes: u64,
    shared_bytes: u64,
    dropped_chunks: u64,
    hole_bytes: u64,
    filled_hole_files: u64,
    filled_hole_bytes: u64,
    plain_files: u64,
    plain_bytes: u64,
    ways: Vec<WayJson>,
    inline_files: u64,
    oldest_kernel: Option<String>,
    oldest_kernel_because: Option<&'static str>,
    phases: Vec<PhaseJson>,
    outputs: Vec<PathJson>,
    changed: Vec<SkippedJson>,
    damaged: Vec<SkippedJson>,
    skipped: Vec<SkippedJson>,
    notes: Vec<NoteJson>,
    left_out_xattrs: Vec<LeftOutXattrJson>,
    verity: Option<MadeTreeJson>,
}

#[derive(Serialize)]
struct WayJson {
    algorithm: &'static str,
    level: i32,
    pcluster_bytes: u32,
    /// As asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    dictionary_bytes: Option<u32>,
    files: u64,
    bytes: u64,
}

/// A phase, for programs.
#[derive(Serialize)]
pub struct PhaseJson {
    name: &'static str,
    wall_secs: f64,
    cpu_secs: f64,
}

impl PackJson {
    pub fn new(report: &Report<'_>) -> Self {
        let Report { src, image, scan, order, summary, tree } = *report;
        let path = Bytes(image.as_os_str().as_bytes());
        let scanned = scan.iter().flat_map(|scan| &scan.skipped).map(|skipped| InSource::new(src, skipped).json());
        let built = summary.skipped.iter().map(|skipped| SkippedJson::new(&skipped.path, &skipped.error));
        Self {
            path: path.lossy(),
            path_b64: path.b64_if_lossy(),
            uuid: Uuid::from_bytes(summary.uuid).to_string(),
            files: summary.files,
            directories: summary.directories,
            others: summary.others,
            hard_links: summary.hard_links,
            bytes_in: summary.bytes_in,
            digested_bytes: summary.digested_bytes,
            image_bytes: summary.image_bytes,
            block_size: summary.block_len,
            order: order.to_string(),
            data_bytes: summary.data_bytes,
            blob_bytes: summary.blob_bytes,
            placed_files: summary.placed_files,
            placed_bytes: summary.placed_bytes,
            reused_files: summary.reused_files,
            reused_bytes: summary.reused_bytes,
            copied_bytes: summary.copied_bytes,
            read_bytes: summary.read_bytes,
            read_back_bytes: summary.read_back_bytes,
            hot_start: summary.hot_start,
            hot_bytes: summary.hot_bytes,
            metadata_bytes: summary.metadata_bytes,
            duplicate_files: summary.duplicate_files,
            duplicate_bytes: summary.duplicate_bytes,
            packed_files: summary.packed_files,
            packed_bytes: summary.packed_bytes,
            end_files: summary.end_files,
            end_bytes: summary.end_bytes,
            shared_bytes: summary.shared_bytes,
            dropped_chunks: summary.dropped_chunks,
            hole_bytes: summary.hole_bytes,
            filled_hole_files: summary.filled_hole_files,
            filled_hole_bytes: summary.filled_hole_bytes,
            plain_files: summary.plain_files,
            plain_bytes: summary.plain_bytes,
            ways: summary.compression_uses.iter().map(WayJson::new).collect(),
            inline_files: summary.inline_files,
            oldest_kernel: summary.oldest_kernel.map(|kernel| kernel.to_string()),
            oldest_kernel_because: summary.oldest_kernel_because.map(|feature| feature.name()),
            phases: summary.phases.iter().map(PhaseJson::new).collect(),
            outputs: scan.iter().flat_map(|scan| &scan.outputs).map(|path| PathJson::new(path)).collect(),
            changed: summary.changed.iter().map(|one| SkippedJson::new(&one.path, &one.error)).collect(),
            damaged: summary.damaged.iter().map(|one| SkippedJson::new(&one.path, &one.error)).collect(),
            skipped: scanned.chain(built).collect(),
            notes: scan.map_or_else(Vec::new, |scan| NoteJson::list(&scan.notes)),
            left_out_xattrs: scan.map_or_else(Vec::new, |scan| LeftOutXattrJson::list(&scan.left_out_xattrs)),
            verity: tree.map(|tree| tree.json(image)),
        }
    }
}

/// Returns all entries of a source that are not in the image as they are in the source, for programs.
pub fn skipped_json(report: &Report<'_>) -> Vec<SkippedJson> {
    let Report { src, scan, summary, .. } = *report;
    let scanned = scan.iter().flat_map(|scan| &scan.skipped).map(|skipped| InSource::new(src, skipped).json());
    let built = summary.skipped.iter().chain(&summary.changed).chain(&summary.damaged);
    scanned.chain(built.map(|one| SkippedJson::new(&one.path, &one.error))).collect()
}

impl WayJson {
    fn new(used: &CompressionUse) -> Self {
        let CompressionUse { spec: Spec { method, level, pcluster_len, window_len }, files, bytes } = *used;
        let algorithm = method.name();
        Self { algorithm, level, pcluster_bytes: pcluster_len, dictionary_bytes: window_len, files, bytes }
    }
}

impl PhaseJson {
    pub fn new(phase: &Phase) -> Self {
        Self { name: phase.name, wall_secs: phase.wall.as_secs_f64(), cpu_secs: phase.cpu.as_secs_f64() }
    }
}
