//! Styles of images: updates and relayouts store new data in the same way.

use kiln_builder::{BuildOptions, Control, Preset};
use kiln_codec::Method;
use kiln_output::MemoryOutput;
use kiln_read::{Image, ImageOptions, MemorySource};
use kiln_revise::{Depth, ImageStyle};
use kiln_source::dir::DirSource;
use kiln_source::{ScanOptions, Source};
use kiln_tests::golden;
use kiln_tests::temp::TempDir;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Checks that a sample and all inodes of an image, an update and a relayout agree.
fn see(name: &str, image: &Image) -> BuildOptions {
    let [sample, all] = [Depth::Sample, Depth::All].map(|depth| ImageStyle::of(image, depth).unwrap());
    assert_eq!(format!("{:?}", sample.choices()), format!("{:?}", all.choices()), "{name}");
    let choices = sample.choices();
    let (update, relayout) = (choices.build_options().unwrap(), all.build_options());
    let method = |options: &BuildOptions| match options.compression.spec?.method {
        Method::Lz4 => Some((Method::Lz4hc, Method::Lz4hc.default_level())), // relayouts take the denser encoder
        method => options.compression.spec.map(|spec| (method, spec.level)),
    };
    assert_eq!(method(&update), method(&relayout), "{name}");
    assert_eq!((update.kernel, update.block_bits), (relayout.kernel, relayout.block_bits), "{name}");
    assert_eq!(update.compression.encoded_extents, relayout.compression.encoded_extents, "{name}");
    if let (Some(len), Some(spec)) = (choices.pcluster_len, relayout.compression.spec) {
        assert_eq!(len, u64::from(spec.pcluster_len), "{name}");
    }
    if let Some(len) = choices.packed_pcluster_len {
        assert_eq!(Some(len as u32), relayout.packing.pcluster_len, "{name}");
    }
    relayout
}

#[test]
fn images_of_other_builders() {
    for golden in golden::golden_images().unwrap() {
        see(&golden.name, &golden.open_as(golden.bytes.clone()).unwrap());
    }
}

#[test]
fn images_of_presets_have_their_methods() {
    let dir = TempDir::new("style").unwrap();
    let text = |seed: usize, len: usize| -> Vec<u8> {
        let lines = (0..).flat_map(|line| format!("{} of {seed}\n", line * 7919 % 100_003).into_bytes());
        lines.take(len).collect()
    };
    for (name, len) in [("small", 5000), ("other", 9000), ("long", 900_000), ("longer", 3_000_000)] {
        fs::write(dir.join(name), text(len, len)).unwrap();
    }
    let stop = AtomicBool::new(false);
    let scan = DirSource::new(dir.path()).scan(&ScanOptions::new(&stop)).unwrap();
    for preset in Preset::ALL {
        for kernel in [None, Some("5.4"), Some("6.1"), Some("6.18")] {
            let name = format!("{preset:?} for {kernel:?}");
            let options = BuildOptions::preset(preset, kernel.map(|kernel| kernel.parse().unwrap())).unwrap();
            let output = MemoryOutput::default();
            kiln_builder::build(&scan.tree, &output, &options, &Control { stop: &stop, progress: &|_| {} }).unwrap();
            let source = Arc::new(MemorySource::new(output.into_bytes()));
            let image = Image::open(source, Vec::new(), &ImageOptions::default()).unwrap();
            let found = see(&name, &image);
            let of = |options: &BuildOptions| {
                options.compression.spec.map(|spec| (spec.method.algorithm(), spec.pcluster_len))
            };
            // All text of `Archive` is in one pcluster, which is shorter than it may be.
            if preset != Preset::Archive {
                assert_eq!(of(&found), of(&options), "{name}");
            }
        }
    }
}
