//! Patches between images.

use crate::golden;
use kiln_builder::Control;
use kiln_parallel::Threads;
use kiln_read::{MemorySource, ReadAt};
use kilnfs::delta::{DeltaError, MakeOptions, Patch, make, seal, unseal};
use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

/// An image, and a valid patch for it with its parts.
struct Base {
    old: Arc<dyn ReadAt>,
    header: Vec<u8>,
    streams: [Vec<u8>; 3],
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let source = |name| -> Arc<dyn ReadAt> {
        Arc::new(MemorySource::new(fs::read(golden::file(name)).expect("the images are part of the project")))
    };
    let (old, mut patch) = (source("lz4.erofs"), Vec::new());
    let options = MakeOptions { portable: false, spool_dir: std::env::temp_dir(), ..MakeOptions::default() };
    let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
    make(&old, &source("zstd.erofs"), &mut patch, &options, &control).expect("good images");
    let (header, streams) = unseal(&patch).expect("a good patch");
    Base { old, header, streams }
});

/// Input: after a 0, a patch; after a 2, a header; otherwise a control stream, inserted into a
/// valid patch with correct checksums.
pub fn patch(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let Base { old, header, streams: [control, differences, literals] } = &*BASE;
    let sealed = match kind {
        0 => Ok(data.to_vec()),
        2 => seal(data, [control, differences, literals]),
        _ => seal(header, [data, differences, literals]),
    };
    let patch = sealed.expect("zstd encodes anything");
    let Ok(patch) = Patch::open(&patch[..]) else { return };
    let (mut end, new_len) = (0, patch.header().new_len);
    let mut sink = |off, bytes: &[u8]| {
        assert_eq!(off, end, "front to back");
        end += bytes.len() as u64;
        assert!(end <= new_len, "more than the new image has");
        // Long output is cut, because a copy may be repeated.
        if end > 64 << 20 { Err(DeltaError::Interrupted) } else { Ok(()) }
    };
    let _ = patch.with_threads(Threads::ONE).apply(old.clone(), &mut sink, &AtomicBool::new(false));
}
