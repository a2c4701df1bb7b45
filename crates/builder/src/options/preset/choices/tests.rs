use super::*;
use crate::format::Format;
use crate::options::preset::{METADATA_LEN, SMALL_FILE_LEN};
use kiln_format::inode::CompactTimes;

const SMALL: Fragments = Fragments::UpTo(SMALL_FILE_LEN);
const KERNELS: [&str; 13] =
    ["5.4", "5.13", "5.15", "5.16", "5.17", "6.1", "6.4", "6.6", "6.10", "6.15", "6.17", "6.18", "any"];

/// Returns what the build makes of the options.
fn format(options: &BuildOptions) -> Format {
    Format::decide(options, None)
}

fn row(kernel: &str, format: &Format) -> String {
    let Format { compression, dedupe, holes, packing, metadata, .. } = format;
    let spec = compression.spec.map_or("stored".into(), |Spec { method, level, pcluster_len, .. }| {
        format!("{} {level} {}K", method.name(), pcluster_len >> 10)
    });
    let packed = match packing.max_len {
        0 => "no file".to_owned(),
        u64::MAX => "all files".to_owned(),
        len => format!("{}K", len >> 10),
    };
    let marks = [
        (compression.encoded_extents, "encoded"),
        (packing.tails, "tails"),
        (metadata.compact_times == CompactTimes::Own, "mtimes"),
        (holes.plain, "plain-holes"),
        (holes.compressed, "holes"),
        (metadata.digest_prefix.is_some(), "digest-prefix"),
        (metadata.metabox.is_some(), "metabox"),
    ];
    let marks: Vec<_> = marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark).collect();
    format!("{kernel:<5}{spec:<14}{packed:<10}{dedupe:<6?} {}", marks.join(" "))
}

/// Prints what images of each preset have, for each kernel.
#[test]
fn presets_by_kernel() {
    let mut table = String::new();
    for preset in [Preset::ALL.as_slice(), &[Preset::Backup]].concat() {
        table += &format!("{preset:?}\n");
        for kernel in KERNELS {
            let options = choices(preset, if kernel == "any" { "" } else { kernel }).build_options().unwrap();
            table += row(kernel, &format(&options)).trim_end();
            table += "\n";
        }
    }
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/options/preset/choices/kernels.txt"), &table).unwrap();
    } else {
        assert_eq!(table, include_str!("kernels.txt"));
    }
}

fn choices(preset: Preset, kernel: &str) -> Choices {
    let kernel = (!kernel.is_empty()).then(|| kernel.parse().unwrap());
    Choices { preset, kernel, ..Choices::default() }
}

/// As `-z` says it.
fn method(text: &str) -> MethodChoice {
    let Spec { method, level, window_len, .. } = Spec::parse(text, 4096).unwrap();
    MethodChoice { method, level: Some(level), window_len }
}

fn by(text: Option<&str>) -> Option<Compression> {
    text.map(|text| if text == "none" { Compression::Off } else { Compression::By(method(text)) })
}

fn compression(preset: Preset, z: Option<&str>, c: Option<u64>, kernel: &str) -> Option<Spec> {
    let choices = Choices { compression: by(z), pcluster_len: c, ..choices(preset, kernel) };
    choices.build_options().unwrap().compression.spec
}

fn spec(method: Method, level: i32, pcluster_len: u32) -> Option<Spec> {
    Some(Spec { method, level, pcluster_len, window_len: None })
}

#[test]
fn options_override_presets() {
    use Preset::*;
    assert_eq!(compression(Balanced, None, None, ""), spec(Method::Zstd, 3, 64 << 10));
    assert_eq!(compression(Fast, None, Some(16 << 10), ""), spec(Method::Lz4, 1, 16 << 10));
    assert_eq!(compression(Archive, Some("lzma,9"), None, ""), spec(Method::Lzma, 9, 1 << 20));
    assert_eq!(compression(Plain, None, None, ""), None);
    assert_eq!(compression(Plain, Some("deflate"), None, ""), spec(Method::Deflate, 6, 64 << 10));
    assert_eq!(compression(Archive, Some("none"), None, ""), None);
}

#[test]
fn defaults_give_way_to_the_kernel() {
    use Preset::*;
    assert_eq!(compression(Balanced, None, None, "6.10"), spec(Method::Zstd, 3, 64 << 10));
    assert_eq!(compression(Balanced, None, None, "6.9"), spec(Method::Lz4hc, 9, 64 << 10));
    assert_eq!(compression(Archive, None, None, "5.16"), spec(Method::Lzma, 6, 1 << 20));
    assert_eq!(compression(Archive, None, None, "5.15"), spec(Method::Lz4hc, 9, 1 << 20));
    assert_eq!(compression(Fast, None, None, "5.15"), spec(Method::Lz4, 1, 64 << 10));
    assert_eq!(compression(Archive, None, None, "5.13"), spec(Method::Lz4hc, 9, 1 << 20));
    assert_eq!(compression(Balanced, None, None, "5.12"), spec(Method::Lz4hc, 9, 4096));
    assert_eq!(compression(Fast, None, None, "5.4"), spec(Method::Lz4, 1, 4096));
    assert_eq!(compression(Plain, Some("lz4hc,12"), Some(4096), "5.4"), spec(Method::Lz4hc, 12, 4096));
    assert_eq!(compression(Plain, None, None, "5.4"), None);
    let tried = Choices { tries: vec![method("lz4hc,12")], ..choices(Fast, "5.4") };
    assert_eq!((tried).build_options().unwrap().compression.trial.specs, [spec(Method::Lz4hc, 12, 4096).unwrap()]);
}

#[test]
fn packing_and_deduplication_follow_preset_method_and_kernel() {
    use Preset::*;
    let (off, small) = (0, SMALL_FILE_LEN);
    for (preset, algorithm, kernel, fragments, dedupe) in [
        (Plain, None, "", off, Dedupe::Files),
        (Plain, Some("zstd"), "", off, Dedupe::Files),
        (Fast, None, "", small, Dedupe::Files),
        (Fast, None, "6.0", off, Dedupe::Files),
        (Balanced, None, "", small, Dedupe::Parts),
        (Balanced, None, "6.1", small, Dedupe::Parts),
        (Balanced, None, "6.0", off, Dedupe::Files),
        (Balanced, Some("lz4"), "", small, Dedupe::Files),
        (Balanced, Some("lz4hc"), "", small, Dedupe::Parts),
        (Balanced, Some("none"), "", off, Dedupe::Files),
        (Archive, None, "", u64::MAX, Dedupe::Parts),
        (Archive, None, "5.16", off, Dedupe::Files),
        (Dataset, None, "6.12", off, Dedupe::Files),
    ] {
        let options = (Choices { compression: by(algorithm), ..choices(preset, kernel) }).build_options().unwrap();
        let format = format(&options);
        assert_eq!((format.packing.max_len, format.dedupe), (fragments, dedupe), "{preset:?} {algorithm:?} {kernel}");
    }
    // Files of half a pcluster are packed with longer pclusters, unless something else was asked for.
    let asked = |fragments, pcluster_len| {
        let choices = Choices { fragments, pcluster_len: Some(pcluster_len), ..choices(Balanced, "6.1") };
        choices.build_options().unwrap().packing.fragments
    };
    assert_eq!(asked(None, 256 << 10), SMALL);
    assert_eq!(asked(None, 1 << 20), Fragments::UpTo(512 << 10));
    assert_eq!(asked(Some(SMALL), 1 << 20), SMALL);
    let named = Choices {
        dedupe: Some(Dedupe::Off),
        fragments: Some(Fragments::UpTo(7)),
        packed_pcluster_len: Some(8192),
        ..choices(Dataset, "6.1")
    };
    let options = (named).build_options().unwrap();
    assert_eq!((options.dedupe, options.packing.fragments), (Dedupe::Off, Fragments::UpTo(7)));
    assert_eq!(options.packing.pcluster_len, Some(8192));
}

#[test]
fn encoded_extents_have_longer_units() {
    use Preset::*;
    for (preset, kernel, encoded_extents, pcluster_len, expected) in [
        (Balanced, "", None, None, (false, 64 << 10)),
        (Balanced, "6.14", None, None, (false, 64 << 10)),
        (Balanced, "6.15", None, None, (true, 256 << 10)),
        (Balanced, "6.15", None, Some(32 << 10), (true, 32 << 10)),
        (Balanced, "6.15", Some(false), None, (false, 64 << 10)),
        (Balanced, "", Some(true), None, (true, 256 << 10)),
        (Archive, "6.15", None, None, (true, 1 << 20)),
        (Dataset, "6.15", None, None, (true, 64 << 10)),
    ] {
        let options = (Choices { encoded_extents, pcluster_len, ..choices(preset, kernel) }).build_options().unwrap();
        let chosen = (options.compression.encoded_extents, options.compression.spec.unwrap().pcluster_len);
        assert_eq!(chosen, expected, "{preset:?} {kernel} {encoded_extents:?}");
    }
    assert!(!(choices(Plain, "6.15")).build_options().unwrap().compression.encoded_extents);
}

#[test]
fn pclusters_suit_the_blocks() {
    use Preset::*;
    for (preset, block_len, kernel, expected) in [
        (Balanced, 512, "", 64 << 10),
        (Archive, 512, "", 512 << 10),
        (Archive, 512, "6.15", 1 << 20),
        (Archive, 1024, "", 1 << 20),
        (Balanced, 64 << 10, "", 64 << 10),
    ] {
        let options = (Choices { block_len: Some(block_len), ..choices(preset, kernel) }).build_options().unwrap();
        assert_eq!(options.compression.spec.unwrap().pcluster_len, expected, "{preset:?} {block_len} {kernel}");
        assert_eq!(options.block_bits.len(), block_len);
    }
    assert_eq!((choices(Plain, "")).build_options().unwrap().block_bits, BlockBits::DEFAULT);
    let tried = Choices { block_len: Some(512), tries: vec![method("lz4"), method("zstd")], ..choices(Archive, "") };
    let lens: Vec<u32> =
        (tried).build_options().unwrap().compression.trial.specs.iter().map(|way| way.pcluster_len).collect();
    assert_eq!(lens, [128 << 10, 512 << 10]);
}

#[test]
fn compressed_metadata_brings_what_its_kernel_has() {
    let with = |preset, pcluster_len, method| Choices {
        metadata: Some(MetadataCompression::By(MetadataChoice { pcluster_len, method })),
        ..choices(preset, "")
    };
    let options = (with(Preset::Fast, 16 << 10, None)).build_options().unwrap();
    assert_eq!(options.metadata.metabox, spec(Method::Lz4, 1, 16 << 10));
    assert!(options.packing.directories && options.compression.encoded_extents && options.metadata.own_mtimes);
    let options = with(Preset::Plain, 64 << 10, Some(method("zstd,9"))).build_options().unwrap();
    assert_eq!((options.metadata.metabox, options.compression.spec), (spec(Method::Zstd, 9, 64 << 10), None));
    assert!(!options.packing.directories && options.metadata.own_mtimes);
    let options = (Choices { pack_directories: true, ..choices(Preset::Balanced, "6.1") }).build_options().unwrap();
    assert!(options.packing.directories && options.metadata.metabox.is_none() && !options.metadata.own_mtimes);
}

#[test]
fn metadata_is_compressed_by_default_where_a_kernel_is_chosen_that_has_it() {
    use Preset::*;
    let metabox = |choices: Choices| {
        let options = choices.build_options().unwrap();
        assert_eq!(options.packing.directories, options.metadata.metabox.is_some());
        options.metadata.metabox
    };
    for (preset, kernel, expected) in [
        (Balanced, "", None),
        (Balanced, "6.16", None),
        (Balanced, "6.17", spec(Method::Zstd, 3, METADATA_LEN)),
        (Fast, "6.18", spec(Method::Lz4, 1, METADATA_LEN)),
        (Archive, "6.17", spec(Method::Lzma, 6, METADATA_LEN)),
        (Dataset, "6.17", None),
        (Plain, "6.17", None),
    ] {
        assert_eq!(metabox(choices(preset, kernel)), expected, "{preset:?} {kernel}");
    }
    let off = Some(MetadataCompression::Off);
    assert_eq!(metabox(Choices { metadata: off, ..choices(Balanced, "6.17") }), None);
    assert_eq!(metabox(Choices { compression: by(Some("none")), ..choices(Balanced, "6.17") }), None);
    // What was asked for excludes the default, but not what was asked for, too.
    let tails = || Choices { tail_packing: true, ..choices(Balanced, "6.17") };
    assert_eq!(metabox(tails()), None);
    let metadata = Some(MetadataCompression::By(MetadataChoice { pcluster_len: 8192, method: None }));
    assert_eq!(metabox(Choices { metadata, ..tails() }), spec(Method::Zstd, 3, 8192));
    // It suits blocks of every size, and other forms of extents.
    for (block_len, len) in [(512, METADATA_LEN), (64 << 10, 64 << 10)] {
        let found = metabox(Choices { block_len: Some(block_len), ..choices(Balanced, "6.17") });
        assert_eq!(found, spec(Method::Zstd, 3, len));
    }
    let index = Choices { encoded_extents: Some(false), ..choices(Balanced, "6.17") };
    assert_eq!(metabox(index), spec(Method::Zstd, 3, METADATA_LEN));
}

#[test]
fn explicit_options_are_refused_with_the_reason() {
    use Preset::*;
    let with = |preset, algorithm, pcluster_len, kernel| Choices {
        compression: by(algorithm),
        pcluster_len,
        ..choices(preset, kernel)
    };
    let parts = |preset, kernel| Choices { dedupe: Some(Dedupe::Parts), ..choices(preset, kernel) };
    let packed = |preset, kernel| Choices { fragments: Some(SMALL), ..choices(preset, kernel) };
    let packed_len = |preset, len| Choices { packed_pcluster_len: Some(len), ..choices(preset, "") };
    let encoded = |preset, kernel| Choices { encoded_extents: Some(true), ..choices(preset, kernel) };
    let blocks = |preset, block_len, kernel| Choices { block_len: Some(block_len), ..choices(preset, kernel) };
    let directories = |preset, kernel| Choices { pack_directories: true, ..choices(preset, kernel) };
    let metadata = |preset, pcluster_len, kernel| {
        let metadata = Some(MetadataCompression::By(MetadataChoice { pcluster_len, method: None }));
        Choices { metadata, ..choices(preset, kernel) }
    };
    for (refused, message) in [
        (blocks(Plain, 256, ""), "block_len 256: use a power of two, 512 to 64k"),
        (blocks(Plain, 5000, ""), "block_len 5000: use a power of two"),
        (blocks(Plain, 128 << 10, ""), "block_len 131072: use a power of two"),
        (blocks(Plain, 1024, "6.3"), "block_len needs Linux 6.4, but the image is for Linux 6.3"),
        (blocks(Balanced, 1024, "6.7"), "block_len needs Linux 6.8"),
        (
            Choices { pcluster_len: Some(256 << 10), ..blocks(Fast, 512, "") },
            "pcluster_len 262144: use a multiple of 512 bytes, up to 131072",
        ),
        (
            Choices { pcluster_len: Some(4096), ..blocks(Archive, 16 << 10, "") },
            "pcluster_len 4096: use a multiple of 16384 bytes",
        ),
        (with(Balanced, Some("zstd"), None, "6.6"), "zstd came with Linux 6.10, but the image is for Linux 6.6"),
        (with(Balanced, Some("deflate"), None, "6.1"), "deflate came with Linux 6.6"),
        (with(Plain, Some("lzma"), None, "5.15"), "lzma came with Linux 5.16"),
        (with(Plain, None, None, "5.3"), "images are made for Linux 5.4 and later"),
        (
            with(Fast, None, Some(8192), "5.12"),
            "pcluster_len 8192: more than a block needs Linux 5.13, but the image is for Linux 5.12",
        ),
        (with(Fast, None, Some(5000), "5.12"), "pcluster_len 5000: more than a block needs Linux 5.13"),
        (with(Fast, None, Some(1000), "5.12"), "pcluster_len 1000: use a multiple of 4096 bytes, up to 4096"),
        (with(Balanced, Some("zstd"), None, "5.4"), "zstd came with Linux 6.10, but the image is for Linux 5.4"),
        (with(Balanced, None, Some(1000), ""), "pcluster_len 1000: use a multiple of 4096 bytes, up to 1048576"),
        (with(Balanced, None, Some(0), ""), "multiple of 4096"),
        (with(Balanced, None, Some(2 << 20), ""), "up to 1048576"),
        (with(Balanced, None, Some(1 << 40), ""), "up to 1048576"),
        (with(Plain, None, Some(8192), ""), "pcluster_len: nothing is compressed"),
        (parts(Balanced, "6.0"), "dedupe needs Linux 6.1, but the image is for Linux 6.0"),
        (parts(Plain, ""), "dedupe: nothing is compressed"),
        (packed(Balanced, "5.15"), "fragments needs Linux 6.1, but the image is for Linux 5.15"),
        (packed(Plain, ""), "fragments: nothing is compressed"),
        (packed_len(Balanced, 5000), "packed_pcluster_len 5000: use a multiple of 4096 bytes, up to 1048576"),
        (packed_len(Dataset, 4096), "packed_pcluster_len: no files are packed"),
        (packed_len(Plain, 4096), "packed_pcluster_len: nothing is compressed"),
        (encoded(Balanced, "6.14"), "encoded_extents needs Linux 6.15, but the image is for Linux 6.14"),
        (encoded(Plain, ""), "encoded_extents: nothing is compressed"),
        (directories(Balanced, "6.0"), "pack_directories needs Linux 6.1, but the image is for Linux 6.0"),
        (directories(Plain, ""), "pack_directories: nothing is compressed"),
        (metadata(Balanced, 4096, "6.16"), "metadata needs Linux 6.17, but the image is for Linux 6.16"),
        (metadata(Balanced, 5000, ""), "metadata 5000: use a multiple of 4096 bytes"),
        (metadata(Plain, 4096, ""), "metadata: files are not compressed: name an algorithm"),
    ] {
        let error = refused.build_options().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn ends_beside_inodes_exclude_encoded_extents_only_where_these_were_asked_for() {
    let metadata = Some(MetadataCompression::By(MetadataChoice { pcluster_len: 4096, method: None }));
    for (kernel, metadata) in [("6.15", None), ("6.17", metadata)] {
        let asked = || Choices { tail_packing: true, metadata, ..choices(Preset::Balanced, kernel) };
        let options = asked().build_options().unwrap();
        assert!(options.packing.tail_packing && !options.compression.encoded_extents);
        let error = Choices { encoded_extents: Some(true), ..asked() }.build_options().unwrap_err();
        assert_eq!((error.field, error.problem), (OptionField::TailPacking, OptionProblem::EncodedExtents));
        assert!(choices(Preset::Balanced, kernel).build_options().unwrap().compression.encoded_extents);
    }
}
