//! Report of `kiln update`.

use crate::console::report::{Bytes, PathJson, SkippedJson, note};
use crate::console::size::Human;
use crate::console::text;
use crate::exit::Exit;
use crate::pack::{InSource, LeftOutXattrJson, NoteJson, PhaseJson, phases, tell_left_out, tell_notes, verifiable};
use crate::verity::{MadeTree, MadeTreeJson};
use kiln_builder::Summary;
use kiln_revise::update::Added;
use kiln_source::Scan;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An update that has come to its end.
pub struct Report<'a> {
    /// Name of the image, for messages.
    pub image: &'a Path,
    /// Source that it was updated by.
    pub src: &'a Path,
    /// Result of the scan of `src`.
    pub scan: &'a Scan,
    /// Contents and sizes of the image.
    pub summary: &'a Summary,
    /// Number of the generation that the image shows.
    pub number: u32,
    /// That generation, if it is a new one.
    pub added: Option<Added>,
    /// Its new hash tree.
    pub tree: Option<&'a MadeTree>,
}

impl Report<'_> {
    /// Notes entries that are not in the image as they are in the source.
    pub fn tell_skipped(&self) -> Exit {
        tell_notes(self.scan);
        let unreadable = &self.scan.skipped;
        unreadable.iter().for_each(|skipped| note(format_args!("skipped: {}", InSource::new(self.src, skipped))));
        match (tell_left_out(self.summary), unreadable.is_empty()) {
            (Exit::Done, false) => Exit::Skipped,
            (exit, _) => exit,
        }
    }

    /// For people, on standard error.
    pub fn tell(&self) {
        let Self { image, summary, number, .. } = self;
        let Summary { files, directories, others, hard_links, .. } = *summary;
        note(format_args!(
            "{files} files, {directories} directories, {others} others, {hard_links} hard links; {}",
            verifiable(summary)
        ));
        match self.added {
            Some(added) => {
                let new_files = files - summary.reused_files;
                note(format_args!(
                    "reused in place: {} files, {}; the others: {new_files} files, {}",
                    summary.reused_files,
                    Human(summary.reused_bytes),
                    Human(summary.bytes_in - summary.reused_bytes),
                ));
                note(format_args!(
                    "{}: generation {number}, {} appended (data: {}, metadata: {}); {} in all",
                    image.display(),
                    Human(added.appended_bytes),
                    Human(summary.data_bytes),
                    Human(summary.metadata_bytes),
                    Human(summary.image_bytes),
                ));
            }
            None => note(format_args!(
                "{}: nothing has changed: generation {number} stays, nothing is written",
                image.display()
            )),
        }
        let outputs: Vec<_> = self.scan.outputs.iter().map(|path| text::escape(path)).collect();
        if !outputs.is_empty() {
            note(format_args!("left out, for it is what is being written: {}", outputs.join(", ")));
        }
        if let Some(tree) = self.tree {
            tree.tell_all(image);
        }
        note(format_args!("{}", phases(&summary.phases)));
    }
}

/// For programs, on standard output.
#[derive(Serialize)]
pub struct UpdateJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    generation: u32,
    unchanged: bool,
    appended_bytes: u64,
    image_bytes: u64,
    data_bytes: u64,
    metadata_bytes: u64,
    kept_inodes: u64,
    files: u64,
    directories: u64,
    others: u64,
    hard_links: u64,
    bytes_in: u64,
    digested_bytes: u64,
    reused_files: u64,
    reused_bytes: u64,
    phases: Vec<PhaseJson>,
    outputs: Vec<PathJson>,
    changed: Vec<SkippedJson>,
    damaged: Vec<SkippedJson>,
    skipped: Vec<SkippedJson>,
    notes: Vec<NoteJson>,
    left_out_xattrs: Vec<LeftOutXattrJson>,
    verity: Option<MadeTreeJson>,
}

impl UpdateJson {
    pub fn new(report: &Report<'_>) -> Self {
        let Report { image, src, scan, summary, number, added, tree } = *report;
        let path = Bytes(image.as_os_str().as_bytes());
        let scanned = scan.skipped.iter().map(|skipped| InSource::new(src, skipped).json());
        let built = summary.skipped.iter().map(|skipped| SkippedJson::new(&skipped.path, &skipped.error));
        Self {
            path: path.lossy(),
            path_b64: path.b64_if_lossy(),
            generation: number,
            unchanged: added.is_none(),
            appended_bytes: added.map_or(0, |added| added.appended_bytes),
            image_bytes: summary.image_bytes,
            data_bytes: summary.data_bytes,
            metadata_bytes: summary.metadata_bytes,
            kept_inodes: summary.kept_inodes,
            files: summary.files,
            directories: summary.directories,
            others: summary.others,
            hard_links: summary.hard_links,
            bytes_in: summary.bytes_in,
            digested_bytes: summary.digested_bytes,
            reused_files: summary.reused_files,
            reused_bytes: summary.reused_bytes,
            phases: summary.phases.iter().map(PhaseJson::new).collect(),
            outputs: scan.outputs.iter().map(|path| PathJson::new(path)).collect(),
            changed: summary.changed.iter().map(|one| SkippedJson::new(&one.path, &one.error)).collect(),
            damaged: summary.damaged.iter().map(|one| SkippedJson::new(&one.path, &one.error)).collect(),
            skipped: scanned.chain(built).collect(),
            notes: NoteJson::list(&scan.notes),
            left_out_xattrs: LeftOutXattrJson::list(&scan.left_out_xattrs),
            verity: tree.map(|tree| tree.json(image)),
        }
    }
}
