//! Two versions of a tree, and patches between images of them.

use kiln_builder::{BuildOptions, Control, Preset, Progress};
use kiln_delta::{ApplyReport, DeltaError, MakeOptions, MakeReport, Patch};
use kiln_read::{MemorySource, ReadAt};
use kiln_tests::image::build;
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::rng::Rng;
use kiln_tree::{Kind, NodeId, Tree};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Files by name.
pub type Files = Vec<(String, Vec<u8>)>;

/// Returns text of words, about as compressible as source code.
pub fn words(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        let word = rng.below(700);
        text.extend(format!("{:x}{} ", word * 7919, ["", "_ptr", "();\n", " = "][rng.below(4) as usize]).bytes());
    }
    text.truncate(len);
    text
}

/// Returns a tree of small files, some large ones, and incompressible bytes.
pub fn files(seed: u64) -> Files {
    let mut rng = Rng::new(seed);
    let mut files: Files = (0..60).map(|n| (format!("small{n}"), words(&mut rng, 50 + n * 97))).collect();
    for (n, len) in [150_000, 300_000, 1_200_000].into_iter().enumerate() {
        files.push((format!("large{n}.so.1.{n}"), words(&mut rng, len)));
    }
    files.push(("noise".to_owned(), (0..200_000).map(|_| rng.below(256) as u8).collect()));
    files.push(("copy".to_owned(), files[61].1[20_000..220_000].to_vec()));
    files
}

/// Returns the next version: bytes inserted and changed, files moved, added and removed.
pub fn next(files: &Files, seed: u64) -> Files {
    let mut rng = Rng::new(seed);
    let mut next = files.clone();
    for (name, bytes) in &mut next {
        if rng.below(5) == 0 || name.starts_with("large2") {
            for _ in 0..1 + rng.below(6) {
                let at = rng.below(bytes.len() as u64 + 1) as usize;
                let new = words(&mut rng, 40);
                bytes.splice(at..at, new);
            }
            for at in (0..bytes.len()).step_by(5000) {
                bytes[at] = bytes[at].wrapping_add(3);
            }
        }
    }
    next[0].0 = "moved".to_owned();
    next.remove(7);
    next.push(("added".to_owned(), words(&mut rng, 30_000)));
    next.sort();
    next
}

/// Returns an image of these files.
pub fn image(files: &Files, options: &BuildOptions) -> Vec<u8> {
    build(&tree(files), options).unwrap().0
}

fn tree(files: &Files) -> Tree {
    let mut mem = MemTree::default();
    for (name, bytes) in files {
        let kind: Kind = mem.contents(MemFile::whole(bytes.clone()));
        mem.add(NodeId::ROOT, name.as_bytes(), kind);
    }
    mem.finish().unwrap()
}

/// Returns an image of one sparse file, which ends with `end` after a hole.
pub fn sparse(hole_len: u64, end: &[u8], options: &BuildOptions) -> Vec<u8> {
    let (mut mem, mut file) = (MemTree::default(), MemFile::default());
    file.push_hole(hole_len);
    file.push(end.to_vec());
    mem.file(NodeId::ROOT, b"sparse", file);
    build(&mem.finish().unwrap(), options).unwrap().0
}

/// Returns the options of a preset.
pub fn preset(preset: Preset) -> BuildOptions {
    BuildOptions::preset(preset, None).unwrap().with(|o| o.work.scratch_dir = std::env::temp_dir())
}

pub fn source(bytes: &[u8]) -> Arc<dyn ReadAt> {
    Arc::new(MemorySource::new(bytes.to_vec()))
}

/// Makes a patch.
pub fn make(old: &[u8], new: &[u8], portable: bool) -> (Vec<u8>, MakeReport) {
    make_with(old, new, &MakeOptions { portable, spool_dir: std::env::temp_dir(), ..MakeOptions::default() })
}

/// Makes a patch with these options.
pub fn make_with(old: &[u8], new: &[u8], options: &MakeOptions) -> (Vec<u8>, MakeReport) {
    let (mut patch, stop) = (Vec::new(), AtomicBool::new(false));
    let told = std::sync::Mutex::new((0, 0));
    let progress = |now: Progress| {
        let mut told = told.lock().unwrap();
        assert!(told.0 <= now.done_bytes && now.done_bytes <= now.total_bytes, "progress goes forward");
        *told = (now.done_bytes, now.total_bytes);
    };
    let control = Control { stop: &stop, progress: &progress };
    let made = kiln_delta::make(&source(old), &source(new), &mut patch, options, &control).unwrap();
    assert_eq!(*told.lock().unwrap(), (2 * new.len() as u64, 2 * new.len() as u64));
    assert_eq!(made.patch_len, patch.len() as u64);
    (patch, made)
}

/// Applies a patch to an image.
pub fn apply(old: &[u8], patch: &[u8]) -> Result<(Vec<u8>, ApplyReport), DeltaError> {
    let mut new = Vec::new();
    let applied = Patch::open(patch)?.apply(
        source(old),
        &mut |off, bytes| {
            assert_eq!(off, new.len() as u64, "front to back");
            new.extend_from_slice(bytes);
            Ok(())
        },
        &AtomicBool::new(false),
    )?;
    Ok((new, applied))
}
