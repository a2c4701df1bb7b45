use super::*;

const SMALL: Fragments = Fragments::UpTo(SMALL_FILE_LEN);

fn wishes<'a>(preset: Preset, kernel: &str) -> Wishes<'a> {
    let kernel = (!kernel.is_empty()).then(|| kernel.parse().unwrap());
    Wishes { preset, kernel, ..Wishes::default() }
}

fn compression(preset: Preset, z: Option<&str>, c: Option<u64>, kernel: &str) -> Option<Spec> {
    let wishes = Wishes { algorithm: z, pcluster_len: c, ..wishes(preset, kernel) };
    choose(&wishes).unwrap().compression
}

fn spec(method: Method, level: i32, pcluster_len: u32) -> Option<Spec> {
    Some(Spec { method, level, pcluster_len, window_len: None })
}

#[test]
fn options_override_presets() {
    use Preset::*;
    assert_eq!(compression(Balanced, None, None, ""), spec(Method::Zstd, 3, 64 << 10));
    assert_eq!(compression(Fast, None, Some(16 << 10), ""), spec(Method::Lz4, 1, 16 << 10));
    assert_eq!(compression(Small, Some("lzma,9"), None, ""), spec(Method::Lzma, 9, 1 << 20));
    assert_eq!(compression(Plain, None, None, ""), None);
    assert_eq!(compression(Plain, Some("deflate"), None, ""), spec(Method::Deflate, 6, 64 << 10));
    assert_eq!(compression(Small, Some("none"), None, ""), None);
}

#[test]
fn defaults_give_way_to_the_kernel() {
    use Preset::*;
    assert_eq!(compression(Balanced, None, None, "6.10"), spec(Method::Zstd, 3, 64 << 10));
    assert_eq!(compression(Balanced, None, None, "6.9"), spec(Method::Lz4hc, 9, 64 << 10));
    assert_eq!(compression(Small, None, None, "5.16"), spec(Method::Lzma, 6, 1 << 20));
    assert_eq!(compression(Small, None, None, "5.15"), spec(Method::Lz4hc, 9, 1 << 20));
    assert_eq!(compression(Fast, None, None, "5.15"), spec(Method::Lz4, 1, 64 << 10));
    assert_eq!(compression(Small, None, None, "5.13"), spec(Method::Lz4hc, 9, 1 << 20));
    assert_eq!(compression(Balanced, None, None, "5.12"), spec(Method::Lz4hc, 9, 4096));
    assert_eq!(compression(Fast, None, None, "5.4"), spec(Method::Lz4, 1, 4096));
    assert_eq!(compression(Plain, Some("lz4hc,12"), Some(4096), "5.4"), spec(Method::Lz4hc, 12, 4096));
    assert_eq!(compression(Plain, None, None, "5.4"), None);
    let tried = Wishes { tries: Some("lz4hc,12"), ..wishes(Fast, "5.4") };
    assert_eq!(choose(&tried).unwrap().trial.specs, [spec(Method::Lz4hc, 12, 4096).unwrap()]);
}

#[test]
fn packing_and_deduplication_follow_preset_method_and_kernel() {
    use Preset::*;
    let off = Fragments::Off;
    for (preset, algorithm, kernel, fragments, dedupe) in [
        (Plain, None, "", off, Dedupe::Files),
        (Plain, Some("zstd"), "", off, Dedupe::Files),
        (Fast, None, "", SMALL, Dedupe::Files),
        (Fast, None, "6.0", off, Dedupe::Files),
        (Balanced, None, "", SMALL, Dedupe::Parts),
        (Balanced, None, "6.1", SMALL, Dedupe::Parts),
        (Balanced, None, "6.0", off, Dedupe::Files),
        (Balanced, Some("lz4"), "", SMALL, Dedupe::Files),
        (Balanced, Some("lz4hc"), "", SMALL, Dedupe::Parts),
        (Balanced, Some("none"), "", off, Dedupe::Files),
        (Small, None, "", Fragments::UpTo(u64::MAX), Dedupe::Parts),
        (Small, None, "5.16", off, Dedupe::Files),
        (Dataset, None, "6.12", off, Dedupe::Files),
    ] {
        let options = choose(&Wishes { algorithm, ..wishes(preset, kernel) }).unwrap();
        assert_eq!((options.fragments, options.dedupe), (fragments, dedupe), "{preset:?} {algorithm:?} {kernel}");
    }
    let named = Wishes {
        dedupe: Some(Dedupe::Off),
        fragments: Some(Fragments::UpTo(7)),
        packed_pcluster_len: Some(8192),
        ..wishes(Dataset, "6.1")
    };
    let options = choose(&named).unwrap();
    assert_eq!((options.dedupe, options.fragments), (Dedupe::Off, Fragments::UpTo(7)));
    assert_eq!(options.packed_pcluster_len, Some(8192));
}

#[test]
fn encoded_extents_have_longer_units() {
    use Preset::*;
    for (preset, kernel, extents, pcluster_len, expected) in [
        (Balanced, "", None, None, (false, 64 << 10)),
        (Balanced, "6.14", None, None, (false, 64 << 10)),
        (Balanced, "6.15", None, None, (true, 256 << 10)),
        (Balanced, "6.15", None, Some(32 << 10), (true, 32 << 10)),
        (Balanced, "6.15", Some(Extents::Index), None, (false, 64 << 10)),
        (Balanced, "", Some(Extents::Encoded), None, (true, 256 << 10)),
        (Small, "6.15", None, None, (true, 1 << 20)),
        (Dataset, "6.15", None, None, (true, 64 << 10)),
    ] {
        let options = choose(&Wishes { extents, pcluster_len, ..wishes(preset, kernel) }).unwrap();
        let chosen = (options.encoded_extents, options.compression.unwrap().pcluster_len);
        assert_eq!(chosen, expected, "{preset:?} {kernel} {extents:?}");
    }
    assert!(!choose(&wishes(Plain, "6.15")).unwrap().encoded_extents);
}

#[test]
fn pclusters_suit_the_blocks() {
    use Preset::*;
    for (preset, block_len, kernel, expected) in [
        (Balanced, 512, "", 64 << 10),
        (Small, 512, "", 512 << 10),
        (Small, 512, "6.15", 1 << 20),
        (Small, 1024, "", 1 << 20),
        (Balanced, 64 << 10, "", 64 << 10),
    ] {
        let options = choose(&Wishes { block_len: Some(block_len), ..wishes(preset, kernel) }).unwrap();
        assert_eq!(options.compression.unwrap().pcluster_len, expected, "{preset:?} {block_len} {kernel}");
        assert_eq!(options.block_bits.len(), block_len);
    }
    assert_eq!(choose(&wishes(Plain, "")).unwrap().block_bits, BlockBits::DEFAULT);
    let tried = Wishes { block_len: Some(512), tries: Some("lz4,zstd"), ..wishes(Small, "") };
    let lens: Vec<u32> = choose(&tried).unwrap().trial.specs.iter().map(|way| way.pcluster_len).collect();
    assert_eq!(lens, [128 << 10, 512 << 10]);
}

#[test]
fn compressed_metadata_brings_what_its_kernel_has() {
    let with = |preset, metadata| Wishes { metadata: Some(metadata), ..wishes(preset, "") };
    let options = choose(&with(Preset::Fast, (16 << 10, None))).unwrap();
    assert_eq!(options.metabox, spec(Method::Lz4, 1, 16 << 10));
    assert!(options.pack_directories && options.encoded_extents && options.own_mtimes);
    let options = choose(&with(Preset::Plain, (64 << 10, Some("zstd,9")))).unwrap();
    assert_eq!((options.metabox, options.compression), (spec(Method::Zstd, 9, 64 << 10), None));
    assert!(!options.pack_directories && options.own_mtimes);
    let options = choose(&Wishes { compress_dirs: true, ..wishes(Preset::Balanced, "6.1") }).unwrap();
    assert!(options.pack_directories && options.metabox.is_none() && !options.own_mtimes);
}

#[test]
fn wishes_are_refused_with_the_reason() {
    use Preset::*;
    let with = |preset, algorithm, pcluster_len, kernel| Wishes { algorithm, pcluster_len, ..wishes(preset, kernel) };
    let parts = |preset, kernel| Wishes { dedupe: Some(Dedupe::Parts), ..wishes(preset, kernel) };
    let packed = |preset, kernel| Wishes { fragments: Some(SMALL), ..wishes(preset, kernel) };
    let packed_len = |preset, len| Wishes { packed_pcluster_len: Some(len), ..wishes(preset, "") };
    let encoded = |preset, kernel| Wishes { extents: Some(Extents::Encoded), ..wishes(preset, kernel) };
    let blocks = |preset, block_len, kernel| Wishes { block_len: Some(block_len), ..wishes(preset, kernel) };
    let directories = |preset, kernel| Wishes { compress_dirs: true, ..wishes(preset, kernel) };
    let metadata =
        |preset, len, algorithm, kernel| Wishes { metadata: Some((len, algorithm)), ..wishes(preset, kernel) };
    for (wishes, message) in [
        (blocks(Plain, 256, ""), "--block-size 256: use a power of two, 512 to 64k"),
        (blocks(Plain, 5000, ""), "--block-size 5000: use a power of two"),
        (blocks(Plain, 128 << 10, ""), "--block-size 131072: use a power of two"),
        (blocks(Plain, 1024, "6.3"), "--block-size 1024 needs Linux 6.4, but the image is for Linux 6.3"),
        (blocks(Balanced, 1024, "6.7"), "--block-size 1024 needs Linux 6.8"),
        (
            Wishes { pcluster_len: Some(256 << 10), ..blocks(Fast, 512, "") },
            "-C 262144: use a multiple of 512 bytes, up to 131072",
        ),
        (Wishes { pcluster_len: Some(4096), ..blocks(Small, 16 << 10, "") }, "-C 4096: use a multiple of 16384 bytes"),
        (with(Balanced, Some("zstd"), None, "6.6"), "zstd came with Linux 6.10, but the image is for Linux 6.6"),
        (with(Balanced, Some("deflate"), None, "6.1"), "deflate came with Linux 6.6"),
        (with(Plain, Some("lzma"), None, "5.15"), "lzma came with Linux 5.16"),
        (with(Plain, None, None, "5.3"), "images are made for Linux 5.4 and later"),
        (
            with(Fast, None, Some(8192), "5.12"),
            "-C 8192: more than a block needs Linux 5.13, but the image is for Linux 5.12",
        ),
        (with(Fast, None, Some(5000), "5.12"), "-C 5000: more than a block needs Linux 5.13"),
        (with(Fast, None, Some(1000), "5.12"), "-C 1000: use a multiple of 4096 bytes, up to 4096"),
        (with(Balanced, Some("zstd"), None, "5.4"), "zstd came with Linux 6.10, but the image is for Linux 5.4"),
        (with(Balanced, Some("gzip"), None, ""), "-z gzip: unknown compression method"),
        (with(Balanced, None, Some(1000), ""), "-C 1000: use a multiple of 4096 bytes, up to 1048576"),
        (with(Balanced, None, Some(0), ""), "multiple of 4096"),
        (with(Balanced, None, Some(2 << 20), ""), "up to 1048576"),
        (with(Balanced, None, Some(1 << 40), ""), "up to 1048576"),
        (with(Plain, None, Some(8192), ""), "-C: nothing is compressed"),
        (parts(Balanced, "6.0"), "--dedupe parts needs Linux 6.1, but the image is for Linux 6.0"),
        (parts(Plain, ""), "--dedupe parts: nothing is compressed"),
        (packed(Balanced, "5.15"), "--fragments needs Linux 6.1, but the image is for Linux 5.15"),
        (packed(Plain, ""), "--fragments: nothing is compressed"),
        (packed_len(Balanced, 5000), "--packed-pcluster 5000: use a multiple of 4096 bytes, up to 1048576"),
        (packed_len(Dataset, 4096), "--packed-pcluster: no files are packed"),
        (packed_len(Plain, 4096), "--packed-pcluster: nothing is compressed"),
        (encoded(Balanced, "6.14"), "--extents encoded needs Linux 6.15, but the image is for Linux 6.14"),
        (encoded(Plain, ""), "--extents encoded: nothing is compressed"),
        (directories(Balanced, "6.0"), "--compress-dirs needs Linux 6.1, but the image is for Linux 6.0"),
        (directories(Plain, ""), "--compress-dirs: nothing is compressed"),
        (
            metadata(Balanced, 4096, None, "6.16"),
            "--compress-metadata needs Linux 6.17, but the image is for Linux 6.16",
        ),
        (metadata(Balanced, 5000, None, ""), "--compress-metadata 5000: use a multiple of 4096 bytes"),
        (metadata(Balanced, 4096, Some("gzip"), ""), "--compress-metadata: gzip: unknown compression method"),
        (metadata(Plain, 4096, None, ""), "--compress-metadata: files are not compressed: name an algorithm"),
    ] {
        let error = choose(&wishes).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
